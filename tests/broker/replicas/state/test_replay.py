"""A partition's log for who replays it: nothing is read on the loop that is not in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld.broker.replicas.state import replay as log_replay
from blumfeld.broker.replicas.state.replay import written_batches
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.transport_contract.kit import CountedRegion
from tests.broker.coordination.test_group_coordination import Grouped
from tests.broker.harness import failing
from tests.broker.plain_storage import PlainStorage


class Cold:
    """Stands before a log's ``read``: what is read comes when the test says so."""

    def __init__(self, log: Any) -> None:
        self.regions: list[CountedRegion] = []
        self.waiting: list[tuple[Completion[LogRead], LogRead]] = []
        self._read = log.read
        log.read = self.read

    def read(self, *arguments: Any) -> Completion[LogRead]:
        read: LogRead = self._read(*arguments)
        read.parts = [CountedRegion(bytes(part), -1, 0) for part in read.parts]  # type: ignore[arg-type]
        self.regions += read.parts  # type: ignore[arg-type]
        done: Completion[LogRead] = Completion()
        self.waiting.append((done, read))
        return done

    def come(self) -> None:
        done, read = self.waiting.pop(0)
        done.complete(read)


@pytest.fixture
def storage() -> PlainStorage:
    """Three commits, one after the other."""
    storage = PlainStorage()
    broker = Grouped(storage)
    for offset in (1, 2, 3):
        assert broker.commit(offset) is ErrorCode.NONE
    broker.stop()
    return storage


@pytest.fixture
def broker(storage: PlainStorage, monkeypatch: pytest.MonkeyPatch) -> Grouped:
    """Its reads take a batch each."""
    monkeypatch.setattr(log_replay, "READ_BYTES", 1)
    return Grouped(storage)


def test_a_coordinator_waits_for_cold_bytes_and_answers_meanwhile(broker: Grouped) -> None:
    broker.lead(-1, 1)
    cold = Cold(broker.offsets_log)
    broker.lead(1, 2)
    for _ in range(3):
        broker.runtime.advance(1_000)
        assert broker.fetch() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        cold.come()
        broker.runtime.run_turn()
    assert broker.fetch() == [3]
    assert {region.releases for region in cold.regions} == {1}


def test_who_resigns_meanwhile_lets_go_of_what_comes(broker: Grouped) -> None:
    broker.lead(-1, 1)
    cold = Cold(broker.offsets_log)
    broker.lead(1, 2)
    broker.lead(-1, 3)
    cold.come()
    broker.runtime.run_turn()
    assert not cold.waiting
    assert [region.releases for region in cold.regions] == [1]


def test_a_disk_that_fails_is_tried_again(broker: Grouped) -> None:
    broker.lead(-1, 1)
    cold = Cold(broker.offsets_log)
    broker.lead(1, 2)
    cold.waiting.pop()[0].fail(OSError("bad sector"))
    broker.runtime.run_turn()
    assert broker.fetch() is ErrorCode.NOT_COORDINATOR
    broker.runtime.advance(1_000)
    while cold.waiting:
        cold.come()
        broker.runtime.run_turn()
    assert broker.fetch() == [3]


def test_a_log_that_is_cut_meanwhile_ends_there(broker: Grouped) -> None:
    log: Any = broker.offsets_log
    batches: Iterator[Any] = written_batches(log)
    assert next(batches).base_offset == 0
    log.read = failing(OffsetOutOfRangeError())
    assert list(batches) == []


def test_what_retention_took_meanwhile_is_passed_over(broker: Grouped) -> None:
    log: Any = broker.offsets_log
    batches: Iterator[Any] = written_batches(log)
    assert next(batches).base_offset == 0
    log.advance_log_start(2)
    assert [batch.base_offset for batch in batches] == [2]
