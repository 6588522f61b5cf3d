"""When a log is compacted, in what order, and what becomes of logs that can't be."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from blumfeld.broker.upkeep.cleaner_choice import with_segments
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionRequest, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import records
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.fakes.runtime import EPOCH_MS
from blumfeld_storage_memory import MemoryLog, MemoryStorage
from tests.broker.batches import batch
from tests.broker.harness import BrokerHarness, Succeeding

BACKOFF_MS = 15_000


class Rounds:
    """What logs were asked for; and what they answer in place of compacting, where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[CompactionRequest] = []
        self.logs: list[object] = []
        self.answer: BaseException | None = None
        self.held: list[Completion[CompactionResult]] | None = None
        real = MemoryLog.compact

        def compact(log: MemoryLog, request: CompactionRequest) -> Completion[CompactionResult]:
            self.asked.append(request)
            self.logs.append(log)
            if self.held is not None:
                self.held.append(Completion())
                return self.held[-1]
            if self.answer is None:
                return real(log, request)
            done: Completion[CompactionResult] = Completion()
            done.fail(self.answer)
            return done

        monkeypatch.setattr(MemoryLog, "compact", compact)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(monkeypatch)


def started(config: dict[str, Any] | None = None) -> BrokerHarness:
    broker = BrokerHarness(config, make_storage=MemoryStorage)
    broker.runtime.run_turn()
    return broker


def compacting(config: dict[str, Any] | None = None, **topic: str) -> BrokerHarness:
    """A broker with a compacted topic ``t``, or one of this configuration."""
    broker = started(config)
    create(broker, "t", **topic)
    return broker


@pytest.fixture
def broker() -> BrokerHarness:
    return compacting()


def create(broker: BrokerHarness, topic: str, **configs: str) -> None:
    settings: dict[str, Any] = {"cleanup_policy": "compact", **configs}
    broker.create_topic(topic, 1, **settings)


def fill(broker: BrokerHarness, *keys: bytes, topic: str = "t", roll: bool = True, **options: Any) -> None:
    """A batch for each key, and with ``roll`` a segment of its own for all of them."""
    for number, key in enumerate(keys):
        data = batch(b"%d" % number, key=key, timestamp=broker.runtime.now_ms(), **options)
        assert broker.produced(data, topic=topic) == ErrorCode.NONE
    if roll:
        with_segments(broker.hosted(topic)).roll()


def contents(broker: BrokerHarness, topic: str = "t") -> list[tuple[bytes | None, int]]:
    return [(r.key, r.offset) for b in broker.hosted(topic).log.batches(0) for r in records(b)]


def look(broker: BrokerHarness) -> None:
    """Let the next look come."""
    broker.runtime.advance(BACKOFF_MS)


def said(broker: BrokerHarness) -> list[str]:
    return [event for _, event, _ in broker.log.events]


def test_a_dirty_log_is_compacted_up_to_its_active_segment(broker: BrokerHarness) -> None:
    fill(broker, b"a", b"b", b"a")
    fill(broker, b"a", b"c")
    fill(broker, b"a", roll=False)
    look(broker)
    assert contents(broker) == [(b"b", 1), (b"a", 3), (b"c", 4), (b"a", 5)]
    assert with_segments(broker.hosted()).cleaned_end_offset == 5
    assert broker.gauge("log_cleaner_passes_total") == 1


def test_compact_and_delete_is_compacted_too(rounds: Rounds) -> None:
    broker = compacting(cleanup_policy="compact,delete")
    fill(broker, b"a", b"a")
    look(broker)
    assert contents(broker) == [(b"a", 1)]


def test_a_log_less_dirty_than_its_topic_wants_waits(broker: BrokerHarness, rounds: Rounds) -> None:
    """``min.cleanable.dirty.ratio`` is 0.5."""
    fill(broker, *(b"%d" % n for n in range(10)))
    look(broker)
    fill(broker, b"x", b"x")
    look(broker)
    assert len(rounds.asked) == 1
    assert broker.gauge("log_cleaner_max_dirty_percent") == 16
    fill(broker, *(b"y%d" % n for n in range(10)))
    look(broker)
    assert len(rounds.asked) == 2
    assert rounds.asked[1].first_dirty_offset == 10


