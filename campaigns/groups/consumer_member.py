"""A member of a KIP-848 group, as the Java client and librdkafka are: one heartbeat in flight, reconciliation beside
it, an acknowledgement as soon as partitions are given up.

Where it is stricter than Java: of a target that a newer one has replaced while partitions were given up it takes only
what the newer one has too.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from blumfeld.client.errors import COORDINATOR_MOVES
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from campaigns.groups.member import Asked, Member, MemberSettings, Partition, View

JOIN = 0
LEAVE = -1
LEAVE_FOR_A_WHILE = -2
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Phase(Enum):
    """The phase of a member, by the names of Java's ``MemberState``."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    LEAVING = "leaving"


class ConsumerMember(Member):
    """Sends ConsumerGroupHeartbeat v1 under a member id that the driver has made (a UUID in real clients)."""

    def __init__(self, settings: MemberSettings, view: View, member_id: str) -> None:
        super().__init__(settings, view)
        self.member_id = member_id
        self.epoch = JOIN
        self.phase = Phase.UNSUBSCRIBED
        self.heartbeat_interval_ms = settings.heartbeat_interval_ms
        self.target: frozenset[tuple[bytes, int]] | None = None
        """The newest target that the broker said, by topic ids; ``None`` before it has said anything."""
        self.went_back: tuple[int, int] | None = None
        """(epoch, epoch that was answered to it) if a broker ever took back an epoch. Must not be."""
        self._names: dict[bytes, str] = {}
        self._ids: dict[str, bytes] = {}
        """Ids of all topics that its metadata ever had."""
        self._goal: frozenset[Partition] | None = None
        self._give_up_by_ms: int | None = None
        self._reported: frozenset[Partition] | None = None
        self._full = True
        self._handlers |= {"heartbeat": self._beaten, "leave": self._left}

    @property
    def lease_ms(self) -> int:
        """Until when the coordinator can't have fenced it: by its session, or because it gives nothing up."""
        lease_ms = self.confirmed_ms + self.settings.session_timeout_ms
        return lease_ms if self._give_up_by_ms is None else min(lease_ms, self._give_up_by_ms)

    @property
    def is_stable(self) -> bool:
        """Whether it is in an epoch, has its whole target, and has said so."""
        has_all = self.target is not None and len(self.target) == len(self.owned)
        return self.phase is Phase.STABLE and self.epoch > JOIN and has_all

    def _begin(self) -> None:
        self.in_group = True
        if self.settings.commit_interval_ms:
            self._after("commit", self.settings.commit_interval_ms)
        self._join()

    def _join(self) -> None:
        self.phase, self.epoch = Phase.JOINING, JOIN
        self.target, self._goal = None, None
        self._full = True
        self._timers.pop("revoked", None)
        self._beat()

    # Heartbeats

    def _fired(self, name: str) -> None:
        if name == "heartbeat":
            self._beat()
        elif name == "revoked":
            self._revoked()

    def _beat(self) -> None:
        if self._asks("heartbeat"):
            return  # the answer, or its loss, sends the next
        self._timers.pop("heartbeat", None)
        settings = self.settings
        request = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=settings.instance_id,
        )
        if self._full:
            request.rack_id = settings.rack_id
            request.rebalance_timeout_ms = settings.rebalance_timeout_ms
            request.subscribed_topic_names = sorted(settings.topics)
            request.subscribed_topic_regex = settings.regex or None
            request.server_assignor = settings.assignor
        if self._full or self._reported != self.owned:
            request.topic_partitions = self._owned_topics()
            self._reported = self.owned
        self._full = False
        if self.phase is Phase.ACKNOWLEDGING:
            self.phase = Phase.STABLE
        self._ask("heartbeat", request, 1)

    def _owned_topics(self) -> list[TopicPartitions]:
        topics: dict[bytes, list[int]] = {}
        for name, index in sorted(self.owned) if self.epoch != JOIN else ():
            topics.setdefault(self._ids[name], []).append(index)
        return [TopicPartitions(topic_id=topic_id, partitions=p) for topic_id, p in topics.items()]

    def _beaten(self, question: Asked, response: ConsumerGroupHeartbeatResponse | None) -> None:
        request = question.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.error_code)
        if code in COORDINATOR_MOVES:
            self._full = True
            self._after("heartbeat", self.settings.retry_backoff_ms)
        elif code in FENCED:
            self._fenced()
        elif code:
            self._fail("ConsumerGroupHeartbeat", code)
        elif response is not None and self.phase is not Phase.LEAVING:
            self._accepted(question, request, response)

    def _accepted(
        self,
        question: Asked,
        request: ConsumerGroupHeartbeatRequest,
        response: ConsumerGroupHeartbeatResponse,
    ) -> None:
        before_ms, self.confirmed_ms = self.confirmed_ms, question.sent_ms
        if response.member_epoch < self.epoch:
            self.went_back = (self.epoch, response.member_epoch)
        self.epoch = response.member_epoch
        self.heartbeat_interval_ms = response.heartbeat_interval_ms
        self._after("heartbeat", self.heartbeat_interval_ms)
        before = self.target
        if response.assignment is not None:
            self.target = frozenset(
                (bytes(topic.topic_id), index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            )
        resolved = self._resolved()
        if self.owned - resolved:
            if self._give_up_by_ms is None:
                # an answer that said so before may have been lost: the broker's time runs since the one that did not
                self._give_up_by_ms = before_ms + self.settings.rebalance_timeout_ms
        elif self._reported is not None and not self._reported - resolved:
            # Not before the broker has heard of it. A request that was under way meanwhile didn't tell.
            self._give_up_by_ms = None
        if self.phase is Phase.JOINING:
            self.phase = Phase.STABLE
        self._reconcile()
        if before not in (None, self.target) and self.phase is Phase.STABLE:
            # What was taken back is of a topic that it never heard of: the broker waits to hear that it is gone.
            self._reported, self.phase = None, Phase.ACKNOWLEDGING
        if self.phase is Phase.ACKNOWLEDGING:
            self._beat()

    def _fenced(self) -> None:
        """It isn't a member any more, and drops everything without a commit, for it may be another's by now."""
        for name in ("commit", "fetch"):
            self._forget(name)
        self._own(frozenset())
        self._join()

    # Reconciliation

    def _resolved(self) -> frozenset[Partition]:
        """The target by names; a topic that the metadata doesn't have yet waits for its next refresh. One that is
        deleted stays until the broker takes it back.
        """
        for name, topic in self.view.items():
            self._ids[name], self._names[topic.topic_id] = topic.topic_id, name
        target, names = self.target or frozenset(), self._names
        return frozenset((names[topic_id], index) for topic_id, index in target if topic_id in names)

    def _reconcile(self) -> None:
        """Begin to give up what isn't in the target; what is new is taken when that is done."""
        if self.phase not in (Phase.STABLE, Phase.ACKNOWLEDGING) or self.target is None:
            return
        self._goal = self._resolved()
        if self._goal == self.owned:
            return
        self.phase = Phase.RECONCILING
        gone = self.owned - self._goal
        if not gone:
            self._revoked()
            return
        self._forget("fetch")
        self._commit({at: offset for at, offset in self.positions.items() if at in gone})
        self._after("revoked", self.settings.revoke_ms)

    def _revoked(self) -> None:
        """The application has given up what it had to; it reads its new partitions from now on."""
        if self.phase is Phase.LEAVING:
            self._say_goodbye()
            return
        if self._asks("commit") and self.owned - (self._goal or frozenset()):
            self._after("revoked", self.settings.retry_backoff_ms)  # what was read is committed first
            return
        goal, newest = self._goal or frozenset(), self._resolved()
        self._own((self.owned & goal) | (goal & newest))
        self.phase = Phase.ACKNOWLEDGING
        if self._resolved() != self.owned:
            self._reconcile()
            if self.phase is Phase.RECONCILING and self._reported != self.owned:
                self._beat()
            return
        if self.settings.commit_interval_ms and self.owned - self.positions.keys():
            self._fetch(sorted(self.owned - self.positions.keys()))
        self._beat()

    def _view_changed(self) -> None:
        self._reconcile()

    # Leaving

    def _leave(self) -> None:
        self.phase = Phase.LEAVING
        self._forget("heartbeat")
        self._forget("fetch")
        for name in ("heartbeat", "commit"):
            self._timers.pop(name, None)
        self._commit(self.positions)
        self._after("revoked", self.settings.revoke_ms)

    def _say_goodbye(self) -> None:
        self._own(frozenset())
        static = self.settings.instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.settings.group_id,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            member_epoch=LEAVE_FOR_A_WHILE if static else LEAVE,
        )
        self._ask("leave", request, 1)

    def _left(self, question: Asked, response: Any) -> None:
        """Whatever is answered, or nothing: a leave is not repeated."""
        self._stop()
        self.phase = Phase.UNSUBSCRIBED
