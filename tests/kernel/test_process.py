"""A node as a process: signals end it cleanly, a defect does not."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from blumfeld.kernel.node import Node, StartError
from blumfeld.kernel.process import COLLECT_AFTER_OBJECTS, Process
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.spi.runtime import NodeFailure
from tests.kernel.fakes import JOURNAL, FakeBroker, Rendered, plan_of


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def end(node: Node) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def process(data_dir: Path, ready: Callable[[Node], None], rendered: Rendered | None = None) -> Process:
    logs = EventLogs((rendered or Rendered()).prepare)
    return Process(plan_of(data_dir=data_dir), logs, ready, cast("Any", FakeBroker))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_every_part_and_is_a_clean_end(tmp_path: Path, number: signal.Signals) -> None:
    def ready(node: Node) -> None:
        JOURNAL("ready")
        os.kill(os.getpid(), number)

    assert process(tmp_path, ready).run() == 0
    assert JOURNAL.lines[JOURNAL.lines.index("ready") - 1] == "node started"
    assert JOURNAL.lines[-1] == "storage stopped"


@pytest.fixture
def hang_up() -> Iterator[None]:
    """SIGHUP is afterwards what it was."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up")
def test_a_supervisor_that_dies_ends_the_node_cleanly(tmp_path: Path) -> None:
    """Linux sends the signal once for each thread that it had."""

    def ready(node: Node) -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGHUP)

    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert process(tmp_path, ready).run() == 0
    assert JOURNAL.lines[-1] == "storage stopped"


@pytest.mark.usefixtures("hang_up")
def test_a_node_under_nohup_goes_on_without_its_terminal(tmp_path: Path) -> None:
    def ready(node: Node) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        asyncio.get_running_loop().call_later(0.05, goes_on)

    def goes_on() -> None:
        JOURNAL("goes on")
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert process(tmp_path, ready).run() == 0
    assert "goes on" in JOURNAL.lines
    assert JOURNAL.lines.index("goes on") < JOURNAL.lines.index("storage stopped")


def test_a_node_may_open_as_many_descriptors_as_it_is_allowed(tmp_path: Path) -> None:
    """Shells give 1,024, and let a program ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = []

    def ready(node: Node) -> None:
        seen.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        end(node)

    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1_000), hard))
    try:
        process(tmp_path, ready).run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert seen == [hard]


def test_a_signal_during_the_start_undoes_it(tmp_path: Path) -> None:
    class Slow(FakeBroker):
        async def start(self, *arguments: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(60)

    unready = process(tmp_path, lambda node: JOURNAL("ready"))
    unready._make_broker = cast("Any", Slow)
    assert unready.run() == 0
    assert "ready" not in JOURNAL.lines
    assert JOURNAL.lines[-1] == "storage stopped"


def error_of_task(tmp_path: Path, error: Exception) -> dict[str, Any]:
    """What is logged of a task's error, which ends the node."""
    rendered = Rendered()

    def ready(node: Node) -> None:
        async def fail() -> None:
            raise error

        node.composition.runtime.spawn(fail(), "watcher")

    ended = process(tmp_path, ready, rendered)
    assert ended.run() == 1
    ended._logs.flush()
    assert JOURNAL.lines[-1] == "storage stopped"
    (values,) = [values for level, _, values in rendered.events if level == "error"]
    return values


def test_a_defect_is_logged_and_stops_the_node(tmp_path: Path) -> None:
    assert error_of_task(tmp_path, ValueError("a bug"))["where"] == "task watcher"


def test_a_node_that_cannot_go_on_says_why_and_shows_no_code(tmp_path: Path) -> None:
    """A disk that failed is the operator's to mend, not ours."""
    values = error_of_task(tmp_path, NodeFailure("the disk is gone"))
    assert values["error"] == "the disk is gone"
    assert "exc_info" not in values


def test_errors_of_callbacks_are_counted_behind_the_first(tmp_path: Path) -> None:
    """A client may cause them as often as it likes. The node goes on."""
    rendered = Rendered()

    def ready(node: Node) -> None:
        def fail() -> None:
            raise ValueError("a bug")

        loop = asyncio.get_running_loop()
        for _ in range(500):
            loop.call_soon(fail)
        node.composition.runtime.call_later(20, lambda: os.kill(os.getpid(), signal.SIGTERM))

    buggy = process(tmp_path, ready, rendered)
    assert buggy.run() == 0
    buggy._logs.flush()
    strays = [values for _, event, values in rendered.events if event == "an error reached the loop"]
    assert len(strays) == 1
    assert str(strays[0]["exc_info"]) == "a bug"


def test_a_failed_start_is_raised_after_all_is_undone(tmp_path: Path) -> None:
    JOURNAL.failing["consensus started"] = OSError(errno.EACCES, "Permission denied", "data/x")
    with pytest.raises(StartError, match="consensus: data/x: Permission denied"):
        process(tmp_path, lambda node: None).run()
    assert JOURNAL.lines[-1] == "storage stopped"


def test_a_process_does_not_collect_what_was_imported(tmp_path: Path) -> None:
    """So nothing is looked at when it settles but what start-up made: the pause is a millisecond, not forty."""
    seen = []

    def ready(node: Node) -> None:
        seen.append((gc.get_freeze_count(), len(gc.get_objects()), gc.get_threshold()[0]))
        os.kill(os.getpid(), signal.SIGTERM)

    process(tmp_path, ready).run()
    [(frozen, left, threshold)] = seen
    assert frozen > 4 * left
    assert threshold == COLLECT_AFTER_OBJECTS
