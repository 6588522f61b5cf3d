"""The catalog of a partition's remote segments: each record of the present history is served, and no other one."""

from __future__ import annotations

import random

import pytest

from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.steps import drained
from blumfeld.wire.primitives import DecodeError
from blumfeld_storage_tiered.catalog.catalog import (
    CatalogError,
    IllegalTransitionError,
    RemoteLogCatalog,
    UnknownSegmentError,
)
from blumfeld_storage_tiered.catalog.segment import (
    Change,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    TopicIdPartition,
)
from tests.plugins.storage_tiered.catalog.history import (
    AT,
    entries_of,
    grown_log,
    remote_segment,
    update,
)

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED
ONE_EPOCH = [0] * 300


def finished(catalog: RemoteLogCatalog, segment: RemoteSegment) -> RemoteSegment:
    catalog.apply(segment)
    catalog.apply(update(segment, FINISHED))
    return segment


def life(segment: RemoteSegment) -> list[Change]:
    return [segment, *(update(segment, state) for state in (FINISHED, DELETING, DELETED))]


def catalog_of(*segments: RemoteSegment) -> RemoteLogCatalog:
    catalog = RemoteLogCatalog(AT)
    for segment in segments:
        finished(catalog, segment)
    return catalog


# States


def test_a_segment_serves_from_the_end_of_its_copy_to_the_begin_of_its_deletion() -> None:
    catalog, segment = RemoteLogCatalog(AT), remote_segment(ONE_EPOCH, 0, 10, 1)
    epochs = entries_of(ONE_EPOCH)
    served = []
    for change in life(segment):
        catalog.apply(change)
        served.append((catalog.find(5, epochs) is not None, len(catalog.unfinished())))
    assert served == [(False, 1), (True, 0), (False, 1), (False, 0)]
    assert len(catalog) == 0


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ((), FINISHED),
        ((), DELETING),
        ((STARTED,), DELETED),
        ((STARTED, FINISHED), STARTED),
        ((STARTED, FINISHED), DELETED),
        ((STARTED, DELETING), FINISHED),
        ((STARTED, FINISHED, DELETING), FINISHED),
        ((STARTED, FINISHED, DELETING), STARTED),
    ],
)
def test_a_state_that_cannot_follow_is_refused(before: tuple[SegmentState, ...], then: SegmentState) -> None:
    catalog, segment = RemoteLogCatalog(AT), remote_segment(ONE_EPOCH, 0, 10, 1)
    for state in before:
        catalog.apply(segment if state is STARTED else update(segment, state))
    kept = drained(catalog.snapshot())
    with pytest.raises(
        IllegalTransitionError if before or then is STARTED else UnknownSegmentError
    ) as refusal:
        catalog.apply(segment if then is STARTED else update(segment, then))
    assert segment.segment_id.hex() in str(refusal.value)
    assert drained(catalog.snapshot()) == kept


def test_the_same_record_again_changes_nothing() -> None:
    catalog, segment = RemoteLogCatalog(AT), remote_segment(ONE_EPOCH, 0, 10, 1)
    for change in (segment, update(segment, FINISHED), update(segment, DELETING)):
        catalog.apply(change)
        kept = drained(catalog.snapshot())
        catalog.apply(change)
        assert drained(catalog.snapshot()) == kept


def test_a_record_of_another_partition_is_refused() -> None:
    catalog = RemoteLogCatalog(TopicIdPartition(AT.topic_id, 1, "ticks"))
    with pytest.raises(CatalogError, match="in the catalog of"):
        catalog.apply(remote_segment(ONE_EPOCH, 0, 10, 1))


def test_the_deletion_of_a_partition_goes_on_in_order() -> None:
    catalog = RemoteLogCatalog(AT)

    def delete(state: PartitionDeleteState) -> None:
        catalog.apply(PartitionDelete(partition=AT, broker_id=1, event_timestamp_ms=0, state=state))

    with pytest.raises(IllegalTransitionError):
        delete(PartitionDeleteState.STARTED)
    for state in PartitionDeleteState:
        delete(state)
        delete(state)
        assert catalog.delete_state is state
    with pytest.raises(IllegalTransitionError):
        delete(PartitionDeleteState.MARKED)


