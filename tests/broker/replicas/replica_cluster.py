"""A small cluster of replicas in one process, whose followers copy from the leader through ``ReplicaHost`` alone.

The leader's side of a fetch is the broker's own (:class:`~blumfeld.broker.fetch.reads.PartitionRead`). The follower is
the simplest that there is: it fetches when a test says so. It is no part of the product.
"""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

from blumfeld.broker.fetch.reads import PartitionRead, Reader
from blumfeld.broker.fetch_sessions import FetchPartition
from blumfeld.broker.replicas.partition import ACKS_LEADER, Partition
from blumfeld.broker.replicas.partition import Following as FollowingPartition
from blumfeld.broker.replicas.refused_writes import RefusedWrites
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.broker.replicas.throttles import Throttles
from blumfeld.broker.waiting.deadlines import WaitCounts
from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.replication import FollowerHost, FollowerReplica, LeaderReplica, ReplicaHost
from blumfeld.spi.storage import LogRead, LogStorage, SegmentedLog, WriteOutcome
from blumfeld.spi.tiering import LogStartState, local_log_start_offset, tiered
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.crash.machine import make_storage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.tiered_storage import FakeTieredStorage, RemoteStore, tiered_log
from blumfeld_kit.storage_driver.node import PARTITION, TOPIC_ID, Node
from tests.broker.harness import Quiet
from tests.log.batches import data_batch, marker


class Nobody:
    """``AppendWaiter`` that remembers its outcome."""

    commit_wait_ms = None

    def __init__(self) -> None:
        self.code: ErrorCode | None = None

    def appended(self, code: ErrorCode) -> None:
        self.code = code


