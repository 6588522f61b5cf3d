# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""BrokerHeartbeat, API key 63: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Wire


class BrokerHeartbeatRequest(Message):
    """API 63, request: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("BrokerHeartbeatRequest", 63, "request", valid="0-2", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1
    current_metadata_offset: Annotated[int, Wire("int64")] = 0
    want_fence: Annotated[bool, Wire("bool")] = False
    want_shut_down: Annotated[bool, Wire("bool")] = False
    offline_log_dirs: Annotated[list[bytes], Wire("[]uuid", versions="1+", tag=0, tagged="1+")] = field(
        default_factory=list
    )
    cordoned_log_dirs: Annotated[
        list[bytes] | None, Wire("[]uuid", versions="2+", nullable="2+", tag=1, tagged="2+")
    ] = None


class BrokerHeartbeatResponse(Message):
    """API 63, response: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("BrokerHeartbeatResponse", 63, "response", valid="0-2", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    is_caught_up: Annotated[bool, Wire("bool")] = False
    is_fenced: Annotated[bool, Wire("bool")] = True
    should_shut_down: Annotated[bool, Wire("bool")] = False