# Look-ups


def test_a_segment_that_goes_over_into_a_history_that_was_given_up_is_read_up_to_there() -> None:
    old = [1] * 100
    catalog = catalog_of(remote_segment(old, 0, 100, 1))
    now = [1] * 50 + [2] * 50
    served = catalog.find(30, entries_of(now))
    assert served is not None
    assert (served.start_offset, served.end_offset) == (30, 50)
    assert catalog.find(60, entries_of(now)) is None
    assert catalog.lookup(1, 60) is not None  # Kafka's look-up, which names the epoch


def test_a_segment_inside_another_one_serves_nothing_until_that_one_goes() -> None:
    small, large = remote_segment(ONE_EPOCH, 10, 90, 1), remote_segment(ONE_EPOCH, 5, 100, 2)
    epochs = entries_of(ONE_EPOCH)
    for order in ((small, large), (large, small)):
        catalog = catalog_of(*order)
        served = catalog.find(95, epochs)
        assert served is not None
        assert served.segment.segment_id == large.segment_id
        assert catalog.size_bytes(epochs) == 100
        catalog.apply(update(large, DELETING))
        served = catalog.find(50, epochs)
        assert served is not None
        assert served.segment.segment_id == small.segment_id


def test_the_copied_end_counts_what_expired_and_the_served_end_does_not() -> None:
    segments = [remote_segment(ONE_EPOCH, start, start + 100, start) for start in (0, 100, 200)]
    catalog, epochs = catalog_of(*segments), entries_of(ONE_EPOCH)
    assert (catalog.copied_end_offset(epochs, 300), catalog.served_end_offset(0, epochs)) == (300, 300)
    catalog.apply(update(segments[1], DELETING))
    assert (catalog.copied_end_offset(epochs, 300), catalog.served_end_offset(0, epochs)) == (300, 100)
    assert catalog.served_end_offset(200, epochs) == 300
    assert catalog.start_offset(epochs) == 0


def test_the_copied_end_is_that_of_the_newest_epoch_with_a_copy() -> None:
    catalog = catalog_of(remote_segment([1] * 100, 0, 100, 1))
    assert catalog.copied_end_offset((EpochEntry(1, 0), EpochEntry(2, 150)), 200) == 100
    assert catalog.copied_end_offset((EpochEntry(1, 0), EpochEntry(2, 50)), 200) == 50
    assert catalog.copied_end_offset((EpochEntry(2, 0),), 200) == 0
    assert catalog.copied_end_offset((EpochEntry(1, 0),), 80) == 80


# Random histories, against a model that looks at every record