class Leading:
    """``LeaderReplica``: everything is committed that all replicas of the cluster have."""

    def __init__(self, cluster: Cluster, host: ReplicaHost, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        self.isr: tuple[int, ...] = ()
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self._cluster, self._host = cluster, host

    def log_end_moved(self) -> None:
        end = self._host.log.written_end_offset
        others = len(self._cluster.replicas) - 1
        lowest = min([end, *self.ends.values()]) if len(self.ends) == others else 0
        if lowest > self.high_watermark:
            self.high_watermark = lowest
            self._host.high_watermark_moved()

    def check_append_all(self) -> ErrorCode:
        return ErrorCode.NONE

    def check_committed(self, end_offset: int) -> ErrorCode | None:
        return ErrorCode.NONE if self.high_watermark >= end_offset else None

    def follower_fetched(self, replica_id: int, broker_epoch: int, offset: int, log_start: int) -> ErrorCode:
        self.ends[replica_id], self.starts[replica_id] = offset, log_start
        self.log_end_moved()
        return ErrorCode.NONE

    @property
    def low_watermark(self) -> int:
        return min([self._host.log.log_start_offset, *self.starts.values()])

    def preferred_read_replica(self, rack: str, fetch_offset: int) -> int:
        return -1

    def update(self, image: PartitionImage) -> None:
        return None

    def stop(self) -> None:
        return None


class Following:
    """``FollowerReplica`` that fetches once whenever :meth:`fetch` is called."""

    def __init__(self, cluster: Cluster, replica_id: int, host: FollowerHost, epoch: int) -> None:
        self.calls: list[tuple[str, Any]] = []
        """Calls of the host: ``written`` with the end, ``append_failed`` with the end, ``update`` with the ISR."""
        self.truncations: list[int] = []
        self.stopped = False
        self._cluster, self._id, self._host, self._epoch = cluster, replica_id, host, epoch
        self._rebuilding: Completion[None] | None = None

    def written(self, end_offset: int) -> None:
        assert not self.stopped
        self.calls.append(("written", end_offset))

    def append_failed(self, end_offset: int, error: OSError) -> None:
        assert not self.stopped
        self.calls.append(("append_failed", end_offset))

    def update(self, image: PartitionImage) -> None:
        self.calls.append(("update", image.isr))

    def stop(self) -> None:
        self.stopped = True

    def fetch(self, bytes_max: int = 1 << 20) -> bool:
        """One fetch and its answer, without the end of the turn. Returns whether the answer changed anything."""
        if self._rebuilding is not None and not self._rebuilding.done:
            return True
        host, log = self._host, self._host.log
        asked = FetchPartition(
            "topic", 0, log.placed_end_offset, bytes_max, self._epoch, host.latest_epoch, log.log_start_offset
        )
        one = self._cluster.serve(self._id, asked, bytes_max)
        if one.error == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._begin_at_local_start(one.log_start_offset)
            return True
        if one.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return True
        assert not one.error, one.error
        if one.diverging is not None:
            self._truncate(self._where(*one.diverging))
            return True
        data = b"" if one.read is None else join(one.read.parts)
        if one.read is not None:
            release(one.read.parts)
        return host.append_fetched(memoryview(data), one.high_watermark, one.log_start_offset)

    def _where(self, epoch: int, end_offset: int) -> int:
        """Kafka's ``AbstractFetcherThread.getOffsetTruncationState``."""
        end = self._host.log.placed_end_offset
        ours = self._host.epoch_end(epoch)
        if ours.epoch == epoch or ours.epoch < 0:
            return min(end_offset, end if ours.epoch < 0 else ours.end_offset, end)
        return min(ours.end_offset, end)

    def _out_of_range(self) -> None:
        leader = self._cluster.leader.log
        if leader.written_end_offset < self._host.log.placed_end_offset:
            self._truncate(leader.written_end_offset)
        else:
            assert leader.log_start_offset > self._host.log.placed_end_offset
            self._host.restart_at(leader.log_start_offset)

    def _begin_at_local_start(self, log_start_offset: int) -> None:
        leader = self._cluster.leader
        start = local_log_start_offset(leader.log)
        log = tiered(self._host.log)
        assert log is not None
        epoch = leader.partition.state.epochs.epoch_for_offset(start - 1)
        asked = log.state_at(start, epoch)

        async def wait() -> LogStartState:
            return await asked

        state = self._cluster.replicas[self._id].node.runtime.run(wait())
        self._host.restart_at(state.offset, state.epochs, state.producers, log_start_offset)

    def _truncate(self, offset: int) -> None:
        self.truncations.append(offset)
        self._rebuilding = self._host.truncate_to(offset)


class Replica:
    """One replica on a machine with a disk of its own."""

    def __init__(self, cluster: Cluster, replica_id: int) -> None:
        self.id = replica_id
        self.events = Quiet()
        self.failed: list[OSError] = []
        self._cluster = cluster
        self.high_watermark = 0
        self.partition: Partition
        self.new_disk()

    def new_disk(self) -> None:
        """Begin with an empty disk."""
        make, store = make_storage(), self._cluster.store

        def make_tiered(runtime: FakeRuntime) -> LogStorage:
            return cast("LogStorage", FakeTieredStorage(make(runtime), runtime, store))

        self.node = Node(
            lambda before: FakeRuntime(self.id, disk=None if before is None else before.disk),
            make if store is None else make_tiered,
        ).start()
        self.high_watermark = 0
        self.open()

    def open(self) -> None:
        runtime = self.node.runtime
        tiers = self._cluster.store is not None
        config = TopicConfig(
            {"internal.segment.bytes": 400, "index.interval.bytes": 100, "remote.storage.enable": tiers}
        )
        state = ReplicaState("topic-0", runtime.now_ms, self.events)
        log = runtime.run(self.node.storage.open_log(PARTITION, TOPIC_ID, config, state))
        state.attach(log, self.high_watermark)
        for _ in state.replay():
            pass
        about = (PARTITION, TOPIC_ID, self._cluster.image(), log, state, config, runtime, WaitCounts())
        refused, throttles = RefusedWrites(runtime, self.events), Throttles(BrokerConfig(), self.id)
        self.partition = Partition(*about, lambda _, error: self.failed.append(error), refused, throttles)

    # Replication: the part of it that a partition calls

    def become_leader(self, host: ReplicaHost, image: PartitionImage, high_watermark: int) -> LeaderReplica:
        return Leading(self._cluster, host, high_watermark)

    def become_follower(self, host: FollowerHost, image: PartitionImage) -> FollowerReplica:
        return Following(self._cluster, self.id, host, image.leader_epoch)

    def apply(self, image: PartitionImage) -> None:
        self.partition.apply(image, self.id, cast("Any", self))

    @property
    def follower(self) -> Following:
        return cast("Following", self.host.follower)

    @property
    def host(self) -> FollowingPartition:
        """The host of its present follower."""
        assert self.partition.following is not None
        return self.partition.following

    @property
    def log(self) -> SegmentedLog:
        return cast("SegmentedLog", self.partition.log)

    def end_turn(self) -> None:
        self.node.runtime.run_turn()

    def restart(self, *, clean: bool) -> None:
        """Stop or kill the process, and start it again with a high watermark of a moment ago."""
        self.high_watermark = self.partition.high_watermark
        if clean:
            self.partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.node.stop()
            self.node.restart()
        else:
            self.node.crash(power_cut=False)
        self.open()

    def lose_disk(self) -> None:
        """Stop the process for good, and start the next one on an empty disk."""
        self.partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.node.stop()
        self.new_disk()

    def fail_next_write(self) -> None:
        """Let the disk be full once."""
        log = cast("Any", self.log)

        def write(done: Any) -> None:
            del log.write
            log._unplace()
            done(WriteOutcome(log.written_end_offset, OSError(errno.ENOSPC, "no space left")))

        log.write = write

    def bytes_from(self, offset: int, below: int | None = None) -> list[bytes]:
        end = self.log.written_end_offset if below is None else below
        return [
            bytes(batch.data)
            for batch in (self.log.batches(offset) if offset < end else ())
            if batch.next_offset <= end
        ]

    @property
    def producers(self) -> dict[int, tuple[int, int, int]]:
        """Producer id → (epoch, last sequence, first offset of the open transaction)."""
        found = self.partition.state.producers.producers()
        return {e.producer_id: (e.epoch, e.last_sequence, e.txn_first_offset) for e in found}

    @property
    def aborted(self) -> list[tuple[int, int, int, int]]:
        return self.aborted_from(0)

    def aborted_from(self, offset: int) -> list[tuple[int, int, int, int]]:
        """The aborted transactions with a marker at or above ``offset``."""
        entries = [e for e in self.partition.state.aborted.entries if e.last_offset >= offset]
        return [(e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset) for e in entries]


class Cluster:
    """Replicas 1, 2… of one partition. The first leads in epoch 0."""

    def __init__(self, count: int = 3, store: RemoteStore | None = None) -> None:
        """:param store: the logs are tiered, and this is their store"""
        self.store = store
        self.epoch = 0
        self.leader_id = 1
        self.forgets = False
        """Records were deleted. What they left behind may be known here and unknown there: a replica that starts later,
        or that is killed, knows nothing of the records below its log."""
        self.replicas: dict[int, Replica] = {}
        for replica_id in range(1, count + 1):
            self.replicas[replica_id] = Replica(self, replica_id)
        self.elect(1)

    @property
    def leader(self) -> Replica:
        return self.replicas[self.leader_id]

    @property
    def followers(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.id != self.leader_id]

    def may_lead(self, replica_id: int) -> bool:
        """Whether a replica has everything that is committed."""
        committed = max(replica.partition.high_watermark for replica in self.replicas.values())
        return self.replicas[replica_id].log.written_end_offset >= committed

    def join(self, replica_id: int) -> None:
        """Add an empty replica."""
        self.replicas[replica_id] = Replica(self, replica_id)
        for replica in self.replicas.values():
            replica.apply(self.image())

    def image(self, **changed: Any) -> PartitionImage:
        ids = tuple(self.replicas)
        fields = {"isr": ids, "partition_epoch": self.epoch, **changed}
        return PartitionImage(
            partition=0, replicas=ids, leader=self.leader_id, leader_epoch=self.epoch, **fields
        )

    def elect(self, replica_id: int, epochs: int = 1) -> None:
        """Let a replica lead, in an epoch that is ``epochs`` later, whatever its log has: also an unclean election."""
        self.leader_id, self.epoch = replica_id, self.epoch + epochs
        for replica in self.replicas.values():
            replica.apply(self.image())

    def serve(self, replica_id: int, asked: FetchPartition, bytes_max: int) -> PartitionRead:
        """The leader's answer, cold reads included."""
        hosted = SimpleNamespace(generation=0, leading=lambda name, index: self.leader.partition)
        reader = Reader(
            cast("Any", SimpleNamespace(hosted=hosted)),
            cast("Any", None),
            replica_id=replica_id,
            replica_epoch=-1,
            read_committed=False,
            bytes_min=1,
            bytes_max=bytes_max,
        )
        one = PartitionRead(asked)
        one.run(reader, bytes_max, minimum_one_batch=True)
        if one.cold is not None:
            waited = one.cold

            async def wait() -> LogRead:
                return await waited

            self.leader.node.runtime.run(wait())
            one.settle()
        return one

    # Appends on the leader

    def append(self, count: int = 1) -> int:
        """A batch without a producer. Returns its base offset."""
        return self._place(data_batch(0, -1, -1, -1, count))

    def produce(self, producer_id: int, count: int = 1, *, transactional: bool = False) -> int:
        """The producer's next batch, as far as the leader knows."""
        known = self.leader.partition.state.producers.producer(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        return self._place(data_batch(0, producer_id, 0, sequence, count, transactional=transactional))

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        return self._place(marker(0, producer_id, 0, committed=commit))

    def _place(self, batch: RecordBatch) -> int:
        base_offset = self.leader.partition.place(batch, ACKS_LEADER, Nobody())
        self.leader.end_turn()
        return base_offset

    def delete_records(self, offset: int) -> None:
        """Move the leader's log start, and drop the segments below."""
        self.forgets = True
        self.leader.partition.advance_log_start(offset)
        self.leader.log.drop_segments(offset)
        self.leader.partition.log_start_moved()

    def tier(self, replica: Replica) -> None:
        """Copy the leader's sealed segments below the last stable offset, and let a replica keep none of them."""
        log = tiered_log(self.leader.log)
        log.copy(self.leader.partition.last_stable_offset)
        replica.log.drop_segments(tiered_log(replica.log).copied_end_offset)
        replica.partition.log_start_moved()

    # Copies

    def copy(self, replica: Replica, bytes_max: int = 1 << 20) -> bool:
        """One fetch, and the end of its turn."""
        changed = replica.follower.fetch(bytes_max)
        replica.end_turn()
        return changed

    def settle(self) -> None:
        """Copy until no answer changes anything, and once more, so that the last high watermark arrives."""
        for _ in range(200):
            changed = [self.copy(replica) for replica in self.followers]
            if not any(changed):
                break
        else:
            raise AssertionError("the followers do not come to rest")
        for replica in self.followers:
            self.copy(replica)

    def check(self) -> None:
        """Each follower has what the leader has: bytes, leader epochs, producers, aborted transactions, ends."""
        leader = self.leader
        for replica in self.followers:
            start = max(local_log_start_offset(replica.log), local_log_start_offset(leader.log))
            high_watermark = replica.partition.high_watermark
            assert replica.log.log_start_offset >= leader.log.log_start_offset, "a new leader may be behind"
            assert replica.log.written_end_offset == leader.log.written_end_offset
            assert high_watermark == leader.partition.high_watermark == leader.log.written_end_offset
            assert replica.bytes_from(start) == leader.bytes_from(start)
            ours, theirs = replica.partition.state, leader.partition.state
            for epoch in range(self.epoch + 1):
                if epoch in {entry.epoch for entry in ours.epochs.entries if entry.start_offset > start}:
                    end = leader.log.written_end_offset
                    assert ours.epochs.end_offset_for(epoch, end) == theirs.epochs.end_offset_for(epoch, end)
            if not self.forgets:
                assert replica.producers == leader.producers
                assert replica.aborted_from(start) == leader.aborted_from(start)
                assert replica.partition.readable_ends() == leader.partition.readable_ends()
