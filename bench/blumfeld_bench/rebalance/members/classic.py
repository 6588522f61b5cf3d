"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, eager with ``range`` or ``cooperative-sticky``.

It follows the group protocol as the Java client does (KIP-429 for cooperative), and commits and reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from blumfeld.client.classic_group import (
    COOPERATIVE,
    NO_GENERATION,
    NO_MEMBER_ID,
    RANGE,
    Membership,
    Next,
    Subscription,
    partitions_of,
)
from blumfeld.client.errors import error_name
from blumfeld.client.fetch import Place
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from blumfeld.wire.messages.sync_group import SyncGroupResponse
from blumfeld.wire.schema import Message
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.rebalance.members.assignors import cooperative_assignment, range_assignment
from blumfeld_bench.rebalance.members.member import FAR_NS, RETRY_NS, Group, Member, answer, request

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
_ERROR = slice(9, 11)
"""Place of the error code in a Heartbeat answer, after correlation id, no tags and throttle time."""


class ClassicMember(Member):
    """One member.

    :param cooperative: keep the owned partitions while rejoining
    """

    def __init__(self, group: Group, index: int, cooperative: bool) -> None:
        super().__init__(group, index)
        self._cooperative = cooperative
        self._membership = Membership(
            group_id=group.group_id,
            protocol=COOPERATIVE if cooperative else RANGE,
            session_timeout_ms=group.session_timeout_ms,
            rebalance_timeout_ms=group.rebalance_timeout_ms,
        )
        self._beat = b""
        self._expects: type[Message] | None = None
        self._others: list[JoinGroupResponseMember] = []

    @property
    def is_leader(self) -> bool:
        """Whether this member computes the assignment."""
        return self._membership.member_id != NO_MEMBER_ID and self._membership.member_id == self.group.leader

    def begin(self, now_ns: int) -> bytes:
        """Return a JoinGroup without a member id."""
        return self._join(now_ns)

    def due(self, now_ns: int) -> bytes:
        """Return a heartbeat, another JoinGroup, or a leader's finished assignment."""
        if self.slow:
            self.slow = False
            return self._sync(self._assign(self._others))
        if not self.idle:
            return self._join(now_ns)
        self.heard_ns = now_ns
        self.wake_ns = FAR_NS
        return self._beat

    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """See :class:`Member`."""
        if self._expects is JoinGroupResponse:
            return self._joined(answer(JoinGroupResponse, frame, JOIN_VERSION), now_ns)
        if self._expects is SyncGroupResponse:
            return self._synced(answer(SyncGroupResponse, frame, SYNC_VERSION), now_ns)
        code = int.from_bytes(frame[_ERROR], "big", signed=True)
        if code:
            return self._failed(code, now_ns)
        self.wake_ns = self.heard_ns + self.group.heartbeat_interval_ms * 1_000_000
        return None

    def leave(self) -> bytes:
        """Return a LeaveGroup."""
        return request(self._membership.leave("the consumer is being closed"), LEAVE_VERSION)

    def _join(self, now_ns: int) -> bytes:
        if not self._cooperative:
            self.stop_owning(now_ns)
        self.idle = False
        self.group.told_ns = self.heard_ns = now_ns
        self.wake_ns = FAR_NS
        self._expects = JoinGroupResponse
        topic = self.group.topic
        owned = [(topic, index) for index in self.group.ownership.owned(self.index)]
        return request(self._membership.join([topic], owned), JOIN_VERSION)

    def _joined(self, response: JoinGroupResponse, now_ns: int) -> bytes | None:
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._membership.member_id = response.member_id
            return self._join(now_ns)
        if response.error_code:
            return self._failed(response.error_code, now_ns)
        group = self.group
        self._membership.member_id, group.leader = response.member_id, response.leader
        self._membership.generation = self.epoch = response.generation_id
        group.told_ns = self.heard_ns = now_ns
        if self.is_leader:
            self.slow, self._others = True, response.members
            return None
        return self._sync({})

    def _sync(self, dealt: Mapping[str, Iterable[Place]]) -> bytes:
        self._expects = SyncGroupResponse
        return request(self._membership.sync(dealt), SYNC_VERSION)

    def _assign(self, members: Iterable[JoinGroupResponseMember]) -> dict[str, list[Place]]:
        partitions = self.group.partitions
        if self._cooperative:
            owned = {each.member_id: _owned(each.metadata) for each in members}
            given = cooperative_assignment(owned, partitions)
        else:
            given = range_assignment([member.member_id for member in members], partitions)
        topic = self.group.topic
        return {member_id: [(topic, index) for index in mine] for member_id, mine in given.items()}

    def _synced(self, response: SyncGroupResponse, now_ns: int) -> bytes | None:
        if response.error_code:
            return self._failed(response.error_code, now_ns)
        group = self.group
        revoked = group.ownership.change(
            now_ns, self.index, [index for _, index in partitions_of(response.assignment)]
        )
        group.told_ns = now_ns
        if revoked:
            return self._join(
                now_ns
            )  # rejoin at once: the partitions it gave up can be assigned to other members now
        self._beat = request(self._membership.heartbeat(), HEARTBEAT_VERSION)
        self._expects = None
        self.idle = True
        self.wake_ns = self.first_beat_ns(now_ns, group.heartbeat_interval_ms)
        return None

    def _failed(self, code: int, now_ns: int) -> bytes | None:
        """Join, now or later; where the group doesn't know the member any more, own nothing."""
        after = self._membership.heard(code)
        if after is Next.RETRY:
            self.idle = False
            self.wake_ns = now_ns + RETRY_NS
            return None
        if after is Next.FAIL:
            raise DriverError(f"a classic member was refused: {error_name(code)}")
        if after is Next.START_ANEW:
            self.fault(code)
            self.stop_owning(now_ns)
            self.epoch = NO_GENERATION
        return self._join(now_ns)


def _owned(metadata: bytes) -> list[int]:
    return sorted(index for _, index in Subscription.read(metadata).owned)
