"""The group type: its APIs, its record types, and its error answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupShard, Submit, Surroundings
from blumfeld.spi.steps import by_elements
from blumfeld.wire.api import ApiKey
from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_groups_kip848.assignors import bundled_assignors
from blumfeld_groups_kip848.record_types import RECORD_TYPES

if TYPE_CHECKING:
    from blumfeld_groups_kip848.describe import DescribeApi


class ConsumerGroupProtocol:
    """The group type ``consumer``: implements ``spi.groups.GroupProtocol``."""

    name = "consumer"
    record_types: Mapping[int, tuple[type[Message], type[Message]]] = RECORD_TYPES
    apis: Mapping[int, tuple[int, int]] = {ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1)}
    guest_apis: frozenset[int] = frozenset(
        {ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP}
    )
    """Requests that a classic member sends to a group that is being migrated."""

    def __init__(self, assignors: Sequence[ConsumerAssignor] | None = None) -> None:
        """``assignors``: all assignors of the build; ``None`` means Kafka's two, ``uniform`` and ``range``."""
        self._assignors = bundled_assignors() if assignors is None else assignors

    def new_shard(self, surroundings: Surroundings) -> GroupShard:
        """Make an empty shard with the broker's configuration."""
        from blumfeld_groups_kip848.shard import (
            ConsumerGroups,
        )  # Imported here so that only brokers that coordinate groups pay for it.

        return ConsumerGroups(surroundings, self._assignors)

    def handlers(self, submit: Submit) -> Sequence[ApiHandler]:
        """The handler for ConsumerGroupDescribe. This API names several groups, so one shard cannot answer it
        alone.
        """

        def api() -> DescribeApi:
            from blumfeld_groups_kip848.describe import DescribeApi

            return DescribeApi(submit)

        handler = ApiHandler(
            key=ApiKey.CONSUMER_GROUP_DESCRIBE,
            min_version=0,
            max_version=1,
            handle=lambda request, context: api().describe(request, context),
            error_response=lambda request, code, message: api().failed(request, code, message),
            in_steps=by_elements(lambda: handler, ("group_ids",), ("groups",)),
        )
        return (handler,)

    def error_response(self, request: Message, code: int, message: str | None) -> Message:
        """The error response to a heartbeat. Classic requests get theirs from the type that brings their
        APIs.
        """
        return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