def test_the_dirtiest_goes_first_and_the_others_at_once_behind_it(rounds: Rounds) -> None:
    broker = started()
    for topic, dirty in (("some", 2), ("more", 8), ("most", 30)):
        create(broker, topic, min_cleanable_dirty_ratio="0.01")
        fill(broker, *(b"%d" % n for n in range(10)), topic=topic)
        look(broker)
        fill(broker, *(b"%d" % n for n in range(dirty)), topic=topic)
        broker.hosted(topic).config.min_cleanable_dirty_ratio = 0.99
    rounds.asked.clear()
    rounds.logs.clear()
    for topic in ("some", "more", "most"):
        broker.hosted(topic).config.min_cleanable_dirty_ratio = 0.01
    look(broker)
    assert rounds.logs == [broker.hosted(topic).log for topic in ("most", "more", "some")]


def test_records_younger_than_the_lag_stay() -> None:
    broker = compacting(min_compaction_lag_ms="60000")
    fill(broker, b"a", b"a")
    broker.runtime.advance(50_000)
    fill(broker, b"a", b"a")
    look(broker)
    assert contents(broker) == [(b"a", 1), (b"a", 2), (b"a", 3)]
    assert with_segments(broker.hosted()).cleaned_end_offset == 2


def test_a_log_past_its_longest_lag_is_cleaned_however_clean_it_is(rounds: Rounds) -> None:
    broker = compacting(max_compaction_lag_ms="100000", min_cleanable_dirty_ratio="1.0")
    fill(broker, b"a", b"a")
    broker.runtime.advance(90_000)
    assert rounds.asked == []
    broker.runtime.advance(30_000)
    assert len(rounds.asked) == 1


@pytest.mark.parametrize("cold", [False, True])
def test_the_longest_lag_counts_from_the_oldest_first_batch_of_any_segment(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch, *, cold: bool
) -> None:
    """Records may be older than those before them. Cold ones are known at the look after they were read."""
    reads: list[int] = []
    real = MemoryLog.read

    def read(log: MemoryLog, offset: int, *rest: Any) -> Any:
        answer = real(log, offset, *rest)
        reads.append(offset)
        if not cold:
            return answer
        done: Completion[Any] = Completion()
        harness.runtime.call_later(100, lambda: done.complete(answer))
        return done

    harness = compacting(
        max_compaction_lag_ms="100000",
        min_cleanable_dirty_ratio="1.0",
        message_timestamp_before_max_ms="1000000000",
    )
    monkeypatch.setattr(MemoryLog, "read", read)
    fill(harness, b"a", b"a")
    for key in (b"b", b"c"):
        data = batch(b"v", key=key, timestamp=EPOCH_MS - 95_000)
        assert harness.produced(data) == ErrorCode.NONE
    with_segments(harness.hosted()).roll()
    look(harness)
    if cold:
        assert rounds.asked == []
        look(harness)
    assert len(rounds.asked) == 1
    assert reads == [0, 2], "each is read once"


def test_the_active_segment_rolls_when_the_longest_lag_is_over() -> None:
    """As Kafka: not before the next append, whose timestamp tells the time."""
    broker = compacting(max_compaction_lag_ms="100000")
    fill(broker, b"a", b"a", roll=False)
    broker.runtime.advance(100_001)
    fill(broker, b"b", roll=False)
    assert [info.base_offset for info in with_segments(broker.hosted()).segments()] == [0, 2]


