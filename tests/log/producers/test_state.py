"""Producer state against a log that is read anew each time, and the rules that such a log doesn't know."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.log.producers.snapshot import CorruptSnapshot
from blumfeld.log.producers.state import Duplicate, ProducerState
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.batches.builder import build_empty_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from tests.everyday import examples
from tests.log.batches import data_batch, marker

LAST_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


def put(state: ProducerState, batch: RecordBatch) -> None:
    """Append and write it."""
    state.place(batch)
    state.written(batch.next_offset)


def with_one(sequence: int = 0, records: int = 1, **fields: bool) -> ProducerState:
    state = ProducerState()
    put(state, data_batch(0, 7, 1, sequence, records, **fields))
    return state


def refusal(state: ProducerState, batch: RecordBatch, transaction_version: int = 0) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        state.check(batch, transaction_version=transaction_version)
    return caught.value.code


def test_in_a_transaction_of_version_2_an_unknown_producer_begins_with_0() -> None:
    batch = data_batch(0, 7, 3, 12, transactional=True)
    assert refusal(ProducerState(), batch, transaction_version=2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert ProducerState().check(batch, transaction_version=1) is None


def test_an_open_transaction_admits_nothing_else_of_its_producer() -> None:
    state = with_one(transactional=True)
    assert refusal(state, data_batch(1, 7, 1, 1)) is ErrorCode.INVALID_TXN_STATE
    assert state.check(data_batch(1, 7, 1, 1, transactional=True)) is None
    assert state.has_open_transaction(7, 1)
    assert not state.has_open_transaction(7, 2)


def test_a_coordinators_own_records_have_no_sequence() -> None:
    state = with_one(transactional=True)
    own = data_batch(1, 7, 1, -1, transactional=True)
    assert state.check(own, from_client=False) is None
    put(state, own)
    assert state.check(data_batch(2, 7, 1, -1, transactional=True), from_client=False) is None


def test_the_stable_part_ends_at_the_oldest_transaction_until_its_marker_is_replicated() -> None:
    state = ProducerState()
    assert state.first_unstable_offset is None
    put(state, data_batch(5, 7, 1, 0, transactional=True))
    put(state, data_batch(6, 8, 1, 0, transactional=True))
    put(state, marker(7, 7, 1, committed=True))
    assert state.first_unstable_offset == 5
    state.high_watermark_moved(7)
    assert state.first_unstable_offset == 5
    state.high_watermark_moved(8)
    assert state.first_unstable_offset == 6


def test_an_abort_goes_to_the_index_when_its_marker_is_written() -> None:
    state = ProducerState()
    put(state, data_batch(5, 7, 1, 0, transactional=True))
    put(state, data_batch(6, 8, 1, 0, transactional=True))
    state.place(marker(7, 7, 1, committed=False))
    assert list(state.written(7)) == []
    assert list(state.written(8)) == [AbortedTransaction(7, 5, 7, 6)]
    state.place(marker(8, 8, 1, committed=False))
    assert list(state.written(9)) == [AbortedTransaction(8, 6, 8, 9)]


def emptied(batch: RecordBatch) -> RecordBatch:
    """The batch as the cleaner leaves it: a header without records."""
    return RecordBatch(memoryview(build_empty_batch(batch)))


def test_a_marker_that_the_cleaner_emptied_ends_nothing_and_still_fences() -> None:
    state = ProducerState()
    state.replay(emptied(marker(0, 7, 3, committed=True)))
    assert (state.first_unstable_offset, state.end_offset) == (None, 1)
    assert refusal(state, data_batch(1, 7, 2, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    put(state, data_batch(1, 7, 3, 0, transactional=True))
    state.place(emptied(marker(2, 7, 3, committed=False)))
    assert list(state.written(3)) == []
    assert state.has_open_transaction(7, 3)
    known = state.producer(7)
    state.place(emptied(marker(3, 7, 4, committed=False)))
    state.undo_placed(3)
    assert state.producer(7) is known


def test_an_undone_marker_leaves_its_transaction_open() -> None:
    state = with_one(transactional=True)
    state.place(marker(1, 7, 2, committed=False))
    state.undo_placed(1)
    assert state.first_unstable_offset == 0
    assert state.has_open_transaction(7, 1)
    state.place(marker(1, 7, 2, committed=False))
    assert list(state.written(2)) == [AbortedTransaction(7, 0, 1, 2)]


def test_a_transaction_undone_from_its_beginning_to_its_marker_never_was() -> None:
    state = ProducerState()
    state.place(data_batch(0, 7, 1, 0, transactional=True))
    state.place(marker(1, 7, 1, committed=True))
    state.undo_placed(0)
    assert (len(state), state.first_unstable_offset) == (0, None)


def test_markers_are_fenced_by_both_epochs() -> None:
    state = with_one(transactional=True)
    put(state, marker(1, 7, 1, committed=True, coordinator_epoch=5))
    for epoch, coordinator_epoch, code in [
        (0, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 4, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ]:
        with pytest.raises(BrokerError) as caught:
            state.check_marker(7, epoch, coordinator_epoch)
        assert caught.value.code is code
    state.check_marker(7, 1, 5)
    state.check_marker(99, 0, 0)


def test_a_marker_of_version_2_has_the_next_epoch_or_is_a_retry() -> None:
    state = with_one(transactional=True)
    with pytest.raises(BrokerError) as caught:
        state.check_marker(7, 1, 0, transaction_version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    state.check_marker(7, 2, 0, transaction_version=2)
    put(state, marker(1, 7, 2, committed=True))
    state.check_marker(7, 2, 0, transaction_version=2)
    assert state.check(data_batch(2, 7, 2, 0, transactional=True), transaction_version=2) is None


def test_who_is_silent_for_a_day_is_forgotten_unless_a_transaction_is_open() -> None:
    state = ProducerState()
    put(state, data_batch(0, 7, 1, 0, timestamp_ms=1_000))
    put(state, data_batch(1, 8, 1, 0, transactional=True, timestamp_ms=1_000))
    put(state, data_batch(2, 9, 1, 0, timestamp_ms=3 * DAY_MS))
    state.place(data_batch(3, 7, 1, 1, timestamp_ms=1_000))
    assert state.expire(1_000 + DAY_MS, DAY_MS) == 0
    assert state.expire(1_000 + 2 * DAY_MS, DAY_MS) == 0
    state.undo_placed(3)
    assert state.expire(1_000 + 2 * DAY_MS, DAY_MS) == 0
    assert state.expire(1_000 + 3 * DAY_MS, DAY_MS) == 1
    assert [entry.producer_id for entry in state.producers()] == [8, 9]


def test_who_writes_records_of_long_ago_is_known_while_it_writes() -> None:
    """Or what it sends again after a crash would be there twice."""
    state = ProducerState()
    for day in range(1, 5):
        put(state, data_batch(day, 7, 1, day, timestamp_ms=5))
        assert state.expire(100 * day * DAY_MS, DAY_MS) == 0
    assert state.check(data_batch(9, 7, 1, 4, timestamp_ms=5)) is not None
    assert state.expire(401 * DAY_MS, DAY_MS) == 1


def test_time_is_counted_on_the_records_after_a_snapshot() -> None:
    """As in Kafka: nothing in a snapshot says when we heard of it."""
    state = ProducerState()
    put(state, data_batch(0, 7, 1, 0, timestamp_ms=5))
    put(state, data_batch(1, 8, 1, 0, timestamp_ms=10 * DAY_MS))
    state.load(state.snapshot(2), 2)
    assert state.expire(10 * DAY_MS + 1, DAY_MS) == 1
    assert [entry.producer_id for entry in state.producers()] == [8]


def test_a_marker_counts_as_heard_of() -> None:
    state = ProducerState()
    put(state, data_batch(0, 7, 1, 0, transactional=True, timestamp_ms=5))
    put(state, marker(1, 7, 1, committed=True, timestamp_ms=DAY_MS))
    assert state.expire(5, DAY_MS) == 0
    assert state.expire(DAY_MS + 5, DAY_MS) == 0
    assert state.expire(2 * DAY_MS, DAY_MS) == 1


def test_a_truncation_above_the_last_producers_batch_changes_nothing() -> None:
    state = with_one()
    state.written(10)
    assert state.truncate_to(1)
    assert (len(state), state.end_offset) == (1, 1)


def test_a_truncation_below_it_asks_for_a_snapshot_and_replay() -> None:
    state = with_one()
    snapshot = state.snapshot(1)
    put(state, data_batch(1, 7, 1, 1))
    put(state, data_batch(2, 7, 1, 2))
    assert not state.truncate_to(2)
    assert (len(state), state.end_offset) == (0, 0)
    state.load(snapshot, 1)
    state.replay(data_batch(0, 7, 1, 0))
    state.replay(data_batch(1, 7, 1, 1))
    assert state.end_offset == 2
    assert state.check(data_batch(2, 7, 1, 2)) is None
    assert isinstance(state.check(data_batch(2, 7, 1, 0)), Duplicate)


def test_a_snapshot_in_the_middle_of_a_write_leaves_out_what_is_placed_behind_it() -> None:
    state = ProducerState()
    state.place(data_batch(0, 7, 1, 0))
    at_one = state.snapshot(1)
    state.place(data_batch(1, 7, 1, 1))
    state.place(data_batch(2, 8, 1, 0))
    assert state.snapshot(1) == at_one
    assert state.snapshot(3) != at_one
    state.written(3)
    with pytest.raises(ValueError, match="the state at offset 1 is gone"):
        state.snapshot(1)


def test_a_snapshot_that_cannot_be_read_changes_nothing() -> None:
    state = with_one()
    with pytest.raises(CorruptSnapshot):
        state.load(b"\0\1garbage", 5)
    assert (len(state), state.end_offset) == (1, 1)


def test_an_open_transaction_survives_a_snapshot() -> None:
    state = with_one(transactional=True)
    state.load(state.snapshot(1), 1)
    assert state.first_unstable_offset == 0


class Item(NamedTuple):
    """One batch of the model's log."""

    batch: RecordBatch
    committed: bool | None
    """None: data."""

    @property
    def opens(self) -> bool:
        return self.committed is None and self.batch.is_transactional


