"""The producer of a load, and what the load keeps of what it tells."""

from __future__ import annotations

import time

import pytest

from campaigns.clients.load.acknowledged_records import Account
from campaigns.clients.load.load import Load
from campaigns.clients.load.log_contents import UnreadableError
from campaigns.clients.load.producers import Librdkafka


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


def test_a_load_keeps_what_was_acknowledged_and_the_instants() -> None:
    load = Load("127.0.0.1:1", 2, 1000.0)
    before = time.monotonic()
    load.acknowledged(1, 0, 5)
    load.refused("late")
    load.refused("late")
    load.failed("out of luck")
    assert load.acknowledged_records.offsets == [{}, {0: 5}]
    assert not load.ack_times[0]
    assert before <= load.ack_times[1][0] <= time.monotonic()
    assert load.given_up == {"late": 2}
    assert load.wrong == ["the producer failed: out of luck"]
    assert not load.await_acks(before, 0)
    load.acknowledged(0, 0, 0)
    assert load.await_acks(before, 0)


def test_a_partition_that_cannot_be_read_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is compared with what was acknowledged."""
    load = Load("127.0.0.1:1", 2, 1000.0)
    for partition in range(2):
        for number in range(3):
            load.acknowledged(partition, number, number)

    def read(load: Load, partition: int) -> list[tuple[int, int]]:
        if partition:
            raise UnreadableError("partition 1: no")
        return [(0, 0), (1, 1)]

    monkeypatch.setattr(Load, "_numbers", read)
    assert load.account() == Account(acked=6, lost=1)
    assert load.wrong == ["partition 0: record 2, acknowledged at 2, is lost", "partition 1: no"]
