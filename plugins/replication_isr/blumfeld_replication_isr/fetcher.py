"""One fetcher and its followers: copies partitions from one leader over one connection, as :mod:`~.fetcher_rules`
says.

The batches of an answer go to the logs as views of the frame that was received, within the turn of the answer; those of
a large answer over several turns. The next request leaves at the end of the turn in which all of them
are written: it is the acknowledgement of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from blumfeld.log.leader_epochs import truncation_offset
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld.spi.peers import PeerChannel, RawAnswer
from blumfeld.spi.replication import FollowerHost
from blumfeld.spi.replication_quota import ReplicationQuota
from blumfeld.spi.runtime import Phase, Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.steps import drained
from blumfeld.spi.tiering import LogStartState
from blumfeld.wire.codec import decode
from blumfeld.wire.errors import BrokerError, known_code
from blumfeld.wire.messages.fetch import FetchResponse, PartitionData
from blumfeld.wire.primitives import DecodeError
from blumfeld_replication_isr.fetch_request import FetchSettings, fetch_request
from blumfeld_replication_isr.fetcher_rules import (
    FIRST_PAUSE_MS,
    FetcherRules,
    Key,
    Position,
    State,
    Verdict,
    out_of_range,
    passes,
    pause_after,
    verdict,
)
from blumfeld_replication_isr.log_ends import LogEnds
from blumfeld_replication_isr.node import Node
from blumfeld_replication_isr.tiered_start import TieredStart, has_all_in_store

SMALL_PARTS = 16
"""An answer for so many partitions is taken at once. It doesn't wait for larger ones."""
IDLE_MS = 10_000
"""Time after which a fetcher without partitions is closed. An election takes partitions from it for a moment only."""


class IsrFollower:
    """One partition of a fetcher in one leader epoch. Implements ``FollowerReplica``."""

    __slots__ = ("_fetcher", "begins", "host", "image", "key", "leader_high_watermark", "refusals")

    def __init__(self, fetcher: Fetcher, host: FollowerHost, image: PartitionImage) -> None:
        self._fetcher = fetcher
        self.host = host
        self.image = image
        self.key: Key = (host.topic_id, host.partition.partition)
        self.begins = False
        """The leader and the store are asked how the log begins. That may take its time."""
        self.refusals = 0
        """Answers in a row with an error that passes by itself."""
        self.leader_high_watermark = -1
        """The leader's own, as of its last answer; -1 before that. Ours is no higher than our log's end."""

    @property
    def has_caught_up(self) -> bool:
        """Whether the log has all that was committed when the leader answered last. So has each member of the ISR, and
        no throttle may slow one down (KIP-73)."""
        return 0 <= self.leader_high_watermark <= self.host.log.placed_end_offset

    def position(self) -> Position:
        """Returns the next fetch: from the end of the log."""
        host = self.host
        log = host.log
        return Position(
            self.image.leader_epoch, log.placed_end_offset, host.latest_epoch, log.log_start_offset
        )

    def written(self, end_offset: int) -> None:
        """As ``FollowerReplica.written``. The outcome of an earlier write may come first, where it waits for a sync."""
        if end_offset >= self.host.log.placed_end_offset:
            self._fetcher.written(self)

    def append_failed(self, end_offset: int, error: OSError) -> None:
        """As ``FollowerReplica.append_failed``."""
        self._fetcher.append_failed(self)

    def update(self, image: PartitionImage) -> None:
        """As ``FollowerReplica.update``."""
        self.image = image
        self._fetcher.image_came(self)

    def stop(self) -> None:
        """As ``FollowerReplica.stop``."""
        self._fetcher.remove(self)


