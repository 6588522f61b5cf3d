"""The host's side of a follower: appends what the leader sent, cuts what diverged, and keeps the replica's state with
it (docs/adr/0020-replica-contract.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from blumfeld.broker.replicas.rules.fetched_batches import fetched_batches
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.broker.replicas.throttles import Throttles
from blumfeld.broker.replicas.watching.end_watchers import EndWatchers
from blumfeld.config.values import TopicConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEnd, EpochEntry
from blumfeld.spi.replication import FollowerReplica
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import PartitionLog, TopicPartition, WriteOutcome
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, CorruptBatch, ErrorCode


class Followed(Protocol):
    """The methods of the partition that this module calls."""

    partition: TopicPartition
    topic_id: bytes
    log: PartitionLog
    state: ReplicaState
    watchers: EndWatchers
    leader_epoch: int
    config: TopicConfig
    throttles: Throttles

    def fail(self, error: OSError) -> None:
        """Take the partition offline."""
        ...

    def cut(self) -> None:
        """Take note that the log was truncated or begun anew."""
        ...

    def write_this_turn(self) -> None:
        """Write what is placed at the end of this turn."""
        ...

    def high_watermark_moved(self) -> None:
        """Tell the readers."""
        ...

    def advance_log_start(self, offset: int) -> None:
        """Delete all records below ``offset``. Raises OSError."""
        ...


class FollowedPartition:
    """Implements ``FollowerHost`` for one leader epoch. After :meth:`stop` it changes nothing any more."""

    __slots__ = (
        "_epoch",
        "_leader_ends",
        "_outcome_end",
        "_partition",
        "_rebuild",
        "_rebuilt",
        "_runtime",
        "_stopped",
        "follower",
        "log",
        "partition",
        "topic_id",
        "unwritten",
    )

    follower: FollowerReplica
    """Set by the partition, right after the replication has made it."""

    def __init__(self, partition: Followed, runtime: Runtime) -> None:
        self.partition = partition.partition
        self.topic_id = partition.topic_id
        self.log = partition.log
        self.unwritten = False
        """Batches from the leader are placed, and the outcome of their write is not known yet."""
        self._partition = partition
        self._runtime = runtime
        self._epoch = partition.leader_epoch
        self._stopped: ErrorCode | None = None
        """The error of every later call."""
        self._outcome_end = partition.log.written_end_offset
        """The end that the last outcome of a write told. The log's own may be ahead, where an ack waits for a sync."""
        self._leader_ends = (0, 0)
        """The leader's high watermark and log start, as of its last answer."""
        self._rebuild: Work | None = None
        """The last replay of producers after a truncation."""
        self._rebuilt: Completion[None] = Completion.of(None)
        """Completes when it has ended."""

    # FollowerHost

    @property
    def high_watermark(self) -> int:
        """As ``FollowerHost.high_watermark``."""
        return self._partition.state.high_watermark

    @property
    def latest_epoch(self) -> int:
        """As ``FollowerHost.latest_epoch``."""
        return self._partition.state.epochs.latest_epoch

    @property
    def quota(self) -> ReplicationQuota | None:
        """As ``FollowerHost.quota``."""
        partition = self._partition
        return partition.throttles.of_follower(partition.partition, partition.config)

    def epoch_end(self, epoch: int) -> EpochEnd:
        """As ``FollowerHost.epoch_end``."""
        return self._partition.state.epochs.end_offset_for(epoch, self.log.placed_end_offset)

    def append_fetched(self, batches: memoryview, high_watermark: int, log_start_offset: int) -> bool:
        """As ``FollowerHost.append_fetched``."""
        self._check()
        if not self._rebuilt.done:
            raise ValueError(f"{self.partition} is still rebuilding its producers after a truncation")
        found = fetched_batches(batches, self.log.placed_end_offset, self._epoch)
        try:
            if found and found[0].base_offset < self.log.placed_end_offset:
                self._begin_in(found[0])
            self._place(found)
        except OSError as error:
            raise self._failed(error) from error
        self._leader_ends = (high_watermark, log_start_offset)
        if found:
            self.unwritten = True
            self._partition.write_this_turn()
        elif not self.unwritten:
            self._follow_leader_ends(self.log.written_end_offset)
        return bool(found)

    def truncate_to(self, offset: int) -> Completion[None]:
        """As ``FollowerHost.truncate_to``."""
        self._check()
        self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state = self._partition.state
        if offset < state.high_watermark:
            state.events.warning(
                "truncation below the high watermark",
                partition=str(self.partition),
                offset=offset,
                high_watermark=state.high_watermark,
            )
        try:
            steps = state.truncate_in_steps(offset)
        except OSError as error:
            raise self._failed(error) from error
        self._cut()
        if steps is None:
            return Completion.of(None)
        rebuilt: Completion[None] = Completion()
        self._rebuilt = rebuilt
        self._rebuild = self._runtime.scheduler.run(Lane.REPLICATION, steps, self._rebuild_ended)
        return rebuilt

    def restart_at(
        self, offset: int, epochs: Sequence[EpochEntry] = (), producers: bytes | None = None
    ) -> None:
        """As ``FollowerHost.restart_at``."""
        self._check()
        try:
            self._partition.state.restart_at(offset, epochs, producers)
        except OSError as error:
            raise self._failed(error) from error
        self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._cut()

    def _check(self) -> None:
        if self._stopped is not None:
            raise BrokerError(self._stopped)

    def _failed(self, error: OSError) -> BrokerError:
        self._partition.fail(error)
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _place(self, found: Sequence[RecordBatch]) -> None:
        log, state, written_bytes = self.log, self._partition.state, self._partition.watchers.written_bytes
        for batch in found:
            log.place_as_is(batch)
            if batch.partition_leader_epoch > state.epochs.latest_epoch:
                state.epoch_started(batch.partition_leader_epoch, batch.base_offset)
            if batch.producer_id >= 0:
                state.producers.place(batch)
            if written_bytes is not None:
                written_bytes.placed += batch.size_bytes

    def _begin_in(self, first: RecordBatch) -> None:
        """Begin the empty log where ``first`` begins: the leader's log start lies inside that batch (DeleteRecords), so
        no log that holds the batch can begin at the start that we were given.

        :raises CorruptBatch: the log has records
        """
        state, end_offset = self._partition.state, self.log.placed_end_offset
        if self.log.log_start_offset != end_offset:
            raise CorruptBatch(
                f"the leader sent a batch with the offset {first.base_offset}, and our log ends at {end_offset}"
            )
        state.restart_at(first.base_offset, state.epochs.entries, state.producers.snapshot(end_offset))
        self._cut()

    def _cut(self) -> None:
        self.unwritten = False
        self._outcome_end = self.log.written_end_offset
        self._partition.cut()

    # What the partition tells

    def outcome(self, outcome: WriteOutcome) -> None:
        """A write has ended. After a failure nothing is left of what it should have written."""
        self._outcome_end = outcome.written_end_offset
        if outcome.error is not None:
            self.unwritten = False
            self._partition.state.epochs.truncate_from_end(outcome.written_end_offset)
            self.follower.append_failed(outcome.written_end_offset, outcome.error)

    def written(self) -> None:
        """Tell the follower how far its batches are written. Called in Phase.HIGH_WATERMARK."""
        if not self.unwritten:
            return
        end_offset = self._outcome_end
        self.unwritten = self.log.placed_end_offset > end_offset
        try:
            self._follow_leader_ends(end_offset)
        except BrokerError:
            return  # the log failed, so the follower is stopped
        self.follower.written(end_offset)

    def _follow_leader_ends(self, end_offset: int) -> None:
        """Take over the leader's high watermark and log start, as far as our log reaches.

        The high watermark never goes back: what was committed stays so, and a new leader may not know of it yet.
        """
        partition, state = self._partition, self._partition.state
        high_watermark, log_start_offset = self._leader_ends
        high_watermark = min(high_watermark, end_offset)
        if high_watermark > state.high_watermark:
            state.high_watermark = high_watermark
            partition.high_watermark_moved()
        log_start_offset = min(log_start_offset, state.high_watermark)
        if log_start_offset > self.log.log_start_offset:
            try:
                partition.advance_log_start(log_start_offset)
            except OSError as error:
                raise self._failed(error) from error

    def stop(self, code: ErrorCode) -> None:
        """The leader epoch has ended, or the partition is shut."""
        shut = code is not ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._stopped = code if shut else ErrorCode.FENCED_LEADER_EPOCH
        self._give_up(code)
        self.follower.stop()

    # Producers after a truncation

    def finish_rebuilding(self) -> None:
        """Replay to the end at once: this replica leads now, follows another leader, or is closed."""
        if self._rebuild is not None:
            self._rebuild.finish()

    def _rebuild_ended(self, _: None, error: BaseException | None) -> None:
        if error is None:
            self._rebuilt.complete(None)
        elif isinstance(error, OSError):
            self._partition.fail(error)
        else:
            raise error

    def _give_up(self, code: ErrorCode) -> None:
        if self._rebuild is not None:
            self._rebuild.cancel()
        if not self._rebuilt.done:
            self._rebuilt.fail(BrokerError(code))
