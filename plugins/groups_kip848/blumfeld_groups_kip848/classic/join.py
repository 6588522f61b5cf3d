"""JoinGroup v0–9 to a KIP-848 group (KIP-848). The version notes in groups_classic hold here too.

The broker assigns, so it reads the member's subscription and ignores its user data. The answer comes at once
and names no leader, because no member is to assign.
"""

from __future__ import annotations

import attrs
from msgspec.structs import replace

from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Decision
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from blumfeld_groups_kip848.conversion import downgrade
from blumfeld_groups_kip848.conversion.member_bytes import PROTOCOL_TYPE, by_topic_id, subscription_of
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import ClassicMember, ConsumerGroup, GroupState, Member
from blumfeld_groups_kip848.members.lookup import check_size, joining_member, known_member
from blumfeld_groups_kip848.steps import GroupSteps

MEMBER_ID_REQUIRED_SINCE_VERSION = 4
DISABLED = "disabled"
"""Value of ``group.consumer.migration.policy`` that keeps the two protocols apart."""


class ClassicJoin:
    """One JoinGroup while it is decided."""

    def __init__(
        self, steps: GroupSteps, request: JoinGroupRequest, context: RequestContext, edit: Edit
    ) -> None:
        self.stays = True
        """Whether the group is still a KIP-848 group. ``False`` after this member's join has downgraded it.
        """
        self._steps = steps
        self._request = request
        self._context = context
        self._edit = edit

    @property
    def rebalance_timeout_ms(self) -> int:
        """The requested rebalance timeout. Version 0 has none; its session timeout stands in."""
        timeout_ms = self._request.rebalance_timeout_ms
        return self._request.session_timeout_ms if timeout_ms < 0 else timeout_ms

    def replace_group(self) -> Decision:
        """Replace a group without members: the classic type makes a group of its own, and the KIP-848 group
        ends.

        :raises BrokerError: as JoinGroup of the classic type for an unknown group; the KIP-848 group then
            stays
        """
        classic = self._steps.surroundings.shard_of("classic")
        if classic is None:  # not reached: JoinGroup comes with the classic type
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        joined = classic.command(self._request, self._context, self._edit.now_ms)
        self._edit.end_group()
        joined.records = [*self._edit.records, *joined.records]
        joined.timers = [replace(order, group_type=order.group_type or "classic") for order in joined.timers]
        return joined

    def decide(self) -> JoinGroupResponse:
        """Check the request, write the member and move it one step nearer to its target.

        :raises BrokerError: INVALID_SESSION_TIMEOUT, GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL,
            UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID
        """
        request, edit, steps = self._request, self._edit, self._steps
        self._check_session_timeout()
        check_size(edit.group, request.member_id, steps.settings.size_max)
        self._check_protocols()
        member_id = request.member_id or steps.surroundings.new_member_id(
            self._context.client_id or "consumer"
        )
        dynamic = request.group_instance_id is None
        if (
            dynamic
            and not request.member_id
            and self._context.api_version >= MEMBER_ID_REQUIRED_SINCE_VERSION
        ):
            return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        subscription = self._subscription()
        was_known = not dynamic and edit.group.static_member(request.group_instance_id or "") is not None
        if request.member_id and (not dynamic or subscription.owned_partitions):
            # Ids that the broker gave out are not stored, so an unknown id usually means a new member. But a
            # client that reports owned partitions was a member before. Others may hold these partitions by
            # now, so it must get an error and drop them before it goes on.
            member = known_member(edit.group, member_id, request.group_instance_id)
        else:
            member = joining_member(edit, member_id, request.group_instance_id, classic=True)
        changed = self._describe(member, subscription)
        steps.refresh(edit, changed)
        owned = by_topic_id(subscription.owned_partitions, steps.image())
        now = steps.reconcile(edit, member_id, owned, subscription_changed=changed)
        self._maybe_downgrade(was_known)
        if self.stays:
            steps.start_session(edit, now)
        return JoinGroupResponse(
            generation_id=now.epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )

    def _check_session_timeout(self) -> None:
        settings = self._steps.settings
        low, high = settings.classic_session_timeout_ms_min, settings.classic_session_timeout_ms_max
        if not low <= self._request.session_timeout_ms <= high:
            raise BrokerError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _check_protocols(self) -> None:
        """Refuse protocols that the group's other classic members do not share."""
        request = self._request
        fits = (
            self._steps.settings.migration_policy != DISABLED
            and request.protocol_type == PROTOCOL_TYPE
            and _is_supported(self._edit.group, {protocol.name for protocol in request.protocols})
        )
        if not fits:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _subscription(self) -> ConsumerProtocolSubscription:
        """The subscription of the member's preferred protocol."""
        subscription = subscription_of(bytes(self._request.protocols[0].metadata))
        if subscription is None:
            raise BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return subscription

    def _describe(self, member: Member, subscription: ConsumerProtocolSubscription) -> bool:
        """Write the member's metadata if it changed. Returns whether its subscription changed."""
        request, group = self._request, self._edit.group
        described = attrs.evolve(
            member,
            instance_id=request.group_instance_id or member.instance_id,
            rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
            client_id=self._context.client_id,
            client_host=f"/{self._context.peer_host}",
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            subscribed_topics=tuple(sorted(set(subscription.topics))),
            subscribed_regex="",
            server_assignor=None,
            classic=ClassicMember(
                request.session_timeout_ms,
                tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
            ),
        )
        is_new = member.member_id not in group.members
        if is_new or described != member:
            self._edit.put_member(described)
        before = (member.subscribed_topics, member.subscribed_regex)
        return is_new or (described.subscribed_topics, described.subscribed_regex) != before

    def _maybe_downgrade(self, took_a_place: bool) -> None:
        """Downgrade the group when a classic static member replaces the last member of the other protocol. In
        a stable group nothing moves, so no member needs to join again.
        """
        steps, edit = self._steps, self._edit
        settings, classic = steps.settings, steps.surroundings.shard_of("classic")
        if not took_a_place or classic is None:
            return
        if downgrade.may_convert(edit.group, (), settings.migration_policy, settings.classic_size_max):
            steps.stop_timers(edit)
            settled = edit.group.state is GroupState.STABLE
            downgrade.convert(edit, classic, steps.image(), rebalances=not settled)
            self.stays = False


def _is_supported(group: ConsumerGroup, protocols: set[str]) -> bool:
    """Whether all classic members support at least one of these protocols."""
    common = set(protocols)
    for member in group.members.values():
        if member.classic is not None:
            common &= {name for name, _ in member.classic.protocols}
    return bool(common)
