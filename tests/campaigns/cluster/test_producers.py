"""Producers in processes of their own, and what they tell."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from campaigns.clients.programs import NoClientError
from campaigns.cluster.load import Load, UnreadableError
from campaigns.cluster.producers import Librdkafka, Program, maker_of, take
from campaigns.crash.records import Account

PROGRAM = """
import sys
print("a warning of the JVM", flush=True)
sys.argv[1:] and sys.exit(3)
print("acked 1 0 17", flush=True)
for line in sys.stdin: pass
print("refused 0 0 it timed out", flush=True)
print("sent 1 1", flush=True)
"""


class Heard:
    """A diary."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        self.said.append((partition, number, offset))

    def refused(self, error: str) -> None:
        self.said.append(error)

    def failed(self, error: str) -> None:
        self.said.append(f"failed: {error}")


@pytest.mark.parametrize(
    ("line", "said", "last"),
    [
        ("acked 3 17 42\n", [(3, 17, 42)], False),
        ("acked 3 17 -1\n", [(3, 17, -1)], False),
        (
            "refused 3 17 TimeoutException: 120000 ms has passed\n",
            ["TimeoutException: 120000 ms has passed"],
            False,
        ),
        ("[2026-11-23] WARN acked or not\n", [], False),
        ("sent 4 5 6\n", [], True),
    ],
)
def test_a_line_of_a_program_is_what_it_says(line: str, said: list[object], last: bool) -> None:
    heard, sent = Heard(), [0, 0, 0]
    assert take(line, heard, sent) is last
    assert heard.said == said
    assert sent == ([4, 5, 6] if last else [0, 0, 0])


def test_a_program_sends_until_it_is_told_to_finish() -> None:
    heard = Heard()
    program = Program([sys.executable, "-S", "-c", PROGRAM], "", 2)
    program.start(heard)
    assert program.is_alive
    program.finish()
    assert not program.is_alive
    assert heard.said == [(1, 0, 17), "it timed out"]
    assert program.sent == [1, 1]


def test_a_program_that_dies_is_told_of() -> None:
    heard = Heard()
    program = Program([sys.executable, "-S", "-c", PROGRAM, "die"], "", 2)
    program.start(heard)
    program.finish()
    assert heard.said == ["failed: its program ended before it had said how much it sent"]


def test_a_producer_gives_up_soon_if_it_is_told_so() -> None:
    """Nothing listens there, so nothing is ever acknowledged."""
    heard = Heard()
    producer = Librdkafka("127.0.0.1:1", "t", 2, 1000.0)
    producer.finish(0.1)  # it has not begun
    producer.start(heard)
    while not sum(producer.sent):
        time.sleep(0.01)
    producer.finish(0.1)
    assert not producer.is_alive
    assert heard.said == [
        f"failed: {sum(producer.sent)} records were neither acknowledged nor refused in 0.1 s"
    ]


def test_a_program_is_killed_soon_if_it_is_told_so() -> None:
    heard = Heard()
    program = Program([sys.executable, "-S", "-c", "import time; time.sleep(60)"], "", 2)
    program.finish(0.1)  # it has not begun
    program.start(heard)
    program.finish(0.1)
    assert not program.is_alive
    assert len(heard.said) == 1


def test_a_load_keeps_the_ledger_and_the_instants() -> None:
    load = Load("127.0.0.1:1", 2, 1000.0, lambda *_: Program([sys.executable], "", 2))
    before = time.monotonic()
    load.acknowledged(1, 0, 5)
    load.refused("late")
    load.refused("late")
    load.failed("out of luck")
    assert load.ledger.acked == [{}, {0: 5}]
    assert not load.ack_times[0]
    assert before <= load.ack_times[1][0] <= time.monotonic()
    assert load.given_up == {"late": 2}
    assert load.wrong == ["the producer failed: out of luck"]
    assert not load.await_acks(before, 0)
    load.acknowledged(0, 0, 0)
    assert load.await_acks(before, 0)


def test_a_client_that_cannot_run_says_what_is_absent() -> None:
    with pytest.raises(NoClientError, match="the Java client needs --peer"):
        maker_of("java", None)
    maker_of("java", Path("peer"))
    maker_of("librdkafka", None)
    maker_of("kafka-python", None)


def test_a_partition_that_cannot_be_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is compared with the ledger."""
    load = Load("127.0.0.1:1", 2, 1000.0, lambda *_: Program([sys.executable], "", 2))
    for partition in range(2):
        for number in range(3):
            load.acknowledged(partition, number, number)

    def read(load: Load, partition: int, deadline: float) -> list[tuple[int, int]]:
        if partition:
            raise UnreadableError("partition 1: no")
        return [(0, 0), (1, 1)]

    monkeypatch.setattr(Load, "_read", read)
    assert load.account() == Account(acked=6, lost=1)
    assert load.wrong == ["partition 0: message 2, acknowledged at 2, is lost", "partition 1: no"]
