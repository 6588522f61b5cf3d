"""The kit of tiering storages bites: each of these breaks one promise, and the kit's test of it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import LogStorage, OffsetOutOfRangeError, PartitionLog, TopicPartition
from blumfeld.spi.tiering import LogStartState
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.tiered_storage import FakeTieredLog, FakeTieredStorage, tiered_log
from blumfeld_kit.storage_contract import TieringContract
from blumfeld_kit.storage_driver.node import Log, Node
from blumfeld_storage_memory import MemoryStorage
from blumfeld_storage_memory.small_files import MemoryAux

Wrong = Callable[..., Any]


class OfMemory(TieringContract):
    def make_storage(self, runtime: FakeRuntime) -> LogStorage:
        return cast("LogStorage", FakeTieredStorage(MemoryStorage(runtime), runtime))

    def copy(self, log: Log) -> None:
        tiered_log(log.log).copy()


def exchange_and_drop_the_placed(
    right: Wrong, it: FakeTieredStorage, at: TopicPartition, log: PartitionLog, config: TopicConfig
) -> PartitionLog:
    log.truncate_to(log.written_end_offset)
    other: PartitionLog = right(it, at, log, config)
    return other


def exchange_always(
    right: Wrong, it: FakeTieredStorage, at: TopicPartition, log: PartitionLog, config: TopicConfig
) -> PartitionLog:
    inner = log.inner if isinstance(log, FakeTieredLog) else log
    other: PartitionLog = right(it, at, inner, config)
    return other


def exchange_with_other_files(
    right: Wrong, it: FakeTieredStorage, at: TopicPartition, log: PartitionLog, config: TopicConfig
) -> PartitionLog:
    other: PartitionLog = right(it, at, log, config)
    cast("Any", other).aux = MemoryAux()
    return other


def drop_and_start_there(right: Wrong, log: FakeTieredLog, end_offset: int) -> int:
    dropped: int = log.inner.drop_segments(end_offset)
    log._start = log.inner.log_start_offset
    return dropped


def read_over_the_border_again(right: Wrong, log: FakeTieredLog, offset: int, *rest: Any) -> Any:
    return right(log, offset - 6 if offset == log.local_log_start_offset > 0 else offset, *rest)


def read_local_alone(right: Wrong, log: FakeTieredLog, offset: int, *rest: Any) -> Any:
    return right(log, max(offset, log.local_log_start_offset), *rest)


def read_below_the_start(right: Wrong, log: FakeTieredLog, offset: int, *rest: Any) -> Any:
    try:
        return right(log, offset, *rest)
    except OffsetOutOfRangeError:
        return right(log, log.log_start_offset, *rest)


def start_moves_both(right: Wrong, log: FakeTieredLog, offset: int) -> None:
    right(log, max(offset, log.local_log_start_offset))


def start_moves_the_whole_alone(right: Wrong, log: FakeTieredLog, offset: int) -> None:
    log._start = max(log._start, offset)


def begin_with_one_start(right: Wrong, log: FakeTieredLog, start: int, whole: int | None = None) -> None:
    right(log, start)


def begin_with_the_old_start(right: Wrong, log: FakeTieredLog, start: int, whole: int | None = None) -> None:
    right(log, start, log.log_start_offset if whole is None else whole)


def time_in_the_local_part(right: Wrong, log: FakeTieredLog, timestamp_ms: int) -> Any:
    return log.inner.offset_for_time(timestamp_ms)


def state_where_it_was_asked(right: Wrong, log: FakeTieredLog, offset: int, epoch: int) -> Any:
    state = LogStartState(offset=offset, epochs=log.remote[0].state.epochs, producers=None)
    return Completion.of(state)


CASES: list[tuple[type[Any], str, Wrong, str, dict[str, object]]] = [
    (
        FakeTieredStorage,
        "log_with",
        exchange_and_drop_the_placed,
        "test_an_exchange_changes_no_end_and_loses_no_outcome",
        {"on": True},
    ),
    (
        FakeTieredStorage,
        "log_with",
        exchange_always,
        "test_a_configuration_that_changes_nothing_of_tiering_keeps_the_log",
        {},
    ),
    (
        FakeTieredStorage,
        "log_with",
        exchange_with_other_files,
        "test_an_exchange_keeps_the_small_files",
        {},
    ),
    (
        FakeTieredLog,
        "read",
        read_over_the_border_again,
        "test_a_reader_passes_the_border_and_gets_each_record_once",
        {"bytes_max": 1},
    ),
    (FakeTieredLog, "read", read_local_alone, "test_a_remote_read_may_begin_inside_a_batch", {}),
    (
        FakeTieredLog,
        "read",
        read_below_the_start,
        "test_the_log_start_moves_below_and_above_the_local_one",
        {},
    ),
    (
        FakeTieredLog,
        "advance_log_start",
        start_moves_both,
        "test_the_log_start_moves_below_and_above_the_local_one",
        {},
    ),
    (
        FakeTieredLog,
        "advance_log_start",
        start_moves_the_whole_alone,
        "test_the_log_start_moves_below_and_above_the_local_one",
        {},
    ),
    (
        FakeTieredLog,
        "truncate_fully",
        begin_with_one_start,
        "test_a_replica_begins_behind_what_the_store_has",
        {},
    ),
    (
        FakeTieredLog,
        "truncate_fully",
        begin_with_the_old_start,
        "test_a_log_that_begins_anew_has_one_start",
        {},
    ),
    (FakeTieredLog, "offset_for_time", time_in_the_local_part, "test_times_are_found_in_both_parts", {}),
    (
        FakeTieredLog,
        "state_at",
        state_where_it_was_asked,
        "test_the_state_at_the_end_of_a_copied_segment_is_found",
        {"asked": 9, "found": 12},
    ),
]


@pytest.mark.parametrize(
    ("owner", "method", "wrong", "name", "values"), CASES, ids=[case[2].__name__ for case in CASES]
)
def test_a_broken_promise_is_seen(
    monkeypatch: pytest.MonkeyPatch,
    owner: type[Any],
    method: str,
    wrong: Wrong,
    name: str,
    values: dict[str, object],
) -> None:
    contract = OfMemory()
    test = getattr(contract, name)
    test(node=Node(contract.make_runtime, contract.make_storage).start(), **values)
    right = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda *given: wrong(right, *given))
    with pytest.raises((AssertionError, pytest.fail.Exception, OffsetOutOfRangeError)):
        test(node=Node(contract.make_runtime, contract.make_storage).start(), **values)


def test_dropped_segments_that_move_the_whole_start_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = OfMemory()
    monkeypatch.setattr(
        FakeTieredLog,
        "drop_segments",
        lambda log, end_offset: drop_and_start_there(lambda: None, log, end_offset),
        raising=False,
    )
    node = Node(contract.make_runtime, contract.make_storage).start()
    with pytest.raises(AssertionError):
        contract.test_dropped_segments_move_the_local_start_alone(node)
