"""Programs, faults and reports of transaction-kills, and a short run of it with real clients."""

from __future__ import annotations

import gzip
import random
import signal
import sys
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from campaigns.transactions import confluent_copier
from campaigns.transactions.__main__ import main
from campaigns.transactions.broker_state import hanging_rows
from campaigns.transactions.copier_process import FAILED_STATUS, FENCED_STATUS
from campaigns.transactions.faults import (
    KINDS,
    OF_ONE_NODE,
    OF_SEVERAL,
    ON_ZOOKEEPER,
    UnknownFaultError,
    plan_of,
)
from campaigns.transactions.oracle import Account
from campaigns.transactions.programs import CopierProgram, Story, Work
from campaigns.transactions.report import CampaignReport, RunReport, Zombie, table
from campaigns.transactions.rounds import zombie_of
from campaigns.transactions.slots import Slot, Slots
from campaigns.waits import NoAnswerError, await_true

WORK = Work("h:1", "in", "out", "g", "id-0", (0,), 10, 5.0, 0.1, 3)


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [(KafkaError._FENCED, FENCED_STATUS, "fenced"), (KafkaError._TRANSPORT, FAILED_STATUS, "failed")],
)
def test_librdkafka_is_fenced_in_whichever_call_it_hears_of_it(
    code: int, status: int, word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In ``produce``, for instance, when the answer to an earlier Produce says so."""

    def heard(_: object) -> None:
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(confluent_copier, "Copier", lambda: SimpleNamespace(say=print))
    monkeypatch.setattr(
        confluent_copier, "ConfluentCopier", lambda copier: SimpleNamespace(run=lambda: heard(copier))
    )
    assert confluent_copier.main() == status
    assert capsys.readouterr().out.startswith(f"{word} ")


def test_a_programs_lines_are_its_story() -> None:
    story = Story()
    for line in (
        "a warning of the JVM",
        "ready",
        "holds 3",
        "began 7",
        "committed 7",
        "began 3",
        "committed 3",
        "began 2",
        "aborted 0:5 1:9",
        "began 2",
    ):
        assert story.take(line + "\n") is (line != "a warning of the JVM")
    assert (story.held, story.begun, story.is_open) == (3, 4, True)
    story.take("retried a b\n")
    assert not story.is_open
    assert (story.ready, story.transactions, story.records, story.aborts) == (True, 2, 10, 1)
    assert story.aborted == [(0, 5), (1, 9)]
    assert (story.retries, story.last_word) == (["a b"], "")
    story.take("fenced ProducerFencedException: epoch 3")
    assert (story.last_word, story.error) == ("fenced", "ProducerFencedException: epoch 3")


def test_a_plan_has_every_kind_and_is_the_seeds() -> None:
    for nodes, kinds in ((1, OF_ONE_NODE), (3, OF_SEVERAL)):
        plan = plan_of(random.Random(5), nodes, 2 * len(kinds))
        assert plan == plan_of(random.Random(5), nodes, 2 * len(kinds))
        assert sorted(plan) == sorted(2 * list(kinds))
        assert set(plan) <= set(KINDS)
    all_kinds = [*OF_SEVERAL, *ON_ZOOKEEPER]
    plan = plan_of(random.Random(5), 3, len(all_kinds), on_zookeeper=True)
    assert sorted(plan) == sorted(all_kinds)
    assert plan_of(random.Random(5), 1, 3, ["zombie"]) == ["zombie"] * 3
    with pytest.raises(UnknownFaultError, match="found kill-zookeeper"):
        plan_of(random.Random(5), 3, 3, ["kill-zookeeper"])
    with pytest.raises(UnknownFaultError, match="found zombies; allowed: kill-broker"):
        plan_of(random.Random(5), 1, 3, ["zombies"])


SAYS = """
import sys
print("ready", flush=True)
for line in sys.stdin: pass
print(sys.argv[1], flush=True)
"""


STORIES = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a signal ends it, and a dump takes seconds
sys.stdin.readline()
print("holds 2", *sys.argv[1:], sep="\\n", flush=True)
sys.stdin.read()
"""


def zombie(**changes: object) -> Zombie:
    return Zombie(**{"name": "z", "held": 2, "was_open": False, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"last_word": "fenced", "begun": 1, "held_at_end": 2}, None),
        ({"last_word": "fenced", "was_open": True, "committed": 1}, None),
        ({}, None),  # without partitions it begins no transaction, and nothing can fence it
        ({"held_at_end": 2}, "not fenced"),
        ({"begun": 1}, "not fenced"),
        ({"was_open": True}, "not fenced"),
        ({"last_word": "failed"}, "not fenced"),
        ({"last_word": "ended"}, "not fenced"),
        ({"last_word": "fenced", "committed": 1}, "committed 1"),
        ({"last_word": "fenced", "was_open": True, "committed": 2}, "committed 2"),
    ],
)
def test_a_zombie_that_sends_something_must_be_fenced(
    changes: dict[str, object], complaint: str | None
) -> None:
    complaints = zombie(**changes).complaints
    assert len(complaints) == (complaint is not None)
    assert complaint is None or complaint in complaints[0]


