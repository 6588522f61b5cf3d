"""The plug-in: the hook that makes the group type, and its error answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupShard, Submit, Surroundings
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.wire.api import ApiKey
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey, GroupMetadataValue
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from blumfeld.wire.messages.leave_group import LeaveGroupResponse
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld.wire.schema import Message
from blumfeld_groups_classic.join import Limits
from blumfeld_groups_classic.shard import NAME, ClassicGroups


class ClassicGroupProtocol:
    """The group type ``classic``: implements ``spi.groups.GroupProtocol``."""

    name = NAME
    record_types: Mapping[int, tuple[type[Message], type[Message]]] = {
        2: (GroupMetadataKey, GroupMetadataValue)
    }
    apis: Mapping[int, tuple[int, int]] = {
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
    }
    guest_apis: frozenset[int] = frozenset()

    def new_shard(self, surroundings: Surroundings) -> GroupShard:
        """Make an empty shard with the broker's group configuration."""
        config = surroundings.config
        limits = Limits(
            session_timeout_ms_min=config.int("group.min.session.timeout.ms"),
            session_timeout_ms_max=config.int("group.max.session.timeout.ms"),
            members_max=config.int("group.max.size"),
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
        )
        return ClassicGroups(limits, surroundings.new_member_id)

    def handlers(self, submit: Submit) -> Sequence[ApiHandler]:
        """None, because each request names one group and one shard can answer it."""
        return ()

    def error_response(self, request: Message, code: int, message: str | None) -> Message:
        """An error response with this code at top level."""
        match request:
            case JoinGroupRequest():
                return JoinGroupResponse(error_code=code, member_id=request.member_id)
            case SyncGroupRequest():
                return SyncGroupResponse(error_code=code)
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=code)
            case _:
                return LeaveGroupResponse(error_code=code)


class Plugin:
    """The plug-in ``groups_classic``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("groups",)

    @hookimpl
    def blumfeld_make_group_protocol(self, composition: Composition) -> ClassicGroupProtocol:
        """The group type ``classic``."""
        return ClassicGroupProtocol()
