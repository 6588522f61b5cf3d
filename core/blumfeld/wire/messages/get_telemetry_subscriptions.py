# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""GetTelemetrySubscriptions, API key 71: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Wire


class GetTelemetrySubscriptionsRequest(Message):
    """API 71, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("GetTelemetrySubscriptionsRequest", 71, "request", valid="0", flexible="0+")

    client_instance_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID


class GetTelemetrySubscriptionsResponse(Message):
    """API 71, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("GetTelemetrySubscriptionsResponse", 71, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    client_instance_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    subscription_id: Annotated[int, Wire("int32")] = 0
    accepted_compression_types: Annotated[list[int], Wire("[]int8")] = field(default_factory=list)
    push_interval_ms: Annotated[int, Wire("int32")] = 0
    telemetry_max_bytes: Annotated[int, Wire("int32")] = 0
    delta_temporality: Annotated[bool, Wire("bool")] = False
    requested_metrics: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