def test_nothing_of_an_open_transaction_is_touched(broker: BrokerHarness, rounds: Rounds) -> None:
    fill(broker, b"a", b"a")
    data = batch(b"v", key=b"b", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    broker.hosted().place(RecordBatch(memoryview(data)), -1, Succeeding())
    broker.runtime.run_turn()
    with_segments(broker.hosted()).roll()
    fill(broker, b"a", b"a")
    look(broker)
    assert [request.end_offset for request in rounds.asked] == [2]


def test_the_storage_is_told_of_producers_and_of_the_topic(rounds: Rounds) -> None:
    broker = compacting(
        {"log.cleaner.dedupe.buffer.size": 1 << 20, "log.cleaner.io.max.bytes.per.second": 5e6},
        delete_retention_ms="77",
        max_message_bytes="5000",
    )
    fill(broker, b"a", producer_id=5, producer_epoch=3, base_sequence=0)
    look(broker)
    request = rounds.asked[0]
    now_ms = EPOCH_MS + BACKOFF_MS
    assert (request.delete_retention_ms, request.batch_bytes_max, request.now_ms) == (77, 5000, now_ms)
    assert (request.map_bytes, request.bytes_per_second_max) == (1 << 20, 5e6)
    last = request.producers[5]
    assert (last.last_data_offset, last.producer_epoch) == (0, 3)


def test_a_log_that_cannot_be_cleaned_is_left_alone_and_others_go_on(
    broker: BrokerHarness, rounds: Rounds
) -> None:
    rounds.answer = OSError(errno.EIO, "a bad batch")
    fill(broker, b"a", b"a")
    look(broker)
    assert "log can't be cleaned, left alone until the next start" in said(broker)
    assert broker.gauge("log_cleaner_uncleanable_partitions") == 1
    rounds.answer = None
    create(broker, "other")
    fill(broker, b"a", b"a", topic="other")
    look(broker)
    assert contents(broker, "other") == [(b"a", 1)]
    assert contents(broker) == [(b"a", 0), (b"a", 1)]
    broker.metadata.delete_topic("t")
    broker.runtime.run_turn()
    look(broker)
    assert broker.gauge("log_cleaner_uncleanable_partitions") == 0


@pytest.mark.parametrize(
    "error", [CompactionAbandonedError(), OSError(errno.ENOSPC, "full")], ids=["abandoned", "full"]
)
def test_what_may_be_better_next_time_is_tried_again(
    broker: BrokerHarness, rounds: Rounds, error: BaseException
) -> None:
    rounds.answer = error
    fill(broker, b"a", b"a")
    look(broker)
    assert broker.gauge("log_cleaner_uncleanable_partitions") == 0
    rounds.answer = None
    look(broker)
    assert contents(broker) == [(b"a", 1)]


def test_one_round_at_a_time(rounds: Rounds) -> None:
    broker = started()
    rounds.held = []
    for topic in ("t", "u"):
        create(broker, topic)
        fill(broker, b"a", b"a", topic=topic)
    broker.runtime.advance(5 * BACKOFF_MS)
    assert len(rounds.asked) == 1
    rounds.held[0].fail(CompactionAbandonedError())
    look(broker)
    assert len(rounds.asked) == 2


def test_a_round_that_ends_after_the_stop_starts_no_other(broker: BrokerHarness, rounds: Rounds) -> None:
    rounds.held = []
    fill(broker, b"a", b"a")
    look(broker)
    broker.stop()
    rounds.held[0].fail(CompactionAbandonedError())
    broker.runtime.advance(5 * BACKOFF_MS)
    assert len(rounds.asked) == 1


@pytest.mark.parametrize(
    ("setting", "policy", "compacts"),
    [
        ({"log.cleaner.enable": False}, "compact", True),
        ({"log.cleaner.threads": 0}, "compact", True),
        ({}, "delete", True),
        ({}, "compact", False),
    ],
    ids=["disabled", "no threads", "another policy", "a storage that can't"],
)
def test_a_log_that_is_not_to_be_compacted_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, rounds: Rounds, setting: dict[str, Any], policy: str, compacts: bool
) -> None:
    monkeypatch.setattr(MemoryStorage, "compacts", compacts)
    broker = compacting(setting, cleanup_policy=policy)
    fill(broker, b"a", b"a")
    look(broker)
    assert rounds.asked == []


def test_snapshots_of_segments_that_are_no_more_go(broker: BrokerHarness) -> None:
    for _ in range(3):
        fill(broker, b"a", b"a")
    log = with_segments(broker.hosted())
    assert [name for name in log.aux.names() if name.endswith(".snapshot")] != []
    look(broker)
    bases = {info.base_offset for info in log.segments()}
    snapshots = {int(name.partition(".")[0]) for name in log.aux.names() if name.endswith(".snapshot")}
    assert snapshots <= bases | {log.written_end_offset}


def test_many_logs_are_looked_at_a_few_at_a_time(rounds: Rounds) -> None:
    """On virtual time each log has a turn of its own."""
    broker = started()
    topics = [f"t{number}" for number in range(7)]
    for topic in topics:
        create(broker, topic)
        fill(broker, b"a", b"a", topic=topic)
    look(broker)
    assert {id(log) for log in rounds.logs} == {id(broker.hosted(topic).log) for topic in topics}
