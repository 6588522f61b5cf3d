"""Plans of copies, local drops and expiry: by example as in Kafka, then over random lives of a partition."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import pairwise

import pytest
from msgspec.structs import replace

from blumfeld.log.segments.rules import RetentionLimits, plan_retention
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.object_store import ObjectInfo
from blumfeld.spi.steps import drained
from blumfeld.spi.storage import SegmentInfo
from blumfeld_storage_tiered.catalog.catalog import CatalogError, RemoteLogCatalog
from blumfeld_storage_tiered.catalog.copy_pace import CopyPace
from blumfeld_storage_tiered.catalog.plans import (
    Expiration,
    epochs_between,
    log_start_of_leader,
    plan_copies,
    plan_expiration,
    plan_partition_delete,
    plan_sweep,
)
from blumfeld_storage_tiered.catalog.segment import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
)
from tests.plugins.storage_tiered.catalog.history import AT, entries_of, remote_segment, update

STARTED, FINISHED = SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED
DELETING, DELETED = SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED
GRACE_MS = 1000


def local(*bases: int, size_bytes: int = 100, time_ms: int = 0) -> list[SegmentInfo]:
    """Segments that begin at these offsets; the last of them is the end of the active one."""
    return [
        SegmentInfo(
            base_offset=base,
            next_offset=following,
            size_bytes=size_bytes,
            max_timestamp_ms=time_ms,
            created_ms=0,
            modified_ms=0,
            sealed=following != bases[-1],
            files=(),
        )
        for base, following in pairwise(bases)
    ]


def copies(segments: list[SegmentInfo], stable: int, copied: int, start: int = 0) -> list[int]:
    chosen = plan_copies(
        segments, last_stable_offset=stable, copied_end_offset=copied, log_start_offset=start
    )
    return [segment.base_offset for segment in chosen]


def test_what_is_sealed_and_below_the_last_stable_offset_is_copied() -> None:
    segments = local(0, 10, 20, 30, 40)
    assert copies(segments, stable=40, copied=0) == [0, 10, 20]
    assert copies(segments, stable=30, copied=0) == [0, 10, 20]
    assert copies(segments, stable=29, copied=0) == [0, 10]
    assert copies(segments, stable=40, copied=20) == [20]
    assert copies(segments, stable=40, copied=30) == []


def test_a_segment_across_the_copied_end_or_the_log_start_is_copied_whole() -> None:
    segments = local(0, 10, 20, 30, 40)
    assert copies(segments, stable=40, copied=15) == [10, 20]
    assert copies(segments, stable=40, copied=0, start=15) == [10, 20]
    assert copies(segments, stable=40, copied=0, start=20) == [20]


def test_the_epochs_of_a_segment_begin_where_it_does() -> None:
    epochs = (EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(4, 20))
    assert epochs_between(epochs, 5, 20) == (EpochEntry(1, 5), EpochEntry(3, 10))
    assert epochs_between(epochs, 10, 11) == (EpochEntry(3, 10),)
    assert epochs_between(epochs, 25, 30) == (EpochEntry(4, 25),)


# Expiry


def catalog_of(*segments: RemoteSegment) -> RemoteLogCatalog:
    catalog = RemoteLogCatalog(AT)
    for segment in segments:
        catalog.apply(segment)
        catalog.apply(update(segment, FINISHED))
    return catalog


def expiration(
    catalog: RemoteLogCatalog,
    epochs: tuple[EpochEntry, ...],
    start: int = 0,
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    local_only_bytes: int = 0,
    now_ms: int = 0,
    high_watermark: int = 1000,
    busy: tuple[bytes, ...] = (),
) -> Expiration:
    return plan_expiration(
        catalog,
        epochs,
        RetentionLimits(retention_ms=retention_ms, retention_bytes=retention_bytes),
        log_start_offset=start,
        high_watermark=high_watermark,
        local_only_bytes=local_only_bytes,
        now_ms=now_ms,
        grace_ms=GRACE_MS,
        busy=busy,
    )


def starts(plan: Expiration) -> list[int]:
    return [doomed.segment.start_offset for doomed in plan.segments]


ONE = [1] * 40
EPOCHS = entries_of(ONE)
FOUR = [remote_segment(ONE, start, start + 10, start + 1, time_ms=start * 100) for start in (0, 10, 20, 30)]


def test_segments_expire_by_time_from_the_oldest_on() -> None:
    plan = expiration(catalog_of(*FOUR), EPOCHS, retention_ms=500, now_ms=2000)
    assert (plan.log_start_offset, starts(plan)) == (20, [0, 10])
    assert {doomed.reason for doomed in plan.segments} == {"retention.ms"}


def test_segments_expire_by_size_with_what_only_the_local_log_has() -> None:
    plan = expiration(catalog_of(*FOUR), EPOCHS, retention_bytes=250, local_only_bytes=60)
    assert (plan.log_start_offset, starts(plan)) == (20, [0, 10])
    assert expiration(catalog_of(*FOUR), EPOCHS, retention_bytes=450, local_only_bytes=50).segments == ()


def test_a_segment_below_the_log_start_goes() -> None:
    plan = expiration(catalog_of(*FOUR), EPOCHS, 20)
    assert (plan.log_start_offset, starts(plan)) == (20, [0, 10])
    assert expiration(catalog_of(*FOUR), EPOCHS, 19).segments[-1].segment.start_offset == 0


def test_a_segment_of_older_epochs_than_the_log_goes() -> None:
    catalog = catalog_of(remote_segment([0] * 50, 0, 50, 99), *FOUR)
    plan = expiration(catalog, EPOCHS)
    assert [doomed.segment.leader_epochs[0].epoch for doomed in plan.segments] == [0]


def test_a_segment_with_a_later_epoch_than_the_log_stays() -> None:
    catalog = catalog_of(remote_segment([0] * 10 + [5] * 10, 0, 20, 99), *FOUR)
    assert expiration(catalog, EPOCHS).segments == ()


def test_a_segment_that_is_wanted_above_the_high_watermark_stays() -> None:
    plan = expiration(catalog_of(*FOUR), EPOCHS, retention_ms=500, now_ms=9000, high_watermark=25)
    assert plan.log_start_offset == 20


def test_what_was_left_behind_goes_after_its_grace_time() -> None:
    catalog = RemoteLogCatalog(AT)
    copying, deleting = FOUR[0], FOUR[1]
    for change in (copying, deleting, update(deleting, DELETING)):
        catalog.apply(change)
    assert starts(expiration(catalog, EPOCHS, now_ms=GRACE_MS - 1)) == [10]
    assert starts(expiration(catalog, EPOCHS, now_ms=GRACE_MS)) == [0, 10]
    assert starts(expiration(catalog, EPOCHS, now_ms=GRACE_MS, busy=(copying.segment_id,))) == [10]
    assert starts(expiration(catalog, (), now_ms=GRACE_MS)) == [0, 10]


def test_a_partition_is_deleted_step_by_step() -> None:
    catalog = catalog_of(FOUR[0])
    catalog.apply(FOUR[1])
    assert plan_partition_delete(catalog) == ((), None)

    def write(state: PartitionDeleteState) -> None:
        catalog.apply(PartitionDelete(partition=AT, broker_id=1, event_timestamp_ms=0, state=state))

    write(PartitionDeleteState.MARKED)
    assert plan_partition_delete(catalog).write is PartitionDeleteState.STARTED
    write(PartitionDeleteState.STARTED)
    segments, state = plan_partition_delete(catalog)
    assert ([segment.start_offset for segment in segments], state) == ([0, 10], None)
    for segment in segments:
        catalog.apply(update(segment, DELETING))
        catalog.apply(update(segment, DELETED))
    assert plan_partition_delete(catalog).write is PartitionDeleteState.FINISHED
    write(PartitionDeleteState.FINISHED)
    assert plan_partition_delete(catalog) == ((), None)


def test_an_object_without_a_record_is_an_orphan_after_the_grace_time() -> None:
    known, unknown = FOUR[0].segment_id, b"u" * 16
    old, young = ObjectInfo("old", 1, 0), ObjectInfo("young", 1, 1)
    listed = [(old, known), (old, unknown), (young, unknown), (old, None)]
    sweep = plan_sweep(listed, catalog_of(FOUR[0]), now_ms=GRACE_MS, grace_ms=GRACE_MS)
    assert (sweep.orphans, sweep.strangers) == ((old,), (old,))


def test_an_object_that_is_older_than_all_records_is_no_orphan() -> None:
    """The metadata topic was deleted, and made again: what it said of older segments is lost."""
    before, after = ObjectInfo("before", 1, 999), ObjectInfo("after", 1, 1000)
    listed = [(before, b"b" * 16), (after, b"a" * 16)]
    catalog = RemoteLogCatalog(AT)
    sweep = plan_sweep(listed, catalog, now_ms=9000, grace_ms=GRACE_MS)
    assert (sweep.orphans, sweep.unexplained) == ((), (before, after))
    catalog.apply(replace(FOUR[0], event_timestamp_ms=1000))
    catalog = drained(RemoteLogCatalog.restore(drained(catalog.snapshot())))
    sweep = plan_sweep(listed, catalog, now_ms=9000, grace_ms=GRACE_MS)
    assert (sweep.orphans, sweep.unexplained) == ((after,), (before,))


# The pace of copies


@pytest.mark.parametrize("seed", range(20))
def test_no_more_bytes_go_in_any_span_than_the_limit_and_one_segment_allow(seed: int) -> None:
    chance = random.Random(seed)
    pace, now, went = CopyPace(1000, 500), 10_000.0, []
    for _ in range(200):
        size = chance.randrange(1, 2000)
        now = pace.ready_at(now + chance.choice((0, 0, 300)), size)
        went.append((now, size))
    for first in range(len(went)):
        total = 0
        for at, size in went[first:]:
            total += size
            assert total - size <= (at - went[first][0]) + 500 + 1e-6, "before the last segment began"


# Random lives


class Replica:
    """A node's replica: all records that its log ever had, and where the local part begins."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.local_start = 0
        self.log_start = 0
        self.bounds: list[int] = []
        """Ends of sealed segments."""

    def segments(self) -> list[SegmentInfo]:
        inside = [bound for bound in self.bounds if self.local_start < bound < len(self.log)]
        if self.local_start == len(self.log):
            return []
        return local(self.local_start, *inside, len(self.log))

    def epochs(self) -> tuple[EpochEntry, ...]:
        return entries_of(self.log, self.log_start)

    def cut(self, end: int) -> None:
        del self.log[end:]
        self.bounds = [bound for bound in self.bounds if bound <= end]
        self.local_start = min(self.local_start, end)