class World:
    """A catalog, and beside it the records of each segment, one by one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.catalog = RemoteLogCatalog(AT)
        self.records: dict[bytes, set[tuple[int, int]]] = {}
        """Segments that are finished → their records, as epoch and offset."""
        self.with_transactions: set[bytes] = set()
        self.logs: list[list[int]] = [[]]
        self.known: list[RemoteSegment] = []

    def step(self) -> None:
        chance = self.chance
        kind = chance.randrange(10)
        if kind < 2:
            self.logs.append(grown_log(chance, chance.choice(self.logs), len(self.logs)))
        elif kind < 8:
            log = chance.choice(self.logs[-3:])
            if log:
                self.copy(log)
        elif self.known:
            self.delete(self.known.pop(chance.randrange(len(self.known))))

    def copy(self, log: list[int]) -> None:
        start = self.chance.randrange(len(log))
        end = min(len(log), start + 1 + self.chance.randrange(25))
        empty = self.chance.random() < 0.8
        segment = remote_segment(log, start, end, self.chance.randrange(1 << 60), txn_index_empty=empty)
        self.catalog.apply(segment)
        self.known.append(segment)
        if self.chance.random() < 0.85:
            self.catalog.apply(update(segment, FINISHED))
            self.records[segment.segment_id] = {(log[offset], offset) for offset in range(start, end)}
            if not empty:
                self.with_transactions.add(segment.segment_id)

    def delete(self, segment: RemoteSegment) -> None:
        self.records.pop(segment.segment_id, None)
        self.catalog.apply(update(segment, DELETING))
        if self.chance.random() < 0.5:
            self.catalog.apply(update(segment, DELETED))

    def check(self, log: list[int]) -> None:
        epochs = entries_of(log)
        held = set().union(*self.records.values()) if self.records else set()
        read = set()
        for served in self.catalog.lineage(epochs):
            mine = self.records[served.segment.segment_id]
            for offset in range(served.start_offset, min(served.end_offset, len(log))):
                assert offset not in read, "an offset is served twice"
                assert (log[offset], offset) in mine, "a record of another history is served"
                read.add(offset)
        assert read == {offset for offset, epoch in enumerate(log) if (epoch, offset) in held}
        for offset, epoch in enumerate(log):
            served_segment = self.catalog.find(offset, epochs)
            assert (served_segment is not None) == ((epoch, offset) in held)
        self.check_transactions(log, held)
        self.check_size(log)

    def check_transactions(self, log: list[int], held: set[tuple[int, int]]) -> None:
        with_transactions = set().union(set(), *(self.records.get(s, set()) for s in self.with_transactions))
        epochs = entries_of(log)
        for at in range(len(log)):
            next_segment = self.catalog.next_with_transactions(at, epochs)
            wanted = next((o for o in range(at, len(log)) if (log[o], o) in with_transactions), None)
            assert (next_segment is None) == (wanted is None) or self.hidden()
            if next_segment is not None and wanted is not None and not self.hidden():
                assert (log[wanted], wanted) in self.records[next_segment.segment_id]

    def hidden(self) -> bool:
        """Whether a segment lies inside another one: here one of them may have transactions and the other none."""
        sets = list(self.records.values())
        return any(a < b or (a is not b and a & b) for a in sets for b in sets)

    def check_size(self, log: list[int]) -> None:
        mine = {(epoch, offset) for offset, epoch in enumerate(log)}
        least = len({s.segment.segment_id for s in self.catalog.lineage(entries_of(log))})
        if log:  # the catalog doesn't know where a log ends
            mine |= {(log[-1], offset) for offset in range(len(log), 1000)}
        most = sum(bool(records & mine) for records in self.records.values())
        assert least * 100 <= self.catalog.size_bytes(entries_of(log)) <= most * 100


@pytest.mark.parametrize("seed", range(60))
def test_every_record_that_a_history_has_in_the_store_is_served_once(seed: int) -> None:
    world = World(seed)
    for number in range(120):
        world.step()
        if number % 10 == 0:
            for log in world.logs[-3:]:
                world.check(log)


@pytest.mark.parametrize("seed", range(10))
def test_a_catalog_is_the_same_after_a_snapshot(seed: int) -> None:
    world = World(seed)
    for _ in range(100):
        world.step()
    data = drained(world.catalog.snapshot())
    world.catalog = drained(RemoteLogCatalog.restore(data))
    assert drained(world.catalog.snapshot()) == data
    for log in world.logs:
        world.check(log)
    for _ in range(50):
        world.step()
    world.check(world.logs[-1])


def test_a_snapshot_keeps_what_was_copied_and_expired() -> None:
    catalog, segment = RemoteLogCatalog(AT), remote_segment(ONE_EPOCH, 0, 100, 1)
    for change in life(segment):
        catalog.apply(change)
    catalog.apply(
        PartitionDelete(partition=AT, broker_id=1, event_timestamp_ms=0, state=PartitionDeleteState.MARKED)
    )
    restored = drained(RemoteLogCatalog.restore(drained(catalog.snapshot())))
    assert restored.copied_end_offset(entries_of(ONE_EPOCH), 300) == 100
    assert restored.delete_state is PartitionDeleteState.MARKED
    assert restored.partition == AT


@pytest.mark.parametrize("cut", [5, 60, -1])
def test_a_snapshot_that_is_cut_is_refused(cut: int) -> None:
    data = drained(catalog_of(remote_segment(ONE_EPOCH, 0, 100, 1)).snapshot())
    with pytest.raises(DecodeError):
        drained(RemoteLogCatalog.restore(data[:cut]))
    with pytest.raises(DecodeError, match="behind the snapshot"):
        drained(RemoteLogCatalog.restore(data + b"x"))
