"""Events of an outage and of a dead JVM, with a scripted query in place of Spark's."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_sink_spark.errors import ArchiveError, AwayError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.run import driver, patience
from blumfeld_sink_spark.spark.run.driver import archive
from blumfeld_sink_spark.spark.run.progress import Back, Event, Notice, Step, Waiting
from blumfeld_sink_spark.spark.run.watchman import Watchman
from blumfeld_sink_spark.spark.runtime import session as session_module
from blumfeld_sink_spark.spark.runtime.java import Java
from blumfeld_sink_spark.spark.runtime.session import Session, _in_jvm, _not_py4j
from tests.plugins.sink_spark.spark_tools import make_topic, produce


class _Query:
    """A running query that never finishes a batch."""

    isActive = True  # noqa: N815 — Spark's names
    recentProgress: tuple[dict[str, Any], ...] = ()  # noqa: N815
    lastProgress: None = None  # noqa: N815
    status: dict[str, bool] = {"isTriggerActive": False}  # noqa: RUF012

    def __init__(self, fails: Callable[[], None] = lambda: None) -> None:
        self._fails = fails

    def exception(self) -> None:
        self._fails()

    def stop(self) -> None:
        pass


def _session(status: str = "") -> Any:
    return SimpleNamespace(spark=None, said=list, ended=lambda: status, stop=lambda: None)


def test_an_outage_is_told_while_the_query_waits_and_so_is_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The query itself waits a minute for the broker; the archive must report the outage earlier."""
    stop, events, away = threading.Event(), list[Event](), threading.Event()

    def follow(event: Event) -> None:
        events.append(event)
        if isinstance(event, Waiting):
            away.clear()
        elif isinstance(event, Back):
            stop.set()

    def ask(self: Any) -> None:
        if away.is_set():
            raise AwayError("b:1 doesn't answer")

    monkeypatch.setattr(driver, "POLL_S", 0.01)
    monkeypatch.setattr(driver, "Watchman", lambda ask: Watchman(ask, 0.01))
    monkeypatch.setattr(driver._Run, "_ask", ask)
    monkeypatch.setattr(driver._Run, "_start", lambda self, spark: _Query())
    with EmbeddedBroker() as broker:
        settings = make_topic(broker.bootstrap_servers, "away", root=tmp_path)
        away.set()
        archive(settings, "run", stop, follow, _session())
    outage_events = [event for event in events if isinstance(event, Waiting | Back)]
    assert isinstance(outage_events[0], Waiting)
    assert outage_events[0].text == "b:1 doesn't answer"
    assert [type(event) for event in outage_events].count(Back) == 1


def test_a_run_outlives_a_worker_that_didnt_start_and_tells_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a worker's kill on a busy machine the next worker was late, and the run ended with status 1."""
    cause = "org.apache.spark.SparkException: Python worker failed to connect back."
    stop, events = threading.Event(), list[Event]()

    class Failed(_Query):
        isActive = False  # noqa: N815

        def exception(self) -> Any:
            return cause

    queries = iter([Failed(), Failed()])

    def start(self: Any, spark: Any) -> _Query:
        query = next(queries, None)
        if query is None:
            stop.set()
        return query or _Query()

    monkeypatch.setattr(patience, "BACKOFF_S", 0.01)
    monkeypatch.setattr(driver._Run, "_start", start)
    with EmbeddedBroker() as broker:
        settings = make_topic(broker.bootstrap_servers, "slow", root=tmp_path)
        archive(settings, "run", stop, events.append, _session())
        texts = [event.text for event in events if isinstance(event, Waiting)]
        assert len(texts) == 2
        assert "(SparkException: Python worker failed to connect back.)" in texts[0]
        queries = iter([Failed()])
        with pytest.raises(AwayError, match="couldn't start a Python worker"):
            archive(settings, "once", stop, events.append, _session())


def test_a_jvm_that_died_is_one_line_whatever_py4j_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from py4j.protocol import Py4JError

    class Dead(_Query):
        def __getattribute__(self, name: str) -> Any:
            raise Py4JError("An error occurred while calling None.None")

    monkeypatch.setattr(driver._Run, "_start", lambda self, spark: Dead())
    with EmbeddedBroker() as broker:
        settings = make_topic(broker.bootstrap_servers, "dead", root=tmp_path)
        with pytest.raises(ArchiveError) as caught:
            archive(settings, "run", session=_session("Spark's JVM (process 7) ended by signal SIGKILL"))
    assert str(caught.value) == (
        "Spark's JVM (process 7) ended by signal SIGKILL. Nothing is lost: start again, and it goes on"
    )


