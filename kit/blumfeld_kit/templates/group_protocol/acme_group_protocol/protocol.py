"""The group type ``acme-group-protocol``: its APIs, its records, its error answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupShard, Submit, Surroundings
from blumfeld.wire.api import ApiKey
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey, GroupMetadataValue
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from blumfeld.wire.messages.leave_group import LeaveGroupResponse
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from blumfeld.wire.schema import Message

from .shard import NAME, AcmeGroupProtocolShard


class AcmeGroupProtocol:
    """``GroupProtocol``. It serves the requests of Kafka's classic groups, so every client can speak it."""

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
        """Return a shard without groups: there is one for each partition of ``__consumer_offsets``."""
        return AcmeGroupProtocolShard(surroundings.new_member_id)

    def handlers(self, submit: Submit) -> Sequence[ApiHandler]:
        """Return none: each request names one group."""
        return ()

    def error_response(self, request: Message, code: int, message: str | None) -> Message:
        """Return the answer that says so."""
        match request:
            case JoinGroupRequest():
                return JoinGroupResponse(error_code=code, member_id=request.member_id)
            case SyncGroupRequest():
                return SyncGroupResponse(error_code=code)
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=code)
            case _:
                return LeaveGroupResponse(error_code=code)