class Model:
    """The rules, read off the whole log each time."""

    def __init__(self) -> None:
        self.log: list[Item] = []
        self.written_end = 0
        self.high_watermark = 0

    @property
    def end(self) -> int:
        return self.log[-1].batch.next_offset if self.log else 0

    def mine(self, producer_id: int) -> list[Item]:
        return [item for item in self.log if item.batch.producer_id == producer_id]

    def run(self, producer_id: int) -> list[RecordBatch]:
        """Data batches since the producer's epoch last changed."""
        run_batches: list[RecordBatch] = []
        epoch = None
        for item in self.mine(producer_id):
            if item.batch.producer_epoch != epoch:
                epoch, run_batches = item.batch.producer_epoch, []
            if item.committed is None:
                run_batches.append(item.batch)
        return run_batches

    def open_since(self, producer_id: int) -> int | None:
        start = None
        for item in self.mine(producer_id):
            if item.committed is not None:
                start = None
            elif start is None and item.opens:
                start = item.batch.base_offset
        return start

    def expected(self, batch: RecordBatch) -> ErrorCode | Duplicate | None:
        mine, run = self.mine(batch.producer_id), self.run(batch.producer_id)
        if not mine:
            return None
        epoch = mine[-1].batch.producer_epoch
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch == epoch:
            for old in run[-5:]:
                if (old.base_sequence, old.record_count) == (batch.base_sequence, batch.record_count):
                    placed = old.last_offset >= self.written_end
                    return Duplicate(old.base_offset, old.last_offset, old.max_timestamp, placed)
        following = 0
        if batch.producer_epoch == epoch and run:
            following = (run[-1].base_sequence + run[-1].record_count) % 2**31
        if batch.base_sequence != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since(batch.producer_id) is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def first_unstable(self) -> int | None:
        """The first offset of a transaction that is open, or whose marker isn't below the high watermark."""
        starts: dict[int, int] = {}
        unstable = []
        for item in self.log:
            producer_id = item.batch.producer_id
            if item.opens:
                starts.setdefault(producer_id, item.batch.base_offset)
            elif item.committed is not None and producer_id in starts:
                start = starts.pop(producer_id)
                if item.batch.last_offset >= self.high_watermark:
                    unstable.append(start)
        return min([*unstable, *starts.values()], default=None)

    def aborted(self) -> list[tuple[int, int, int]]:
        starts: dict[int, int] = {}
        transactions = []
        for item in self.log:
            producer_id = item.batch.producer_id
            if item.opens:
                starts.setdefault(producer_id, item.batch.base_offset)
            elif item.committed is not None and producer_id in starts:
                start = starts.pop(producer_id)
                if not item.committed and item.batch.last_offset < self.written_end:
                    transactions.append((producer_id, start, item.batch.last_offset))
        return transactions