class Life:
    """Three nodes with one partition, the records of its remote metadata, and what the store holds."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes = [Replica() for _ in range(3)]
        self.leader = 0
        self.epoch = 0
        self.catalog = RemoteLogCatalog(AT)
        self.store: dict[bytes, set[tuple[int, int]]] = {}
        self.late: list[RemoteSegment] = []
        """Copies whose last step is still to come, perhaps from a leader that was replaced."""
        self.now_ms = 0
        self.numbers = 0

    @property
    def led(self) -> Replica:
        return self.nodes[self.leader]

    def step(self) -> None:
        self.now_ms += self.chance.randrange(200)
        actions = (self.produce, self.produce, self.follow, self.copy, self.copy, self.late_end)
        more = (self.drop, self.drop, self.expire, self.elect, self.delete_records, self.sweep)
        self.chance.choice((*actions, *more))()
        self.check()

    def produce(self) -> None:
        led = self.led
        led.log += [self.epoch] * self.chance.randrange(1, 8)
        if self.chance.random() < 0.8:
            led.bounds.append(len(led.log))

    def follow(self) -> None:
        """A follower fetches some of the leader's log; one behind the local start begins there."""
        led, node = self.led, self.chance.choice(self.nodes)
        if node is led:
            return
        self.truncate(node, led)
        if len(node.log) < led.local_start:
            node.log, node.local_start, node.bounds = led.log[: led.local_start], led.local_start, []
        end = min(len(led.log), len(node.log) + self.chance.randrange(12))
        node.log += led.log[len(node.log) : end]
        node.bounds = [bound for bound in led.bounds if bound <= end]

    def committed(self) -> int:
        """What a leader takes for committed: with an ISR of its own it is all that it has."""
        return len(self.led.log)

    def elect(self) -> None:
        """Any node may lead, also one that lacks what was committed, and even copied."""
        before, self.leader = self.led, self.chance.randrange(len(self.nodes))
        self.truncate(self.led, before)  # it followed, but perhaps took nothing
        self.epoch += 1
        led = self.led
        led.log_start = log_start_of_leader(
            self.catalog,
            entries_of(led.log, min(led.log_start, len(led.log))),
            log_start_offset=min(led.log_start, len(led.log)),
            local_start_offset=led.local_start,
        )

    def truncate(self, node: Replica, led: Replica) -> None:
        both = zip(node.log, led.log, strict=False)
        agree = next((at for at, (a, b) in enumerate(both) if a != b), min(len(node.log), len(led.log)))
        node.cut(agree)
        node.log_start = led.log_start

    def copied_end(self, node: Replica) -> int:
        start = max(node.local_start, node.log_start)
        return min(self.catalog.served_end_offset(start, node.epochs()), len(node.log))

    def copy(self) -> None:
        led = self.led
        planned = plan_copies(
            led.segments(),
            last_stable_offset=self.committed(),
            copied_end_offset=self.copied_end(led),
            log_start_offset=led.log_start,
        )
        for segment in planned[: self.chance.randrange(3)]:
            assert segment.base_offset >= led.local_start
            self.numbers += 1
            remote = remote_segment(
                led.log, segment.base_offset, segment.next_offset, self.numbers, time_ms=self.now_ms
            )
            self.catalog.apply(remote)
            if self.chance.random() < 0.2:
                return  # the node died
            self.store[remote.segment_id] = {
                (led.log[offset], offset) for offset in range(segment.base_offset, segment.next_offset)
            }
            if self.chance.random() < 0.3:
                self.late.append(remote)
                return
            self.catalog.apply(update(remote, FINISHED, self.now_ms))

    def late_end(self) -> None:
        if self.late:
            late = self.late.pop(self.chance.randrange(len(self.late)))
            if late.segment_id in self.store:
                with suppress(CatalogError):  # where it was taken for a copy that was never finished
                    self.catalog.apply(update(late, FINISHED, self.now_ms))

    def drop(self) -> None:
        node = self.chance.choice(self.nodes)
        plan = plan_retention(
            node.segments(),
            RetentionLimits(retention_ms=-1, retention_bytes=self.chance.choice((0, 150, 400))),
            copied_end_offset=self.copied_end(node),
            log_start_offset=node.log_start,
            high_watermark=len(node.log),
            now_ms=self.now_ms,
        )
        if plan.segments and not plan.roll:
            node.local_start = max(node.local_start, plan.end_offset)

    def expire(self) -> None:
        led = self.led
        plan = plan_expiration(
            self.catalog,
            entries_of(led.log, min(led.log_start, len(led.log))),
            RetentionLimits(
                retention_ms=self.chance.choice((-1, 3000)), retention_bytes=self.chance.choice((-1, 2000))
            ),
            log_start_offset=led.log_start,
            high_watermark=self.committed(),
            local_only_bytes=100,
            now_ms=self.now_ms,
            grace_ms=GRACE_MS,
        )
        assert plan.log_start_offset >= led.log_start
        led.log_start = plan.log_start_offset
        led.local_start = max(led.local_start, min(led.log_start, len(led.log)))
        for segment, _ in plan.segments:
            if segment.state is not DELETING:
                self.catalog.apply(update(segment, DELETING, self.now_ms))
            if self.chance.random() < 0.2:
                return  # the node died
            self.store.pop(segment.segment_id, None)
            self.catalog.apply(update(segment, DELETED, self.now_ms))

    def delete_records(self) -> None:
        if self.chance.random() < 0.2:
            led = self.led
            led.log_start = self.chance.randrange(led.log_start, len(led.log) + 1)

    def sweep(self) -> None:
        listed = [(ObjectInfo(str(number), 1, 0), number) for number in self.store]
        sweep = plan_sweep(listed, self.catalog, now_ms=self.now_ms, grace_ms=GRACE_MS)
        assert sweep.orphans == (), "an object is deleted before its record says DELETE_FINISHED"

    def check(self) -> None:
        """The leader serves each record from its log start on: from the store, or from its disk."""
        led, epochs = self.led, self.led.epochs()
        at = led.log_start
        while at < led.local_start:
            served = self.catalog.find(at, epochs)
            assert served is not None, f"offset {at} is neither local nor in the store"
            held = self.store[served.segment.segment_id]
            end = min(served.end_offset, len(led.log))
            assert all((led.log[offset], offset) in held for offset in range(at, end))
            at = end


@pytest.mark.parametrize("seed", range(40))
def test_each_record_of_the_present_history_is_local_or_in_the_store(seed: int) -> None:
    life = Life(seed)
    for _ in range(250):
        life.step()
    assert life.numbers, "nothing was copied"


def test_a_new_leader_begins_where_the_store_does() -> None:
    catalog = catalog_of(*FOUR[1:])
    for start, local_start, wanted in ((0, 40, 10), (15, 40, 15), (0, 5, 5), (20, 10, 20)):
        log_start = log_start_of_leader(
            catalog, EPOCHS, log_start_offset=start, local_start_offset=local_start
        )
        assert log_start == wanted


def test_a_new_leader_moves_no_log_start_because_the_metadata_is_lost() -> None:
    catalog = RemoteLogCatalog(AT)
    assert log_start_of_leader(catalog, EPOCHS, log_start_offset=0, local_start_offset=7) == 0
    catalog.apply(FOUR[0])
    for state in (FINISHED, DELETING, DELETED):
        catalog.apply(update(FOUR[0], state))
    assert log_start_of_leader(catalog, EPOCHS, log_start_offset=0, local_start_offset=7) == 7
