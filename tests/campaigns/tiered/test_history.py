"""The history of the campaign ``tiered``: a reader that is served something else than was sent is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from campaigns.clients.load.acknowledged_records import Account
from campaigns.clients.load.load import Load
from campaigns.tiered import history
from campaigns.tiered.history import PARTITIONS, RECORD_BYTES, History, Reader, record_of


class Served(NamedTuple):
    """A message of a consumer."""

    at: int
    data: bytes

    def offset(self) -> int:
        """As in librdkafka."""
        return self.at

    def value(self) -> bytes:
        """As in librdkafka."""
        return self.data


SENT = 5


def log_of(partition: int) -> list[Served]:
    return [Served(number, record_of(partition, number)) for number in range(SENT)]


def found(monkeypatch: pytest.MonkeyPatch, logs: list[list[Served]]) -> tuple[Account, list[str]]:
    """The account of a reader that is served these logs, and what it says is wrong."""

    def served(bootstrap: str, topic: str, partition: int, **limits: Any) -> Iterator[Served]:
        yield from logs[partition]

    monkeypatch.setattr(history, "read_partition", served)
    monkeypatch.setattr(
        history, "log_ends", lambda *_: {("history", partition): SENT for partition in range(PARTITIONS)}
    )
    load = Load("", PARTITIONS, 1.0, "history", lambda *_: None)  # type: ignore[arg-type]
    for partition in range(PARTITIONS):
        for number in range(SENT):
            load.acknowledged(partition, number, number)
    reader = Reader("")
    reader.finish()
    account = History.account(load, reader)
    return account, [*load.wrong, *reader.wrong]


def test_records_differ_by_partition_and_number_and_have_one_size() -> None:
    records = [record_of(partition, number) for partition in range(2) for number in range(50)]
    assert len(set(records)) == 100
    assert {len(record) for record in records} == {RECORD_BYTES}


def test_a_history_that_is_served_as_it_was_sent_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    account, wrong = found(monkeypatch, [log_of(partition) for partition in range(PARTITIONS)])
    assert (account.acked, account.lost, account.doubled, account.disordered, wrong) == (20, 0, 0, 0, [])


def test_a_record_that_is_missing_doubled_moved_or_changed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [log_of(partition) for partition in range(PARTITIONS)]
    del logs[0][2]
    logs[1][2] = logs[1][1]
    logs[2][1], logs[2][2] = logs[2][2], logs[2][1]
    logs[3][4] = Served(4, logs[3][4].data[:-1] + b"\0")
    account, wrong = found(monkeypatch, logs)
    assert (account.lost, account.doubled, account.disordered) == (2, 1, 1)
    for complaint in (
        "partition 0: record 2, acknowledged at 2, is lost",
        "history-0: offsets aren't 0 to 4",
        "partition 1: record 1 at 1 and at 1",
        "partition 2: record 1 at 1 is behind 2",
        "history-3: other bytes at 4",
    ):
        assert any(complaint in said for said in wrong), (complaint, wrong)