producers = st.integers(1, 2)
step = st.one_of(
    st.tuples(
        st.just("data"),
        producers,
        st.integers(0, 2),
        st.sampled_from(["next", "next", "next", "again", "zero", "late"]),
        st.integers(1, 3),
        st.booleans(),
    ),
    st.tuples(st.just("marker"), producers, st.integers(0, 1), st.booleans()),
    st.tuples(st.just("write"), st.integers(0, 4)),
    st.tuples(st.just("high watermark"), st.integers(0, 3)),
    st.tuples(st.just("reload")),
)


class Run:
    """Model and state side by side, through the same steps."""

    def __init__(self) -> None:
        self.model, self.state = Model(), ProducerState()
        self.aborted: list[AbortedTransaction] = []

    def take(self, step: tuple[object, ...]) -> None:
        match step:
            case ("data", int(producer), int(epoch_delta), str(kind), int(records), bool(transactional)):
                self.data(producer, epoch_delta, kind, records, transactional)
            case ("marker", int(producer), int(epoch_delta), bool(committed)):
                self.marker(producer, epoch_delta, committed)
            case ("write", int(lost)):
                self.write(lost)
            case ("high watermark", int(behind)):
                self.model.high_watermark = max(self.model.high_watermark, self.model.written_end - behind)
                self.state.high_watermark_moved(self.model.high_watermark)
            case _:
                self.reload()

    def data(self, producer: int, epoch_delta: int, kind: str, records: int, transactional: bool) -> None:
        mine, run = self.model.mine(producer), self.model.run(producer)
        epoch = max(0, (mine[-1].batch.producer_epoch if mine else 1) + epoch_delta % 2 - epoch_delta // 2)
        start = 2**31 - 4 if not mine else 0
        following = (run[-1].base_sequence + run[-1].record_count) % 2**31 if run else start
        if kind == "again" and run:
            old = run[-min(len(run), records * 2)]
            following, records = old.base_sequence, old.record_count
        sequence = {"zero": 0, "late": following + 1}.get(kind, following) % 2**31
        batch = data_batch(self.model.end, producer, epoch, sequence, records, transactional=transactional)
        expected = self.model.expected(batch)
        try:
            verdict: object = self.state.check(batch)
        except BrokerError as error:
            verdict = error.code
        assert verdict == expected
        if expected is None:
            self.state.place(batch)
            self.model.log.append(Item(batch, None))

    def marker(self, producer: int, epoch_delta: int, committed: bool) -> None:
        mine = self.model.mine(producer)
        epoch = (mine[-1].batch.producer_epoch if mine else 0) + epoch_delta
        batch = marker(self.model.end, producer, epoch, committed=committed)
        self.state.place(batch)
        self.model.log.append(Item(batch, committed))

    def write(self, lost: int) -> None:
        """A write that fails for the last ``lost`` batches of the turn."""
        placed = [item for item in self.model.log if item.batch.base_offset >= self.model.written_end]
        if lost and placed:
            end = placed[-min(lost, len(placed))].batch.base_offset
            self.aborted += self.state.written(end)
            self.state.undo_placed(end)
            self.model.log = [item for item in self.model.log if item.batch.base_offset < end]
        self.model.written_end = self.model.end
        self.aborted += self.state.written(self.model.end)

    def reload(self) -> None:
        """A snapshot at the written end knows what a replay of the written batches knows, but for five batches."""
        replayed = ProducerState()
        for item in self.model.log:
            if item.batch.base_offset < self.model.written_end:
                replayed.replay(item.batch)
        assert self.state.snapshot(self.model.written_end) == replayed.snapshot(self.model.written_end)
        assert replayed.end_offset == self.model.written_end

    def compare(self) -> None:
        model, state = self.model, self.state
        assert state.first_unstable_offset == model.first_unstable()
        assert [(a.producer_id, a.first_offset, a.last_offset) for a in self.aborted] == model.aborted()
        for producer in (1, 2):
            entry = state.producer(producer)
            assert (entry is None) == (not model.mine(producer))
            if entry is not None:
                assert [b.base_offset for b in entry.batches] == [
                    b.base_offset for b in model.run(producer)[-5:]
                ]
                assert (entry.txn_first_offset if entry.txn_first_offset >= 0 else None) == model.open_since(
                    producer
                )


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(step, max_size=30))
def test_it_agrees_with_a_log_that_is_read_anew_each_time(steps: list[tuple[object, ...]]) -> None:
    run = Run()
    for action in steps:
        run.take(action)
        run.compare()