def test_a_zombie_is_what_it_told_since_its_pause() -> None:
    story = Story()
    for line in ("holds 3", "began 5", "retried x", "began 5"):
        story.take(line)
    before = story.copy()
    for line in ("committed 5", "holds 2", "began 4", "aborted 0:1", "began 4", "retried y", "fenced E: e"):
        story.take(line)
    zombie_report = zombie_of("z", before, story, 1.5)
    assert (
        zombie_report.held,
        zombie_report.was_open,
        zombie_report.begun,
        zombie_report.committed,
        zombie_report.aborted,
    ) == (3, True, 2, 1, 2)
    assert (
        zombie_report.held_at_end,
        zombie_report.last_word,
        zombie_report.error,
        zombie_report.seconds,
    ) == (2, "fenced", "E: e", 1.5)
    assert str(zombie_report) == (
        "paused with 3 partitions and one transaction open; after SIGCONT it began 2, committed 1, aborted 2, had 2"
        " partitions; after 1.5 s: fenced E: e"
    )


def test_lines_that_mean_nothing_are_in_the_log(tmp_path: Path) -> None:
    program = CopierProgram("p", [sys.executable, "-S", "-c", STORIES, "a warning"], "go", tmp_path / "p.log")
    assert await_true(lambda: program.story.held == 2, 60)
    program.signal(signal.SIGKILL)
    assert program.await_end(60)
    assert (tmp_path / "p.log").read_text() == "a warning\n"


def slot_of(folder: Path, last: str) -> Slots:
    def start(name: str, _: Work, log_path: Path) -> CopierProgram:
        return CopierProgram(name, [sys.executable, "-S", "-c", SAYS, last], "", log_path)

    return Slots([Slot(0, start, WORK, folder)])


def test_programs_that_end_in_good_order_are_fine(tmp_path: Path) -> None:
    slots = slot_of(tmp_path, "ended")
    slots.begin()
    slots.replace_ended()
    slots.finish()
    assert (slots.wrong, slots.restarts, slots.errors()) == ([], 0, {})


@pytest.mark.parametrize(
    ("last", "complaint"),
    [
        ("fenced by nobody", "copier-0-0 was fenced without a successor: by nobody"),
        ("", "copier-0-0 ended without a word"),
        ("failed once", None),
    ],
)
def test_a_program_that_ends_by_itself_has_a_successor(
    tmp_path: Path, last: str, complaint: str | None
) -> None:
    """A client may end with an error that is fatal to it. That nobody fenced it is not one of them."""
    slots = slot_of(tmp_path, last)
    slots.begin()
    slots.slots[0].program.finish()
    assert slots.slots[0].program.await_end(10)
    slots.replace_ended()
    assert slots.restarts == 1
    assert len(slots.programs) == 2
    assert slots.wrong == ([] if complaint is None else [complaint])
    slots.kill()
    assert not slots.slots[0].program.is_alive


def test_a_table_without_rows_is_no_answer() -> None:
    """find-hanging that prints nothing has shown nothing."""
    head = "Topic\tPartition\tProducerId\tProducerEpoch\tCoordinatorEpoch\tStartOffset\tLastTimestamp\tDuration(min)\n"
    assert hanging_rows(head) == []
    assert hanging_rows(f"{head}t 0 4 0 0 17 0 0\n") == ["t 0 4 0 0 17 0 0"]
    with pytest.raises(NoAnswerError):
        hanging_rows("Error: no such broker")


def test_a_report_is_good_only_if_all_is_equal() -> None:
    good = RunReport(client="java", version=2, nodes=1, seed=0, sha256="a", capture_sha256="a")
    good.kills = {"kill-both": 2, "kill-client": 1, "kill-leader": 1, "zombie": 3}
    assert good.is_good
    assert good.killed == (3, 3, 3)
    for field, value in (("sha256", "b"), ("wrong", ["x"]), ("account", Account(lost=1))):
        bad = RunReport(client="java", version=2, nodes=1, seed=0, sha256="a", capture_sha256="a")
        setattr(bad, field, value)
        assert not bad.is_good
    shown = Console(width=220, record=True, file=StringIO())
    shown.print(table([good, good]))
    assert "6" in shown.export_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_librdkafka_copies_exactly_while_broker_and_client_die(tmp_path: Path) -> None:
    """One node, its broker and a client killed, and a zombie."""
    capture = tmp_path / "c.gz"
    capture.write_bytes(gzip.compress(b"".join(b"%d some line of a feed\n" % n for n in range(4_000))))
    out = tmp_path / "out.json"
    status = main(
        [
            *("--capture", str(capture), "--clients", "librdkafka", "--versions", "2", "--nodes", "1"),
            *("--kills", "3", "--faults", "kill-broker,kill-client,zombie", "--rate", "100"),
            *("--folder", str(tmp_path / "run"), "--out", str(out)),
        ]
    )
    (run,) = msgspec.json.decode(out.read_bytes(), type=CampaignReport).runs
    assert (run.wrong, status) == ([], 0)
    assert run.kills == {"kill-broker": 1, "kill-client": 1, "zombie": 1}
    assert (run.account.records, run.fenced, run.find_hanging) == (4_000, 1, "not run")
    assert run.uncommitted > 0
    (zombie_report,) = run.zombies
    assert (
        zombie_report.last_word,
        zombie_report.held > 0,
        zombie_report.was_open or zombie_report.begun > 0,
    ) == ("fenced", True, True)