def test_a_jvm_that_dies_before_spark_answers_is_known() -> None:
    """pyspark's launcher says only that it is gone."""
    from pyspark import java_gateway

    session = object.__new__(Session)
    session._tail = str  # type: ignore[method-assign]
    with session._kept_process():
        java_gateway.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    session._process.wait(30)
    assert session.ended() == f"Spark's JVM (process {session._process.pid}) ended by signal SIGKILL"


def test_a_start_that_fails_ends_its_jvm_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    def fail(self: Session, *given: Any) -> None:
        self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        started.append(self._process)
        os.write(self._output.fileno(), b"ERROR Backend: All masters are unresponsive! Giving up.\n")
        raise RuntimeError("calling o45.addFile")

    monkeypatch.setattr(Session, "_start", fail)
    java = Java(home="", command="/bin/java", version="17.0.1", origin="PATH")
    with pytest.raises(ArchiveError, match=r"\(Java 17.0.1\): All masters are unresponsive! Giving up\.$"):
        Session(ArchiveSettings(topics=("t",)), None, java)
    assert started[0].poll() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no such signal")
def test_a_jvm_ends_with_the_process_that_started_it() -> None:
    """Linux goes by the thread, so a thread that ends stands for a process that is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        ready = partial(_in_jvm, None)
        started.append(subprocess.Popen(["sleep", "60"], preexec_fn=ready))  # noqa: PLW1509

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(30)
    assert started[0].wait(30) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("code", "words"),
    [("import os; os.kill(os.getpid(), 9)", "by signal SIGKILL"), ("raise SystemExit(3)", "with status 3")],
)
def test_a_session_says_how_its_jvm_ended(code: str, words: str) -> None:
    session = object.__new__(Session)
    session._process = subprocess.Popen([sys.executable, "-c", code])
    session._tail = lambda: "To adjust logging level use sc.setLogLevel"  # type: ignore[method-assign]
    session._process.wait(30)
    assert session.ended() == f"Spark's JVM (process {session._process.pid}) ended {words}"


def test_a_jvm_that_runs_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "DEAD_S", 0.01)
    session = object.__new__(Session)
    session._process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert session.ended() == ""
    session._process.communicate(b"\n", timeout=30)


def test_tracebacks_of_py4j_stay_out_of_the_root_log_and_no_others() -> None:
    def record(path: str) -> logging.LogRecord:
        return logging.LogRecord("root", logging.ERROR, path, 1, "while sending", None, None)

    assert not _not_py4j(record("/lib/py4j/java_gateway.py"))
    assert _not_py4j(record("/home/py4j-user/decoder.py"))


@pytest.mark.parametrize("mode", ["once", "backfill"])
def test_nothing_new_ends_without_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Any) -> None:
    """Before each step that takes long an event names it."""
    events: list[Event] = []

    def no_spark(*given: Any) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(driver, "open_session", no_spark)
    with EmbeddedBroker() as broker:
        settings = make_topic(broker.bootstrap_servers, "empty", partitions=2, root=tmp_path)
        assert archive(settings, mode, on_progress=events.append).batches == 0
        assert [event.text for event in events if isinstance(event, Notice)][-1] == (
            "nothing is new behind what is archived: ended without Spark"
        )
        assert any("asking" in event.text for event in events if isinstance(event, Step))
        produce(broker.bootstrap_servers, "empty", 1)
        if mode == "once":  # a backfill ends where it ended when it began
            with pytest.raises(AssertionError, match="Spark is started"):
                archive(settings, mode)


def test_a_batch_that_is_planned_and_not_published_needs_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An earlier run was killed within a batch. It must be finished although the topic has nothing after it."""
    monkeypatch.setattr(driver, "open_session", lambda *given: pytest.fail("Spark is started"))
    with EmbeddedBroker() as broker:
        settings = make_topic(broker.bootstrap_servers, "killed", root=tmp_path)
        archive(settings)
        offsets = Path(settings.checkpoint_location) / "offsets"
        offsets.mkdir()
        (offsets / "0").write_text('v1\n{}\n{"killed":{"0":1}}\n')
        produce(broker.bootstrap_servers, "killed", 1)
        with pytest.raises(pytest.fail.Exception, match="Spark is started"):
            archive(settings)


def test_a_watchman_knows_an_outage_from_a_refusal() -> None:
    answers: list[Exception | None] = [
        AwayError("away"),
        None,
        ArchiveError("refused"),
        AwayError("away again"),
    ]
    question = threading.Event()

    def ask() -> None:
        if not answers:
            question.set()
            raise AwayError("last")
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    with Watchman(ask, 0.001) as watchman:
        assert question.wait(30)
    assert watchman.failed >= 3
    assert watchman.trouble == "last"
