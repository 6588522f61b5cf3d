"""The group type: its APIs, its record types, and its error answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.context import ApiHandler, LazyHandler
from blumfeld.spi.groups import GroupShard, Submit, Surroundings
from blumfeld.spi.steps import in_parts
from blumfeld.wire.api import ApiKey
from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
)
from blumfeld.wire.schema import Message
from blumfeld_groups_kip848.assignors import bundled_assignors
from blumfeld_groups_kip848.record_types import RECORD_TYPES


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

        def load() -> Sequence[ApiHandler]:
            from blumfeld_groups_kip848.describe import DescribeApi

            api = DescribeApi(submit)
            return (
                ApiHandler(
                    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
                    min_version=0,
                    max_version=1,
                    handle=in_parts(api.describe, api.failed, ("group_ids",), ("groups",)),
                    error_response=api.failed,
                ),
            )

        return (LazyHandler(ApiKey.CONSUMER_GROUP_DESCRIBE, load).handler(0, 1),)

    def error_response(self, request: Message, code: int, message: str | None) -> Message:
        """The error response to a heartbeat. Classic requests get theirs from the type that brings their
        APIs.
        """
        return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
