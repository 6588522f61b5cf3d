"""JoinGroup v0–9 (KIP-394, KIP-345, Kafka's ``GroupMetadataManager``).

v1  rebalance timeout. v4  MEMBER_ID_REQUIRED (KIP-394). v5  static membership (KIP-345). v7  protocol type in
the response. v8  reason. v9  skip_assignment (KIP-814).
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from blumfeld_groups_classic import rebalance
from blumfeld_groups_classic.edit import Edit, FormerMember, ReplacementRefused
from blumfeld_groups_classic.group import Group, Member, State, Token

MEMBER_ID_REQUIRED_SINCE_VERSION = 4
SKIP_ASSIGNMENT_SINCE_VERSION = 9
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""Longest time that a new member waits in a rebalance, whatever its session timeout (Kafka's constant)."""


@attrs.frozen
class Limits:
    """Group configuration for joining; names and defaults are Kafka's."""

    session_timeout_ms_min: int
    session_timeout_ms_max: int
    members_max: int
    initial_rebalance_delay_ms: int


@attrs.frozen
class Joining:
    """One JoinGroup while it is decided."""

    group: Group
    request: JoinGroupRequest
    context: RequestContext
    edit: Edit
    limits: Limits
    token: Token
    new_member_id: Callable[[str], str]

    def decide(self) -> Decision:
        """Check the request, then add, replace or rejoin the member.

        :raises BrokerError: INVALID_SESSION_TIMEOUT, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED,
            UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID
        """
        self._check_size()
        self._check_protocols()
        request = self.request
        if request.member_id:
            return self._known()
        if request.group_instance_id is not None:
            return self._static()
        member_id = self.new_member_id(self.context.client_id or "consumer")
        if self.context.api_version >= MEMBER_ID_REQUIRED_SINCE_VERSION:
            self.group.pending[member_id] = request.session_timeout_ms
            self.edit.session(self.group.group_id, member_id, request.session_timeout_ms)
            reply = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return self.edit.decision(reply)
        return self._admit(member_id)

    def _check_protocols(self) -> None:
        request, group = self.request, self.group
        if group.state is State.EMPTY:
            fits = bool(request.protocol_type and request.protocols)
        else:
            same_type = request.protocol_type == group.protocol_type
            fits = same_type and group.supports(self._protocols())
        if not fits:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _check_size(self) -> None:
        """Refuse a join that exceeds the maximum size. During a join phase only members that have joined
        count, so the last to join are refused.
        """
        group, known = self.group, self.group.members.get(self.request.member_id)
        if group.state is State.EMPTY or len(group.members) < self.limits.members_max:
            return
        if group.state is State.PREPARING:
            is_in = known is not None and known.joining is not None
            size = sum(member.joining is not None for member in group.members.values())
        else:
            is_in, size = known is not None, len(group.members)
        if not is_in and size >= self.limits.members_max:
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _known(self) -> Decision:
        group, member_id = self.group, self.request.member_id
        check_instance(group, member_id, self.request.group_instance_id)
        if member_id in group.pending:
            del group.pending[member_id]
            return self._admit(member_id)
        member = group.members.get(member_id)
        if member is None:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self._rejoin(member)

    def _static(self) -> Decision:
        """Decide on a static member without a member id. It is new, or it has restarted and replaces its
        former self.
        """
        instance = self.request.group_instance_id or ""
        member_id = self.new_member_id(instance)
        former_id = self.group.instances.get(instance)
        if former_id is None:
            return self._admit(member_id)
        return self._replace(self.group.members[former_id], member_id)

    def _admit(self, member_id: str) -> Decision:
        request, group = self.request, self.group
        if not group.members:
            group.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.group_instance_id,
            self.context.client_id,
            f"/{self.context.peer_host}",
            request.session_timeout_ms,
            self._rebalance_timeout_ms(),
            self._protocols(),
            is_new=True,
        )
        group.add(member)
        group.arrived = True
        return self._park(member)

    def _rejoin(self, member: Member) -> Decision:
        group = self.group
        unchanged = member.protocols == self._protocols()
        if group.state is State.COMPLETING and unchanged:
            return self._current(member)  # the member did not get its answer
        leads = member.member_id == group.leader_id
        if group.state is State.STABLE and unchanged and not leads:
            return self._current(member)
        self._update(member)
        return self._park(member)

    def _replace(self, former: Member, member_id: str) -> Decision:
        group, edit = self.group, self.edit
        rebalance.refuse(former, edit, ErrorCode.FENCED_INSTANCE_ID)
        edit.end_session(group.group_id, former.member_id)
        led = group.leader_id == former.member_id
        before = FormerMember(
            member_id=former.member_id,
            led=led,
            protocols=former.protocols,
            session_timeout_ms=former.session_timeout_ms,
            rebalance_timeout_ms=former.rebalance_timeout_ms,
            client_id=former.client_id,
            client_host=former.client_host,
        )
        former_id, former.member_id = former.member_id, member_id
        group.members = {m.member_id: m for m in group.members.values()}
        group.instances[former.instance_id or ""] = member_id
        if led:
            group.leader_id = member_id
        self._update(former)
        if group.state is not State.STABLE or group.vote() != group.protocol_name:
            return self._park(former)
        edit.write(group.group_id, group.as_record(edit.now_ms))
        edit.if_refused = ReplacementRefused(group.group_id, member_id, before)
        edit.session(group.group_id, member_id, former.session_timeout_ms)
        reply = rebalance.join_response(group, former)
        if led and self.context.api_version >= SKIP_ASSIGNMENT_SINCE_VERSION:
            reply.skip_assignment = True
        elif led:  # an older client must not assign, so it is told the former member as leader
            reply.leader, reply.members = former_id, []
        return edit.decision(reply)

    def _update(self, member: Member) -> None:
        self.group.set_protocols(member, self._protocols())
        member.session_timeout_ms = self.request.session_timeout_ms
        member.rebalance_timeout_ms = self._rebalance_timeout_ms()
        member.client_id = self.context.client_id
        member.client_host = f"/{self.context.peer_host}"

    def _park(self, member: Member) -> Decision:
        group, edit = self.group, self.edit
        rebalance.refuse(member, edit, ErrorCode.REBALANCE_IN_PROGRESS)  # the client gave this request up
        member.joining = self.token
        waits_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
        edit.session(group.group_id, member.member_id, waits_ms)
        if group.state is not State.PREPARING:
            rebalance.prepare(group, edit, self.limits.initial_rebalance_delay_ms)
        rebalance.maybe_complete_join(group, edit)
        return edit.decision(token=self.token)

    def _current(self, member: Member) -> Decision:
        edit = self.edit
        edit.session(self.group.group_id, member.member_id, member.session_timeout_ms)
        reply = rebalance.join_response(self.group, member)
        if self.group.state is State.STABLE:
            reply.members = []
        return edit.decision(reply)

    def _protocols(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((p.name, bytes(p.metadata)) for p in self.request.protocols)

    def _rebalance_timeout_ms(self) -> int:
        timeout_ms = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if timeout_ms < 0 else timeout_ms


def put_back(group: Group, refused: ReplacementRefused, edit: Edit) -> None:
    """Restore a static member's former id and subscription, and restart its session."""
    former, member = refused.former, group.members[refused.member_id]
    member.member_id = former.member_id
    group.members = {m.member_id: m for m in group.members.values()}
    group.instances[member.instance_id or ""] = former.member_id
    if former.led:
        group.leader_id = former.member_id
    group.set_protocols(member, former.protocols)
    member.session_timeout_ms = former.session_timeout_ms
    member.rebalance_timeout_ms = former.rebalance_timeout_ms
    member.client_id = former.client_id
    member.client_host = former.client_host
    edit.session(group.group_id, former.member_id, former.session_timeout_ms)


def check_instance(group: Group, member_id: str, instance_id: str | None) -> None:
    """Check that a static member's two ids belong together.

    :raises BrokerError: UNKNOWN_MEMBER_ID for an unknown instance, FENCED_INSTANCE_ID if another member has
        the instance now
    """
    if instance_id is None:
        return
    holder = group.instances.get(instance_id)
    if holder is None:
        if member_id not in group.pending:
            raise BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
    elif holder != member_id:
        raise BrokerError(ErrorCode.FENCED_INSTANCE_ID)
