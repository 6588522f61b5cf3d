"""Fetch sessions (KIP-227), pure: the partitions of an incremental fetch, and which of them its answer names.

A session remembers the partitions that a consumer or follower reads. So a request names only changes, and an answer
only partitions with news. The time is an argument, and the source of ids is handed in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeAlias

from blumfeld.wire.errors import BrokerError, ErrorCode

SESSION_NONE = 0
EPOCH_INITIAL = 0
EPOCH_FINAL = -1
EPOCH_MAX = 0x7FFFFFFF
SLOTS_MAX = 1000
"""Sessions of a node: Kafka's default for ``max.incremental.fetch.session.cache.slots``."""
SESSION_PARTITIONS_MAX = 10_000
"""Partitions of one session. Each fetch of a session looks at all of them, so more would hold up other connections.
A full fetch of more partitions gets no session, which KIP-227 always allows. A session that would grow larger ends."""
EVICTION_MS = 120_000
"""Time after which a session may be evicted when all slots are taken. One that was idle for so long gives way to any
new session; one that was made so long ago gives way to a follower's, or to a larger one of its own kind."""

PartitionKey: TypeAlias = "tuple[str | bytes, int]"
"""(topic name below v13, topic id from there on; partition)."""


class FetchPartition:
    """One partition of a fetch: the client's request for it, and the offsets of the last answer."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "found",
        "found_in",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_bytes_max",
        "told_log_start_offset",
        "topic",
    )

    def __init__(
        self,
        topic: str | bytes,
        partition: int,
        fetch_offset: int,
        partition_bytes_max: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.fetch_offset = fetch_offset
        self.partition_bytes_max = partition_bytes_max
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.high_watermark = -1
        self.told_log_start_offset = -1
        self.found: Any = None
        """The hosted partition, as the reader found it last. A session keeps it from one fetch to the next."""
        self.found_in = -1
        """``PartitionManager.generation`` of that look-up: it holds as long as the generation is the same."""

    @property
    def key(self) -> PartitionKey:
        """The partition's key in a session."""
        return self.topic, self.partition

    def ask_again(self, fetch_partition: FetchPartition) -> None:
        """Take over a newer request of the client for this partition. The offsets of the last answer stay."""
        self.fetch_offset = fetch_partition.fetch_offset
        self.partition_bytes_max = fetch_partition.partition_bytes_max
        self.current_leader_epoch = fetch_partition.current_leader_epoch
        self.last_fetched_epoch = fetch_partition.last_fetched_epoch
        self.log_start_offset = fetch_partition.log_start_offset

    def follow(self, earlier: FetchPartition) -> None:
        """Take the place of an earlier request for this partition in its session. The last answer was to that one."""
        self.high_watermark = earlier.high_watermark
        self.told_log_start_offset = earlier.told_log_start_offset
        self.found, self.found_in = earlier.found, earlier.found_in

    def untold(self) -> None:
        """Forget the last answer's offsets, because the reader can't use them: its log diverges. They are news again
        when it has truncated."""
        self.high_watermark = self.told_log_start_offset = -1

    def changed(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether these offsets differ from the last answer's. They are stored as the last answer's."""
        if high_watermark == self.high_watermark and log_start_offset == self.told_log_start_offset:
            return False
        self.high_watermark = high_watermark
        self.told_log_start_offset = log_start_offset
        return True


class FetchSession:
    """The partitions of one client's fetches, in the order in which they are served. Followers are ``privileged``."""

    __slots__ = (
        "created_ms",
        "id",
        "last_used_ms",
        "next_epoch",
        "partitions",
        "privileged",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, privileged: bool, uses_topic_ids: bool, now_ms: float) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.next_epoch = 1
        self.partitions: dict[PartitionKey, FetchPartition] = {}


class FetchPlan:
    """The partitions to serve for one fetch request, with its session."""

    __slots__ = ("incremental", "makes_session", "partitions", "privileged", "session", "uses_topic_ids")

    def __init__(
        self,
        partitions: Sequence[FetchPartition],
        session: FetchSession | None = None,
        *,
        makes_session: bool = False,
        privileged: bool = False,
        uses_topic_ids: bool = False,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = session is not None
        """The answer names only partitions with new bytes, changed offsets or an error."""
        self.makes_session = makes_session
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids


class FetchSessions:
    """All sessions of a node.

    :param random_id: returns a positive int32; called again while the id is taken
    """

    def __init__(self, random_id: Callable[[], int], slots_max: int = SLOTS_MAX) -> None:
        self._random_id = random_id
        self._slots_max = slots_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        fetch_partitions: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        privileged: bool,
        now_ms: float,
    ) -> FetchPlan:
        """Returns the partitions that a request fetches, and updates its session.

        Epoch 0 is a full request that asks for a session, -1 a full one without. Both close the session that they
        name. Any other epoch continues a session, and must be the one that the session expects next.

        :raises BrokerError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
            FETCH_SESSION_TOPIC_ID_ERROR: the top-level error of an empty answer
        """
        if epoch in (EPOCH_INITIAL, EPOCH_FINAL):
            if session_id != SESSION_NONE:
                self._sessions.pop(session_id, None)
            return FetchPlan(
                fetch_partitions,
                makes_session=epoch == EPOCH_INITIAL,
                privileged=privileged,
                uses_topic_ids=uses_topic_ids,
            )
        session = self._continued(session_id, epoch, uses_topic_ids)
        if len(session.partitions) + len(fetch_partitions) > SESSION_PARTITIONS_MAX:
            # The sum above is cheap, but counts known partitions twice. Look closer only when it is too large.
            new = sum(
                fetch_partition.key not in session.partitions
                for fetch_partition in fetch_partitions[: 2 * SESSION_PARTITIONS_MAX]
            )
            if len(session.partitions) + new > SESSION_PARTITIONS_MAX:
                del self._sessions[session_id]
                raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        partitions = session.partitions
        for partition in fetch_partitions:
            key = (partition.topic, partition.partition)
            known = partitions.get(key)
            if known is not None:
                # Not changed in place: an earlier fetch of the session may still wait, on a connection that is lost.
                partition.follow(known)
            partitions[key] = partition
        for key in forgotten:
            partitions.pop(key, None)
        if not partitions:
            del self._sessions[session_id]
            return FetchPlan(())
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        session.next_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return FetchPlan(list(partitions.values()), session)

    def partitions_of(self, session_id: int) -> Container[PartitionKey]:
        """Returns the partitions of a session; empty if there is no such session."""
        session = self._sessions.get(session_id)
        return () if session is None else session.partitions

    def _continued(self, session_id: int, epoch: int, uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.next_epoch != epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return session

    def finish_full(self, plan: FetchPlan, now_ms: float) -> int:
        """Make a session for a full request whose answer is ready. Returns its id for the answer; 0 for none.

        The plan's partitions become the session's, with the offsets that ``changed`` stored for this answer.
        """
        if len(plan.partitions) > SESSION_PARTITIONS_MAX:
            return SESSION_NONE
        if not plan.makes_session or not plan.partitions or not self._make_room(plan, now_ms):
            return SESSION_NONE
        session_id = self._random_id()
        while session_id in self._sessions or session_id <= 0:
            session_id = self._random_id()
        session = FetchSession(session_id, plan.privileged, plan.uses_topic_ids, now_ms)
        session.partitions = {p.key: p for p in plan.partitions}
        self._sessions[session_id] = session
        return session_id

    def rotate(self, session: FetchSession, partition: FetchPartition) -> None:
        """Move a partition that gave data behind the others, so that each gets its turn under the byte limit."""
        partitions = session.partitions
        if len(partitions) == 1:
            return
        key = partition.key
        if partitions.get(key) is partition:  # or a later request has forgotten it, or asked for it again
            del partitions[key]
            partitions[key] = partition

    def _make_room(self, plan: FetchPlan, now_ms: float) -> bool:
        if len(self._sessions) < self._slots_max:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms < EVICTION_MS:
            old = [s for s in self._sessions.values() if now_ms - s.created_ms > EVICTION_MS]
            if not old:
                return False
            oldest = min(old, key=lambda s: (s.privileged, len(s.partitions)))
            if (oldest.privileged, len(oldest.partitions)) >= (plan.privileged, len(plan.partitions)):
                return False
        del self._sessions[oldest.id]
        return True