class Fetcher:
    """Fetches from ``leader_id``, with one request under way at most.

    :param idle: called when the fetcher has had no partition for a while
    """

    def __init__(
        self,
        node: Node,
        leader_id: int,
        channel: PeerChannel,
        settings: FetchSettings,
        idle: Callable[[], None],
    ) -> None:
        self.rules = FetcherRules()
        self._leader_id = leader_id
        self._node = node
        self._runtime = node.runtime
        self._channel = channel
        self._settings = settings
        self._events = node.events
        self._repeated = node.repeated
        self._idle = idle
        self._followers: dict[Key, IsrFollower] = {}
        self._new: dict[Key, IsrFollower] = {}
        """Followers of this turn. Their hosts may be asked once the turn that made them ends."""
        self._unwritten: dict[Key, None] = {}
        """Partitions whose batches are placed. The next request waits until all of them are written, so that it
        acknowledges them, and no other request makes them wait."""
        self._throttled: dict[Key, IsrFollower] = {}
        """Followers that were throttled when they began, or when their last bytes came (KIP-73)."""
        self._under_way = False
        self._taking: Work | None = None
        """The answer whose other parts are taken in later turns. No request leaves before it is taken."""
        self._lost: list[IsrFollower] = []
        """Followers in this answer whose log's end the leader doesn't have."""
        self._planned = False
        self._paused_until_ms = 0.0
        self._full_again = False
        """The last answer asked for a full request. A second one in a row is followed by a pause."""
        self._unreachable = False
        self._timer: Timer | None = None
        self._connections = 0
        """Connections that were left because the leader is a new process. What fails with one of them isn't news."""
        self._idle_timer: Timer | None = None
        self._stopped = False

    def __len__(self) -> int:
        """Number of partitions."""
        return len(self._followers)

    # Partitions

    def follow(self, host: FollowerHost, image: PartitionImage) -> IsrFollower:
        """Copy a partition from now on."""
        self._stop_idle_timer()
        follower = IsrFollower(self, host, image)
        self._followers[follower.key] = self._new[follower.key] = follower
        self._plan()
        return follower

    def _begin(self, follower: IsrFollower) -> None:
        position = follower.position()
        self.rules.add(follower.key, position)
        self._quota_of(follower)
        high_watermark = follower.host.high_watermark
        if position.last_fetched_epoch < 0 and has_all_in_store(follower.host.log):
            # A crash took the state that its start came with.
            self._begin_at_local_start(follower, position.log_start_offset)
        elif position.last_fetched_epoch < 0 and position.offset > high_watermark:
            # The leader can't compare a log that has no epochs, so only what is committed is known to be the leader's.
            self._truncate(follower, high_watermark)

    def remove(self, follower: IsrFollower) -> None:
        """Fetch a partition no more."""
        key = follower.key
        if self._followers.get(key) is not follower:
            return
        del self._followers[key]
        self._new.pop(key, None)
        self._unwritten.pop(key, None)
        self._throttled.pop(key, None)
        self.rules.remove(key)
        if self._followers:
            self._plan()
        elif not self._stopped:
            self._idle_timer = self._runtime.call_later(IDLE_MS, self._idle)

    def written(self, follower: IsrFollower) -> None:
        """The appended batches of a partition are written, up to its follower's position."""
        if not self._has(follower):
            return
        self._unwritten.pop(follower.key, None)
        self.rules.moved(follower.key, follower.position())
        self._plan()

    def append_failed(self, follower: IsrFollower) -> None:
        """A write failed, and its batches are gone from the log. The storage has already said why."""
        if not self._has(follower):
            return
        self._unwritten.pop(follower.key, None)
        self._back_off(follower)
        self._plan()

    def image_came(self, follower: IsrFollower) -> None:
        """The controller changed a partition in the same leader epoch."""
        if self.rules.state(follower.key) is State.WAITING and not follower.begins:
            self.rules.moved(follower.key, follower.position())
            self._plan()

    def reconnect(self) -> None:
        """Close the connection: the leader is a new process, and may not know of the request that is under way.

        The new process is asked at once: a pause was meant for the earlier one.
        """
        self._connections += 1
        self._paused_until_ms = 0.0
        if self._taking is not None:
            self._drop_answer()
        self._channel.close()
        self._plan()

    def stop(self) -> None:
        """Send nothing more. An answer that still comes is dropped."""
        self._stopped = True
        if self._taking is not None:
            self._taking.cancel()
        self._stop_timer()
        self._stop_idle_timer()
        self._channel.close()

    def _quota_of(self, follower: IsrFollower) -> ReplicationQuota | None:
        """Returns the quota of a follower; ``None`` if it isn't throttled now."""
        quota = follower.host.quota
        if quota is None:
            self._throttled.pop(follower.key, None)
        else:
            self._throttled[follower.key] = follower
        return quota

    def _hold_throttled(self, now_ms: float) -> None:
        """Leave throttled partitions out of the next request while the quota is exceeded.

        They are looked at again after ``replica.fetch.backoff.ms``, as in Kafka: the throttle may be taken away.
        """
        for follower in self._throttled.values():
            quota = follower.host.quota
            fetching = self.rules.state(follower.key) is State.FETCHING
            if quota is not None and fetching and not follower.has_caught_up and quota.is_exceeded(now_ms):
                until_ms = min(quota.ends_ms(now_ms), now_ms + self._settings.backoff_ms)
                self.rules.delay(follower.key, follower.position(), until_ms)

    # Requests

    def _plan(self) -> None:
        """Send the next request at the end of this turn, when all that happens in it is known."""
        if not self._planned:
            self._planned = True
            self._runtime.at_end_of_turn(Phase.COMPLETE, self._go)

    def _plan_later(self) -> None:
        self._timer = None
        self._plan()

    def _go(self) -> None:
        self._planned = False
        if self._under_way or self._taking is not None or self._unwritten or self._stopped:
            return
        new, self._new = self._new, {}
        for follower in new.values():
            if self._has(follower):  # a disk that failed under another one stops it, too
                self._apart(follower, self._begin, follower)
        now_ms = self._runtime.monotonic_ms()
        self._stop_timer()
        wakes_ms = self.rules.wake(now_ms)
        if self._throttled:
            self._hold_throttled(now_ms)
            wakes_ms = self.rules.wake(now_ms)
        if now_ms < self._paused_until_ms:
            self._timer = self._runtime.call_later(self._paused_until_ms - now_ms, self._plan_later)
            return
        request = self.rules.next_request()
        if request is None:
            if wakes_ms is not None:
                self._timer = self._runtime.call_later(wakes_ms - now_ms, self._plan_later)
            return
        wait_ms = self._settings.wait_ms
        if self.rules.is_busy:
            # A request at the leader must not hold up a partition that is done with its truncation before: acks=all
            # waits for its first fetch.
            wait_ms = min(wait_ms, FIRST_PAUSE_MS)
        if wakes_ms is not None:
            # Nor one whose pause ends before.
            wait_ms = min(wait_ms, max(int(wakes_ms - now_ms), 0))
        self._under_way = True
        fetch = fetch_request(self._settings, self._node.node_id, self._node.own_epoch(), request, wait_ms)
        sent = self._channel.send_raw(fetch, self._settings.timeout_ms)
        sent.when_done(partial(self._answered, self._connections))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    # Answers

    def _answered(self, connection: int, done: Completion[RawAnswer]) -> None:
        self._under_way = False
        if self._stopped:
            return
        try:
            raw = done.result()
            answer = decode(FetchResponse, raw.body, raw.version)
        except (OSError, BrokerError, DecodeError) as error:
            if connection == self._connections:
                self._unanswered(error)
            else:
                self.rules.failed()
        else:
            self._unreachable = False
            self._take(answer)
        self._plan()

    def _unanswered(self, error: Exception) -> None:
        self.rules.failed()
        self._pause()
        if not self._unreachable:
            self._unreachable = True
            self._events.warning(
                "no answer to a fetch from the leader", leader=self._leader_id, error=str(error)
            )

    def _pause(self) -> None:
        self._paused_until_ms = self._runtime.monotonic_ms() + self._settings.backoff_ms

    def _take(self, answer: FetchResponse) -> None:
        if answer.error_code:
            at_once = self.rules.refused(answer.error_code) and not self._full_again
            self._full_again = True
            if not at_once:
                self._pause()
                self._say_error(
                    "the leader refused a fetch", (self._leader_id, answer.error_code), answer.error_code
                )
            return
        self._full_again = False
        self._lost = []
        parts = deque((topic.topic_id, data) for topic in answer.responses for data in topic.partitions)
        steps = self._take_parts(parts, answer.session_id)
        if len(parts) <= SMALL_PARTS:
            drained(steps)
            return
        work = self._runtime.scheduler.run(Lane.REPLICATION, steps)
        if not work.done:
            self._taking = work
            for _, data in parts:
                # A view of the frame, which is overwritten after this turn.
                if isinstance(data.records, memoryview):
                    data.records = memoryview(bytes(data.records))

    def _take_parts(self, parts: deque[tuple[bytes, PartitionData]], session_id: int) -> Steps[None]:
        while parts:
            self._take_part(*parts.popleft())
            if parts:
                yield None
        self._taken(session_id)

    def _take_part(self, topic_id: bytes, data: PartitionData) -> None:
        """Take one part of an answer, perhaps turns after it came: its partition may have left, been truncated, or
        follow in another leader epoch by now. Then the part is not for its log any more."""
        key = (topic_id, data.partition_index)
        follower = self._followers.get(key)
        if follower is not None and self.rules.counts(key):
            self._apart(follower, self._take_partition, follower, data)
            return
        self.rules.missed()
        if follower is None:
            self.rules.remove(key)

    def _taken(self, session_id: int) -> None:
        """Go on after the last part of an answer."""
        self._taking = None
        self.rules.answered(session_id)
        lost, self._lost = [lost_partition for lost_partition in self._lost if self._has(lost_partition)], []
        if lost:
            self._look_up(lost)
        self._plan()

    def _drop_answer(self) -> None:
        """Take no more of the answer: it came from an earlier process of the leader. All is asked for anew."""
        assert self._taking is not None, "no answer is being taken"
        self._taking.cancel()
        self._taking = None
        self.rules.failed()
        lost, self._lost = self._lost, []
        for follower in lost:
            self._again(follower)

    def _take_partition(self, follower: IsrFollower, data: PartitionData) -> None:
        diverging = data.diverging_epoch
        match verdict(data.error_code, diverging.epoch):
            case Verdict.APPEND:
                self._append(follower, data)
            case Verdict.TRUNCATE:
                self.rules.missed()  # its high watermark may lie above what is left, or within what still diverges
                host = follower.host
                theirs = EpochEnd(diverging.epoch, diverging.end_offset)
                ours = host.epoch_end(diverging.epoch)
                self._truncate(follower, truncation_offset(theirs, ours, host.log.placed_end_offset))
            case Verdict.LOOK_UP:
                self.rules.busy(follower.key)
                self._lost.append(follower)
            case Verdict.BEGIN:
                self._begin_at_local_start(follower, data.log_start_offset)
            case Verdict.WAIT:
                self.rules.wait(follower.key)
            case Verdict.BACK_OFF:
                self._back_off(follower, passing=passes(data.error_code))
                self._say_partition_error(
                    "the leader refused the fetch of a partition", follower, data.error_code
                )

    def _append(self, follower: IsrFollower, data: PartitionData) -> None:
        follower.refusals = 0
        records = data.records
        view = records if isinstance(records, memoryview) else memoryview(b"")
        placed = follower.host.append_fetched(view, data.high_watermark, data.log_start_offset)
        key = follower.key
        if not self._has(follower):
            return
        follower.leader_high_watermark = data.high_watermark
        quota = self._quota_of(follower)
        if quota is not None:
            quota.record(len(view), self._runtime.monotonic_ms())
        if placed:
            self.rules.busy(key)
            self._unwritten[key] = None
        else:
            self.rules.moved(key, follower.position())  # its log start may have followed the leader's

    def _has(self, follower: IsrFollower) -> bool:
        """Whether it still follows here. A stopped one must not come back into the rules: it would be fetched for ever,
        and each answer for it would cost a full request."""
        return self._followers.get(follower.key) is follower

    def _apart(self, follower: IsrFollower, work: Callable[..., None], *args: Any) -> None:
        """Do the work of one partition. If it fails, that partition has a pause, and the others don't wait for it."""
        try:
            work(*args)
        except BrokerError as error:
            self._refused(follower, error)
        except Exception as defect:
            self.rules.missed()
            self._back_off(follower)
            self._repeated.say(
                self._events.error,
                "a fetched partition met a defect",
                (follower.key, type(defect)),
                partition=str(follower.host.partition),
                exc_info=defect,
            )

    def _refused(self, follower: IsrFollower, error: BrokerError) -> None:
        """Go on after a partition's log took nothing. A follower that was stopped is gone already."""
        self.rules.missed()
        if not self._has(follower):
            return
        self._back_off(follower)
        self._repeated.say(
            self._events.error,
            "a follower's log refused the leader's batches",
            (follower.key, error.code),
            partition=str(follower.host.partition),
            leader=self._leader_id,
            offset=follower.host.log.placed_end_offset,
            error=str(error) or error.code.name,
        )

    def _say_partition_error(self, event: str, follower: IsrFollower, code: int) -> None:
        """Say why a partition isn't copied, unless the error passes by itself."""
        if not passes(code):
            self._say_error(event, (follower.key, code), code, partition=str(follower.host.partition))

    def _say_error(self, event: str, key: Hashable, code: int, **values: Any) -> None:
        self._repeated.say(
            self._events.warning,
            event,
            ("answer", key),
            leader=self._leader_id,
            error_code=code,
            error=str(BrokerError(known_code(code))),
            **values,
        )

    def _back_off(self, follower: IsrFollower, *, passing: bool = False) -> None:
        most_ms = self._settings.backoff_ms
        pause_ms = min(pause_after(follower.refusals), most_ms) if passing else most_ms
        follower.refusals += passing
        if self._has(follower):
            self.rules.delay(follower.key, follower.position(), self._runtime.monotonic_ms() + pause_ms)

    def _truncate(self, follower: IsrFollower, offset: int) -> None:
        self.rules.busy(follower.key)
        self._events.info(
            "truncated to the leader's log",
            partition=str(follower.host.partition),
            leader=self._leader_id,
            leader_epoch=follower.image.leader_epoch,
            offset=offset,
        )

        def cut(done: Completion[None]) -> None:
            log = follower.host.log
            if done.error is not None or not self._has(follower):
                return
            if has_all_in_store(log):  # the producers of the records below are known there alone
                self._begin_at_local_start(follower, log.log_start_offset)
            else:
                self._again(follower)

        follower.host.truncate_to(offset).when_done(cut)

    def _again(self, follower: IsrFollower) -> None:
        """Fetch a partition from its log's end, if it still follows."""
        if self._has(follower):
            self.rules.moved(follower.key, follower.position())
            self._plan()

    # OFFSET_MOVED_TO_TIERED_STORAGE

    def _begin_at_local_start(self, follower: IsrFollower, log_start_offset: int) -> None:
        """Begin a log anew where the leader's local one starts.

        :param log_start_offset: the start of the whole log
        """
        follower.begins = True
        self.rules.wait(follower.key)
        connection = self._connections
        epoch, timeout_ms = follower.image.leader_epoch, self._settings.timeout_ms
        start = TieredStart(follower.host, epoch, self._channel, self._node.node_id, timeout_ms)

        def came(done: Completion[LogStartState]) -> None:
            follower.begins = False
            if self._stopped or not self._has(follower):
                return
            if done.error is None:
                self._apart(follower, self._restart, follower, done.result(), log_start_offset)
            elif connection != self._connections:
                self._again(follower)
            else:
                self._back_off(follower)
                self._say_no_start(follower, done.error)
            self._plan()

        start.when_done(came)

    def _restart(self, follower: IsrFollower, state: LogStartState, log_start_offset: int) -> None:
        host = follower.host
        self._events.info(
            "the records behind our log lie in the remote store; it begins at the leader's local start",
            partition=str(host.partition),
            leader=self._leader_id,
            end_offset=host.log.placed_end_offset,
            offset=state.offset,
            log_start_offset=log_start_offset,
        )
        host.restart_at(state.offset, state.epochs, state.producers, min(log_start_offset, state.offset))
        self._again(follower)

    def _say_no_start(self, follower: IsrFollower, error: BaseException) -> None:
        self._repeated.say(
            self._events.warning,
            "a follower doesn't know yet how it begins at the leader's local start",
            (follower.key, type(error)),
            partition=str(follower.host.partition),
            leader=self._leader_id,
            error=str(error),
        )

    # OFFSET_OUT_OF_RANGE

    def _look_up(self, lost: Sequence[IsrFollower]) -> None:
        """Ask the leader where the logs of these partitions begin and end."""
        ends = LogEnds({follower.host.partition: follower.image.leader_epoch for follower in lost})
        epoch_ends = ends.ask(self._channel, self._node.node_id, self._settings.timeout_ms)
        connection = self._connections
        epoch_ends.when_done(lambda _: self._looked_up(connection, lost, ends))

    def _looked_up(self, connection: int, lost: Sequence[IsrFollower], ends: LogEnds) -> None:
        if self._stopped:
            return
        left = connection != self._connections
        if ends.failed is not None and not left:
            self._repeated.say(
                self._events.warning,
                "no answer to a ListOffsets from the leader",
                ("ListOffsets", self._leader_id, type(ends.failed)),
                leader=self._leader_id,
                error=str(ends.failed),
            )
        for follower in lost:
            for code in ends.refused.get(follower.host.partition, ()):
                self._say_partition_error(
                    "the leader didn't say where a partition begins and ends", follower, code
                )
            if not self._has(follower):
                continue
            offsets = ends.offsets[follower.host.partition]
            if len(offsets) == 2:
                self._apart(follower, self._mend, follower, *offsets)
            elif left:
                self._again(follower)
            else:
                self._back_off(follower)
        self._plan()

    def _mend(self, follower: IsrFollower, leader_start_offset: int, leader_end_offset: int) -> None:
        host = follower.host
        mend = out_of_range(host.log.placed_end_offset, leader_start_offset, leader_end_offset)
        if mend.truncate_to is not None:
            self._truncate(follower, mend.truncate_to)
            return
        if mend.restart_at is not None:
            self._events.warning(
                "the leader's log begins behind ours; it is begun anew",
                partition=str(host.partition),
                end_offset=host.log.placed_end_offset,
                leader_start_offset=mend.restart_at,
            )
            host.restart_at(mend.restart_at)
            self._again(follower)
            return
        # The leader's log holds our end now, or the leader contradicts itself: without a pause it would be asked the
        # same again and again.
        self._back_off(follower)
