"""A member of a classic group, as the Java client, librdkafka and their descendants are: it joins, syncs, beats, and
joins again when it is told to; the leader deals the partitions.

``range`` stands for every eager assignor (all is given up before a join), ``cooperative-sticky`` for the cooperative
ones (what isn't the member's any more is given up after the sync, and then it joins once more, KIP-429).

Where it is stricter than Java: a cooperative static member that missed a generation drops what it had, also where the
group has become a KIP-848 group since. The leader of that generation saw what it had owned when it last joined, and may
have given the rest away. What Java's application commits when it gives such partitions up, in a generation that is good
by then, takes committed offsets back: no broker looks at who owns them, ours and Kafka's alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from blumfeld.client.classic_group import (
    COOPERATIVE,
    NO_GENERATION,
    RANGE,
    Membership,
    Next,
    Subscription,
    partitions_of,
)
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.join_group import JoinGroupResponse
from blumfeld.wire.messages.offset_commit import OffsetCommitRequest
from campaigns.groups.classic_assignment import assign
from campaigns.groups.member import Asked, Member, MemberSettings, Partition, View

JOIN_GRACE_MS = 5_000
"""JoinGroup may be answered so much later than the rebalance timeout (Java's constant)."""


class Phase(Enum):
    """The phase of a member."""

    OUT = "out"
    REVOKING = "revoking"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    LEAVING = "leaving"


class ClassicMember(Member):
    """Sends JoinGroup v9, SyncGroup v5, Heartbeat v4, LeaveGroup v5."""

    def __init__(self, settings: MemberSettings, view: View) -> None:
        super().__init__(settings, view)
        self.phase = Phase.OUT
        self.protocol = settings.assignor or RANGE
        self._joined: JoinGroupResponse | None = None
        self._was_led = False
        """Whether a member dealt the partitions when it joined last, not the broker."""
        self._dealt: dict[str, int] = {}
        """As leader: topics that it dealt → partitions that they had."""
        self._told: list[str] = []
        """Topics of its newest join."""
        self._goal: frozenset[Partition] = frozenset()
        self._rejoin = False
        self._handlers |= {
            "join": self._join_answered,
            "sync": self._sync_answered,
            "heartbeat": self._beaten,
            "leave": self._left,
        }

    @property
    def is_cooperative(self) -> bool:
        """Whether it keeps its partitions through a rebalance."""
        return self.protocol == COOPERATIVE

    @property
    def is_stable(self) -> bool:
        """Whether it has synced and given up what it had to."""
        return self.phase is Phase.STABLE

    def _begin(self) -> None:
        self.in_group = True
        self.member_id, self.epoch = "", NO_GENERATION
        if self.settings.commit_interval_ms:
            self._after("commit", self.settings.commit_interval_ms)
        self._join()

    def _topics(self) -> list[str]:
        if not self.settings.regex:
            return sorted(self.settings.topics)
        return sorted(
            {*self.settings.topics, *(t for t in self.view if re.fullmatch(self.settings.regex, t))}
        )

    @property
    def _membership(self) -> Membership:
        settings = self.settings
        return Membership(
            group_id=settings.group_id,
            protocol=self.protocol,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            instance_id=settings.instance_id,
            member_id=self.member_id,
            generation=self.epoch,
        )

    # Joining

    def _prepare(self) -> None:
        """A rebalance: an eager member commits and gives everything up before it joins."""
        if self.phase not in (Phase.STABLE, Phase.SYNCING):
            return
        self._forget("sync")
        self._forget("fetch")
        if self.is_cooperative or not self.owned:
            self._join()
            return
        self.phase = Phase.REVOKING
        self._goal, self._rejoin = frozenset(), True
        self._commit(self.positions)
        self._after("revoked", self.settings.revoke_ms)

    def _join(self) -> None:
        self.phase, self._rejoin = Phase.JOINING, False
        self._forget("heartbeat")
        for name in ("heartbeat", "revoked", "join"):
            self._timers.pop(name, None)
        self._told = self._topics()
        request = self._membership.join(self._told, self.owned, self.settings.rack_id)
        self._ask("join", request, 9, self.settings.rebalance_timeout_ms + JOIN_GRACE_MS)

    def _join_answered(self, question: Asked, response: JoinGroupResponse | None) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.error_code)
        if response is not None and code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join()
        elif response is None or code:
            self._troubled("JoinGroup", code)
        else:
            # Of groups whose broker assigns an epoch or two more is nothing odd, unless it was another kind before.
            counts = bool(response.leader or (self._was_led and self.settings.instance_id))
            if counts and response.generation_id > self.epoch + 1:
                self._missed_a_generation()
            self._was_led = bool(response.leader)
            self.member_id, self.epoch = response.member_id, response.generation_id
            self._joined = response
            self._sync(response)

    def _missed_a_generation(self) -> None:
        """The others dealt without it (it is static, or it would be out): what it had may be another's."""
        for name in ("commit", "fetch"):
            self._forget(name)
        self._own(frozenset())

    def _sync(self, joined: JoinGroupResponse) -> None:
        self.phase = Phase.SYNCING
        self._after("heartbeat", self.settings.heartbeat_interval_ms)
        leads = joined.leader == joined.member_id
        dealt: Mapping[str, list[Partition]] = {}
        self._dealt = {}
        if leads:
            subscribed = {m.member_id: Subscription.read(bytes(m.metadata)) for m in joined.members}
            topics = sorted({topic for subscription in subscribed.values() for topic in subscription.topics})
            self._dealt = {topic: self._count(topic) for topic in topics}
        if leads and not joined.skip_assignment:
            dealt = assign(subscribed, self._dealt, cooperative=self.is_cooperative)
        self._ask("sync", self._membership.sync(dealt, joined.protocol_name), 5)

    def _count(self, topic: str) -> int:
        known = self.view.get(topic)
        return 0 if known is None else known.partitions

    def _sync_answered(self, question: Asked, response: Any) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.error_code)
        if code is ErrorCode.REQUEST_TIMED_OUT:
            self._join()  # the assignment may be there by now: the join tells
        elif code:
            self._troubled("SyncGroup", code)
        else:
            self.confirmed_ms = question.sent_ms
            self.phase = Phase.STABLE
            self._assigned(partitions_of(bytes(response.assignment)))
            self._view_changed()

    def _assigned(self, goal: Iterable[Partition]) -> None:
        """Take what is new at once; what has to go goes first, and then the others must be told."""
        self._goal = frozenset(goal)
        gone = self.owned - self._goal
        if not gone:
            self._take(self._goal)
            return
        self.phase, self._rejoin = Phase.REVOKING, True
        self._forget("fetch")
        self._commit({at: offset for at, offset in self.positions.items() if at in gone})
        self._after("revoked", self.settings.revoke_ms)

    def _take(self, partitions: frozenset[Partition]) -> None:
        self._own(partitions)
        if self.settings.commit_interval_ms and self.owned - self.positions.keys():
            self._fetch(sorted(self.owned - self.positions.keys()))

    def _revoked(self) -> None:
        if self.phase is Phase.LEAVING:
            self._say_goodbye()
            return
        if self._asks("commit"):
            self._after("revoked", self.settings.retry_backoff_ms)  # what was read is committed first
            return
        self._own(self._goal)
        if self._rejoin:
            self._join()

    # Heartbeats

    def _fired(self, name: str) -> None:
        if name == "heartbeat":
            self._beat()
        elif name == "revoked":
            self._revoked()
        elif name == "join":
            self._join()

    def _beat(self) -> None:
        self._ask("heartbeat", self._membership.heartbeat(), 4, self.settings.session_timeout_ms)

    def _beaten(self, question: Asked, response: Any) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if response is None else ErrorCode(response.error_code)
        self._after("heartbeat", self.settings.heartbeat_interval_ms)
        after = self._membership.heard(code)
        if after is Next.GO_ON:
            self.confirmed_ms = question.sent_ms
        elif after is Next.JOIN:
            self._prepare()
        elif after is Next.RETRY:
            self._after("heartbeat", self.settings.retry_backoff_ms)
        else:
            self._troubled("Heartbeat", code)

    def _troubled(self, api: str, code: ErrorCode) -> None:
        """An error of any request of a member: join again, as nobody if it has to be."""
        membership = self._membership
        after = membership.heard(code)
        self.member_id, self.epoch = membership.member_id, membership.generation
        if after is Next.FAIL:
            self._fail(api, code)
            return
        if after is Next.START_ANEW:
            for name in ("commit", "fetch", "heartbeat", "join", "sync"):
                self._forget(name)
            self._timers.pop("revoked", None)
            self._own(frozenset())
        self._later()

    def _later(self) -> None:
        """Join after the back-off; an eager member first gives up what it still has."""
        self._forget("heartbeat")
        self._timers.pop("heartbeat", None)
        self.phase = Phase.JOINING
        if not self.is_cooperative:
            self._forget("fetch")
            self._own(frozenset())
        self._after("join", self.settings.retry_backoff_ms)

    def _view_changed(self) -> None:
        """A leader whose topics have other partitions now, and a member by pattern, asks for a rebalance."""
        if self.phase is not Phase.STABLE or self._joined is None:
            return
        changed = any(self._count(topic) != count for topic, count in self._dealt.items())
        if changed or self._topics() != self._told:
            self._prepare()

    def _committed(self, question: Asked, response: Any) -> None:
        """As Java: who is told so, of the generation in which he still is, is no member any more."""
        if response is None or self.phase in (Phase.LEAVING, Phase.OUT):
            return
        request = question.request
        assert isinstance(request, OffsetCommitRequest)
        codes = {item.error_code for topic in response.topics for item in topic.partitions}
        for code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if code in codes and request.generation_id_or_member_epoch == self.epoch:
                self._troubled("OffsetCommit", code)
                return

    # Leaving

    def _leave(self) -> None:
        self.phase = Phase.LEAVING
        for name in ("heartbeat", "fetch", "join", "sync"):
            self._forget(name)
        for name in ("heartbeat", "commit", "join"):
            self._timers.pop(name, None)
        self._commit(self.positions)
        self._after("revoked", self.settings.revoke_ms)

    def _say_goodbye(self) -> None:
        self._own(frozenset())
        if self.settings.instance_id is not None or not self.member_id:
            self._left_for_good()  # a static member's place is kept
            return
        self._ask("leave", self._membership.leave(), 5)

    def _left(self, question: Asked, response: Any) -> None:
        self._left_for_good()

    def _left_for_good(self) -> None:
        self._stop()
        self.phase = Phase.OUT
