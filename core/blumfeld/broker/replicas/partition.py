"""One hosted replica that leads, follows, or does neither: its appends, and the requests that wait for them.

The turn (docs/design.md): appends place batches. Once a turn the log is written, then the high watermark moves, then
the waiting requests are answered. Everything here runs on the loop's thread, so there are no locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.broker.replicas.refused_writes import RefusedWrites
from blumfeld.broker.replicas.rules.append_rules import AppendRules, RefusedAppends
from blumfeld.broker.replicas.state.replica_state import ReplicaState
from blumfeld.broker.replicas.throttles import Throttles
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL, AppendWaiter, WaitingAppends
from blumfeld.broker.replicas.watching.end_watchers import (
    CHANGED,
    COMMITTED_END_MOVED,
    LOG_END_MOVED,
    EndWatchers,
)
from blumfeld.broker.waiting.deadlines import WaitCounts
from blumfeld.config.values import TopicConfig
from blumfeld.log.producers.end_marker import EndMarker, end_marker_of
from blumfeld.log.producers.state import Duplicate
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.leader_epochs import EpochEnd, EpochEntry
from blumfeld.spi.replication import LeaderReplica, Replication
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import (
    LACKS,
    LogReadOutcome,
    OffsetOutOfRangeError,
    PartitionLog,
    TopicPartition,
    WriteOutcome,
)
from blumfeld.spi.tiering import TieringStorage, local_log_start_offset, tiered
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.errors import BrokerError, CorruptBatch, ErrorCode, InvalidRecord

ACKS_LEADER = 1
# An enumeration's member costs as much to look up as a call.
_WRITE, _HIGH_WATERMARK = Phase.WRITE, Phase.HIGH_WATERMARK
_NONE = ErrorCode.NONE


class Partition:
    """Implements ``ReplicaHost``. Its log is already open when it is made; :meth:`apply` makes it lead or follow."""

    __slots__ = (
        "_advance_due",
        "_commits",
        "_failed",
        "_gives_way",
        "_refused",
        "_refuses",
        "_runtime",
        "_unwritten",
        "_write_due",
        "closed",
        "config",
        "following",
        "image",
        "leader",
        "leader_epoch",
        "leader_start_offset",
        "log",
        "min_insync_replicas",
        "on_high_watermark",
        "partition",
        "placing_began_ms",
        "rules",
        "state",
        "throttles",
        "tiered",
        "told_ms",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        image: PartitionImage,
        log: PartitionLog,
        state: ReplicaState,
        config: TopicConfig,
        runtime: Runtime,
        counts: WaitCounts,
        failed: Callable[[Partition, OSError], None],
        refused: RefusedWrites,
        throttles: Throttles,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.log = log
        self.tiered = tiered(log)
        """The log, if a part of it may lie in a remote store."""
        self.state = state
        self.config = config
        self.throttles = throttles
        self.leader: LeaderReplica | None = None
        """The replication's side while this node leads the partition."""
        self.following: Following | None = None
        """The state of this partition while it follows."""
        self.leader_epoch = -1
        self.closed: ErrorCode | None = None
        """The error that every request gets once the partition is shut; ``None`` while it can be used."""
        self.rules = AppendRules(config)
        self._gives_way = False
        """Its leadership is being given to another replica."""
        self.min_insync_replicas = min(config.min_insync_replicas, len(image.replicas))
        self.leader_start_offset = 0
        """The log's end when the current leader epoch began."""
        self.image = image
        """The newest image. The replica leads or follows as it says once :meth:`apply` was called."""
        self.on_high_watermark: Callable[[Partition], None] | None = None
        """Called whenever the high watermark moved; set by the coordinator that lives on this partition."""
        self.placing_began_ms = 0.0
        """Monotonic time of the first append in this turn, or in the last turn that had one."""
        self.told_ms = 0.0
        """Monotonic time at which waiters last got their outcome. One clock reading serves all of them."""
        self.watchers = EndWatchers(runtime)
        """Parked fetches of this partition."""
        self._runtime = runtime
        self._failed = failed
        self._refused = refused
        self._refuses = False
        """The last write failed, and ``_refused`` has counted it."""
        self._unwritten: list[tuple[int, int, AppendWaiter]] = []
        """(end offset, acks, waiter) of each append since the last write."""
        self._commits = WaitingAppends(runtime, counts, self.tells)
        self._write_due = False
        self._advance_due = False

    # Reads

    @property
    def high_watermark(self) -> int:
        """The high watermark as this replica knows it: a follower's may lag behind the leader's."""
        if self.leader is not None:
            return self.leader.high_watermark
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which read_committed consumers read."""
        return self.readable_ends()[1]

    def readable_ends(self) -> tuple[int, int]:
        """Returns (high watermark, last stable offset): the ends for read_uncommitted and read_committed consumers."""
        leader = self.leader
        if leader is None:
            return self.state.readable_ends()
        # Each read asks for these ends, so the leader's high watermark is looked up without a call.
        high_watermark = leader.high_watermark
        unstable = self.state.producers.first_unstable_offset
        if unstable is None or unstable > high_watermark:
            return high_watermark, high_watermark
        return high_watermark, max(unstable, self.log.log_start_offset)

    def readable_end(self, read_committed: bool) -> int:
        """Returns the end of what a consumer with this isolation level may read."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def read(self, offset: int, bytes_max: int, end_offset: int, minimum_one_batch: bool) -> LogReadOutcome:
        """As ``PartitionLog.read``.

        :raises BrokerError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR
        """
        watchers = self.watchers
        arguments = (offset, bytes_max, end_offset, minimum_one_batch)
        if watchers.shared_by == arguments:
            return watchers.shared
        try:
            outcome = self.log.read(offset, bytes_max, end_offset, minimum_one_batch)
            if watchers.telling:
                watchers.share(arguments, outcome)
            return outcome
        except OffsetOutOfRangeError:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE) from None
        except OSError as error:
            self.fail_if_bad(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error

    def check_leader_epoch(self, current_leader_epoch: int) -> ErrorCode:
        """Compare the client's leader epoch with ours (KIP-320); -1 skips the check.

        Returns NONE, FENCED_LEADER_EPOCH (the client's is older) or UNKNOWN_LEADER_EPOCH (ours is older).
        """
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return _NONE
        older = current_leader_epoch < self.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH

    # Appends

    def append(
        self, batch: RecordBatch, acks: int, waiter: AppendWaiter, looked: RecordBatch | None = None
    ) -> tuple[int, int]:
        """Check a client's batch and place it. Returns (base offset, log append time). With create time the
        second one is -1.

        ``waiter`` is called when the batch is written, with acks=all when it is committed; never, if this raises.

        A retry of a batch that is already here (KIP-98) is not placed again: it gets the original's base offset
        and time, and waits for the original's outcome.

        :param looked: the batch as the topic requires it, if a worker thread has already checked its records
        :raises TooMuchAtOnce: the topic's records must be checked, and this batch holds too much for the loop
        :raises BrokerError: the reason why the batch may not be placed, as the answer's code
        """
        leader = self.leader
        if leader is None:
            raise self._not_leader()
        if acks == ACKS_ALL and (code := leader.check_append_all()):
            raise BrokerError(code)
        rules = self.rules
        now_ms = self._runtime.now_ms()
        rules.check(batch, now_ms)
        append_ms = -1
        if batch.producer_id >= 0:
            try:
                duplicate = self.state.producers.check(batch)
            except BrokerError as error:
                duplicate = self._forgotten_original(batch, error)
            if duplicate is not None:
                self._wait_for(duplicate.last_offset + 1, acks, waiter)
                return duplicate.base_offset, duplicate.timestamp_ms
        if rules.changes_batches:
            batch = self._conformed(batch) if looked is None else looked
            if rules.log_append_time:
                batch.set_log_append_time(now_ms)
                append_ms = now_ms
        return self.place(batch, acks, waiter), append_ms

    def _conformed(self, batch: RecordBatch) -> RecordBatch:
        if not self.rules.looks_inside:
            return batch
        from blumfeld.broker.replicas.rules.record_rules import conformed

        return conformed(batch, self.config)

    def _forgotten_original(self, batch: RecordBatch, refusal: BrokerError) -> Duplicate:
        try:
            original = self.state.original_of(batch)
        except OSError as error:
            self.fail_if_bad(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if original is None:
            raise refusal
        return original

    def place(self, batch: RecordBatch, acks: int, waiter: AppendWaiter) -> int:
        """Place a batch that was checked, or that this node made itself (a coordinator's). Returns its base offset.

        :raises BrokerError: NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR
        """
        if self.leader is None:
            raise self._not_leader()
        try:
            base_offset = self.log.place(batch, self.leader_epoch)
        except OSError as error:
            self.fail(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if batch.producer_id >= 0:
            self.state.producers.place(batch)
        if self.watchers.written_bytes is not None:
            self.watchers.written_bytes.placed += batch.size_bytes
        self._unwritten.append((base_offset + batch.last_offset_delta + 1, acks, waiter))
        if not self._write_due:
            self._write_later()
        return base_offset

    def place_markers(
        self, batches: Sequence[RecordBatch], ends: Sequence[EndMarker], waiter: AppendWaiter
    ) -> None:
        """Place markers that this node has built and checked, with acks=all. ``waiter`` is told NONE when all of them
        are committed, an error if one of them may be lost.

        :param ends: the content of each batch
        :raises BrokerError: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR: none of them will be written
        """
        if self.leader is None:
            raise self._not_leader()
        place, leader_epoch = self.log.place, self.leader_epoch
        try:
            for batch in batches:
                place(batch, leader_epoch)
        except OSError as error:
            self.fail(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        self.state.producers.place_markers(batches, ends)
        if self.watchers.written_bytes is not None:
            self.watchers.written_bytes.placed += sum(batch.size_bytes for batch in batches)
        self.wait_committed(waiter)

    def wait_committed(self, waiter: AppendWaiter) -> None:
        """Call ``waiter`` once everything that is placed now is committed, or has failed."""
        self._wait_for(self.log.placed_end_offset, ACKS_ALL, waiter)

    def wait_written(self, waiter: AppendWaiter) -> None:
        """Call ``waiter`` once everything that is placed now is written, or has failed."""
        self._wait_for(self.log.placed_end_offset, ACKS_LEADER, waiter)

    def _wait_for(self, end_offset: int, acks: int, waiter: AppendWaiter) -> None:
        """Wait for batches that are placed, or written. A retry isn't answered before its original is written."""
        self._unwritten.append((end_offset, acks, waiter))
        self.write_this_turn()

    def write_this_turn(self) -> None:
        """Write what is placed at the end of this turn."""
        if not self._write_due:
            self._write_later()

    def cut(self) -> None:
        """Take note that the log was truncated or begun anew: forget its end, and the bytes before it."""
        end_offset = self.log.written_end_offset
        self.leader_start_offset = min(self.leader_start_offset, end_offset)
        if self.watchers.written_bytes is not None:
            self.watchers.written_bytes.cut(end_offset)
        self.watchers.wake(CHANGED)

    def _write_later(self) -> None:
        self._write_due = True
        self.placing_began_ms = self._runtime.monotonic_ms()
        self._runtime.at_end_of_turn(_WRITE, self._write)

    def _write(self) -> None:
        self._write_due = False
        if self.closed is not None:
            self._fail_waiters(self.closed)
            return
        try:
            self.log.write(self._written)
        except OSError as error:
            self.fail(error)
        if self._unwritten:  # the outcome waits for a sync
            self._commits.limit(waiter for _, acks, waiter in self._unwritten if acks == ACKS_ALL)

    def _written(self, outcome: WriteOutcome) -> None:
        if self.closed is not None:
            return  # the waiters got their outcome when the partition was shut
        waiters, self._unwritten = self._unwritten, []
        written_end = outcome.written_end_offset
        following = self.following
        if outcome.error is not None:
            self.state.producers.undo_placed(written_end)
            self.state.doubt_gaps()
            self._refuses = True
            self._refused.failed(self.partition, outcome.error)
        elif self._refuses and (waiters or (following is not None and following.unwritten)):
            self._refuses = False
            self._refused.succeeded(self.partition)
        if following is not None:
            following.outcome(outcome)
        try:
            if not self.state.replaying:
                if self.state.epoch_unsaved and written_end > self.leader_start_offset:
                    self.state.save_epochs_soon(self.fail)
                aborted = self.state.producers.written(written_end)
                if aborted:
                    self.state.index_aborted(aborted)
        except OSError as error:
            self._unwritten = waiters
            self.fail(error)
            return
        counted = self.watchers.written_bytes
        if counted is not None and written_end == self.log.placed_end_offset:
            counted.wrote(written_end)
        self.tells()
        placed_since = self._commits.written(waiters, written_end, outcome.error is not None)
        if placed_since:
            self._unwritten[:0] = placed_since
        if self.leader is None:
            self._commits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self._advance_due:
            self._advance_due = True
            self._runtime.at_end_of_turn(_HIGH_WATERMARK, self._advance)

    def tells(self) -> None:
        """Take note of the time: waiters get their outcome now."""
        self.told_ms = self._runtime.monotonic_ms()

    def _advance(self) -> None:
        self._advance_due = False
        leader = self.leader
        if self.watchers.log_end:
            self.watchers.wake(LOG_END_MOVED)
        if leader is not None:
            leader.log_end_moved()
            commits = self._commits
            if commits.queue:
                self.tells()
                commits.answer(leader, self.log.written_end_offset)
                if commits.queue:
                    commits.outlive_the_turn()
        elif self.following is not None:
            self.following.written()

    def high_watermark_moved(self) -> None:
        """The replication moved the high watermark: answer acks=all requests, wake fetches, call the coordinator.

        The producers come first: a woken fetch reads the last stable offset from them.
        """
        leader, high_watermark = self.leader, self.high_watermark
        self.state.producers.high_watermark_moved(high_watermark)
        if leader is not None and self._commits.queue:
            self.tells()
            self._commits.answer(leader, self.log.written_end_offset)
        watchers = self.watchers
        if watchers.committed_end:
            watchers.wake(COMMITTED_END_MOVED)
        if watchers.written_bytes is not None and high_watermark == self.log.placed_end_offset:
            watchers.written_bytes.committed()
        if self.on_high_watermark is not None:
            self.on_high_watermark(self)

    def low_watermark_moved(self) -> None:
        """The leader's low watermark moved, or there is no leader any more: DeleteRecords requests look again."""
        for moved in list(self.watchers.low_watermark):
            moved()

    # Leading, following, leaving

    def apply(self, image: PartitionImage, node_id: int, replication: Replication) -> None:
        """Lead or follow, as the image says; without a leader neither. Waiters of the old epoch get
        NOT_LEADER_OR_FOLLOWER."""
        before, self.image = self.image, image
        self.min_insync_replicas = min(self.config.min_insync_replicas, len(image.replicas))
        if image.leader_epoch == self.leader_epoch and image.leader == before.leader:
            if self.leader is not None:
                self.leader.update(image)
            elif self.following is not None:
                self.following.follower.update(image)
            return
        if self.following is not None:
            self.following.finish_rebuilding()
        if self.closed is None and (self._unwritten or self._write_due):
            self._write()  # the placed batches carry the old epoch, so they must lie before the new epoch's start
        if self.closed is not None:
            return  # what was to be replayed can't be read, or what was placed can't be written
        self._step_down(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.give_way(False)
        self.leader_epoch = image.leader_epoch
        start = self.leader_start_offset = self.log.placed_end_offset
        if image.leader == node_id:
            self.state.epoch_started(image.leader_epoch, start, leads=True)
            self.leader = replication.become_leader(self, image, self.state.high_watermark)
            self.leader.log_end_moved()
        elif image.leader >= 0:
            self.state.forget_empty_epochs()
            self.following = Following(self, image, replication, self._runtime)
        self.watchers.wake(CHANGED)

    def reconfigure(self, config: TopicConfig, tiering: TieringStorage | None = None) -> None:
        """Use the topic's new configuration from the next append on.

        :param tiering: the storage, if it may give another log for it
        """
        self.config = config
        self._make_rules()
        self.min_insync_replicas = min(config.min_insync_replicas, len(self.image.replicas))
        if tiering is None or self.closed is not None:
            self.log.reconfigure(config)
            return
        try:
            log = tiering.log_with(self.partition, self.log, config)
            if log is not self.log:
                self._use(log)
        except OSError as error:
            self.fail(error)

    def _use(self, log: PartitionLog) -> None:
        """Go on with another log of the same ends: a remote part was put around it, or taken away. Raises OSError."""
        start_offset = self.log.log_start_offset
        self.log, self.tiered = log, tiered(log)
        self.state.use(log)
        if self.following is not None:
            self.following.log = log
        if log.log_start_offset != start_offset:
            self.log_start_moved()

    def give_way(self, gives_way: bool) -> None:
        """Take no batch of a client any more, or take them again.

        The controller was asked to give the leadership to another replica. Until the image shows what came of it, a
        batch that still fits would be lost: the next leader doesn't have it. Reads go on, so that followers can get
        what was written.
        """
        if gives_way is not self._gives_way:
            self._gives_way = gives_way
            self._make_rules()

    def _make_rules(self) -> None:
        self.rules = (RefusedAppends if self._gives_way else AppendRules)(self.config)

    def advance_log_start(self, offset: int) -> None:
        """Delete all records below ``offset`` (DeleteRecords). Raises OSError."""
        self.log.advance_log_start(offset)
        self.state.log_start_moved(self.log.log_start_offset, segments_dropped=False)
        self.watchers.wake(CHANGED)

    def log_start_moved(self) -> None:
        """Take note that segments were dropped, so that the log may start later. Raises OSError."""
        self.state.log_start_moved(self.log.log_start_offset)
        self.watchers.wake(CHANGED)

    def fail_if_bad(self, error: OSError) -> None:
        """Take this partition offline, unless only room, descriptors or memory were lacking (``LACKS``) for work that
        changed nothing. The next request may try it again."""
        if error.errno not in LACKS:
            self.fail(error)

    def fail(self, error: OSError) -> None:
        """Take this partition offline: its log directory failed, or a change of its log was broken off. Every waiter
        gets KAFKA_STORAGE_ERROR. If only room was lacking, the log is opened again soon."""
        self.state.give_up_epochs()
        self._shut(ErrorCode.KAFKA_STORAGE_ERROR)
        self._failed(self, error)

    def close(self, code: ErrorCode) -> None:
        """Write what is placed, answer waiters, save the producers for the next start, close the log. Without room the
        producers stay unsaved: the next start finds them in the batches. Raises OSError.

        :param code: the error for requests that still wait, and for later ones
        """
        if self.following is not None:
            self.following.finish_rebuilding()
        if self.closed is None and (self._unwritten or self._write_due):
            self._write()  # placed batches are kept, so their acks=1 requests succeed
        if self.closed is not None:
            return
        self._shut(code)
        try:
            self.state.save_producers(self.log.written_end_offset)
        except OSError as error:
            if error.errno not in LACKS:
                raise
        finally:
            self.state.give_up_epochs()
            self.log.close()

    def abandon(self) -> None:
        """Serve no more, because the topic is deleted. The log stays open: a close would seal and sync it, and the
        caller has the storage delete it."""
        if self.closed is None:
            self.state.give_up_epochs()
            self._shut(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _shut(self, code: ErrorCode) -> None:
        self.closed = code
        self._step_down(code)
        self._fail_waiters(code)
        self._commits.stop()
        self.watchers.wake(CHANGED)

    def _step_down(self, code: ErrorCode) -> None:
        self.state.high_watermark = self.high_watermark
        if self.leader is not None:
            self.leader.stop()
        following, self.following = self.following, None
        if following is not None:
            following.stop(code)
        self.leader = None
        self.tells()
        self._commits.fail(code)
        if self.watchers.low_watermark:
            self.low_watermark_moved()

    def _fail_waiters(self, code: ErrorCode) -> None:
        waiters, self._unwritten = self._unwritten, []
        self.tells()
        for _, _, waiter in waiters:
            self._commits.tell(waiter, code)

    def _not_leader(self) -> BrokerError:
        return BrokerError(self.closed or ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Following:
    """A partition that follows a leader in one leader epoch: implements ``FollowerHost``. After :meth:`stop` it changes
    nothing any more. It appends what the leader sent, cuts what diverged, and keeps the replica's state with the log
    (docs/adr/0020-replica-contract.md).
    """

    __slots__ = (
        "_epoch",
        "_leader_ends",
        "_outcome_end",
        "_partition",
        "_rebuild",
        "_rebuilt",
        "_runtime",
        "_state",
        "_stopped",
        "follower",
        "log",
        "partition",
        "topic_id",
        "unwritten",
    )

    def __init__(
        self, partition: Partition, image: PartitionImage, replication: Replication, runtime: Runtime
    ) -> None:
        self.partition = partition.partition
        self.topic_id = partition.topic_id
        self.log = partition.log
        self.unwritten = False
        """Batches from the leader are placed, and the outcome of their write is not known yet."""
        self._partition = partition
        self._state = partition.state
        self._runtime = runtime
        self._epoch = image.leader_epoch
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
        self.follower = replication.become_follower(self, image)

    # FollowerHost

    @property
    def high_watermark(self) -> int:
        """As ``FollowerHost.high_watermark``."""
        return self._state.high_watermark

    @property
    def latest_epoch(self) -> int:
        """As ``FollowerHost.latest_epoch``."""
        return self._state.epochs.latest_epoch

    @property
    def quota(self) -> ReplicationQuota | None:
        """As ``FollowerHost.quota``."""
        partition = self._partition
        return partition.throttles.of_follower(partition.partition, partition.config)

    def epoch_end(self, epoch: int) -> EpochEnd:
        """As ``FollowerHost.epoch_end``."""
        return self._state.epochs.end_offset_for(epoch, self.log.placed_end_offset)

    def append_fetched(self, batches: memoryview, high_watermark: int, log_start_offset: int) -> bool:
        """As ``FollowerHost.append_fetched``."""
        self._check()
        if not self._rebuilt.done:
            raise ValueError(f"{self.partition} is still rebuilding its producers after a truncation")
        new_batches = fetched_batches(batches, self.log.placed_end_offset, self._epoch)
        try:
            if new_batches and new_batches[0].base_offset < self.log.placed_end_offset:
                self._begin_in(new_batches[0])
            self._place(new_batches)
        except OSError as error:
            raise self._failed(error) from error
        self._leader_ends = (high_watermark, log_start_offset)
        if new_batches:
            self.unwritten = True
            self._partition.write_this_turn()
        elif not self.unwritten:
            self._follow_leader_ends(self.log.written_end_offset)
        return bool(new_batches)

    def truncate_to(self, offset: int) -> Completion[None]:
        """As ``FollowerHost.truncate_to``."""
        self._check()
        self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        state = self._state
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
        self,
        offset: int,
        epochs: Sequence[EpochEntry] = (),
        producers: bytes | None = None,
        log_start_offset: int | None = None,
    ) -> None:
        """As ``FollowerHost.restart_at``."""
        self._check()
        try:
            self._state.restart_at(offset, epochs, producers, log_start_offset)
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

    def _place(self, batches: Sequence[RecordBatch]) -> None:
        log, state, written_bytes = self.log, self._state, self._partition.watchers.written_bytes
        for batch in batches:
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
        state, end_offset = self._state, self.log.placed_end_offset
        if local_log_start_offset(self.log) != end_offset:
            raise CorruptBatch(
                f"the leader sent a batch with the offset {first.base_offset}, and our log ends at {end_offset}"
            )
        producers = state.producers.snapshot(end_offset)
        state.restart_at(first.base_offset, state.epochs.entries, producers, self.log.log_start_offset)
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
            self._state.epochs.truncate_from_end(outcome.written_end_offset)
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
        partition, state = self._partition, self._state
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


def fetched_batches(data: memoryview, end_offset: int, leader_epoch: int) -> list[RecordBatch]:
    """Returns the batches that a follower whose log ends at ``end_offset`` may append.

    A batch that is cut off ends the data. So does a batch of a later epoch than ``leader_epoch``: it may come from a
    leader that this follower doesn't know yet, after a truncation that it hasn't made (KAFKA-18723).

    The first batch may begin below ``end_offset`` if it ends above: the caller decides on that.

    :raises CorruptBatch: CRC, length or format; a control batch whose record can't be read; offsets that don't
        ascend, or lie below ``end_offset``
    :raises UnsupportedMagic: format 0 or 1
    """
    new_batches: list[RecordBatch] = []
    for batch in split_batches(data, allow_partial=True):
        if batch.partition_leader_epoch > leader_epoch:
            break
        batch.verify_crc()
        if batch.is_control and batch.record_count:
            # The producer state reads it when the batch is placed, and that must not fail.
            try:
                end_marker_of(batch)
            except InvalidRecord as error:
                raise CorruptBatch(str(error)) from error
        end = new_batches[-1].next_offset if new_batches else min(end_offset, batch.base_offset)
        if batch.base_offset < end or batch.last_offset < max(batch.base_offset, end_offset):
            raise CorruptBatch(
                f"the leader sent a batch with the offsets {batch.base_offset} to {batch.last_offset}, where "
                f"{max(end, end_offset)} or a later offset comes next"
            )
        new_batches.append(batch)
    return new_batches
