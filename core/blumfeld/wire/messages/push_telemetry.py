# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""PushTelemetry, API key 72: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Wire


class PushTelemetryRequest(Message):
    """API 72, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("PushTelemetryRequest", 72, "request", valid="0", flexible="0+")

    client_instance_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    subscription_id: Annotated[int, Wire("int32")] = 0
    terminating: Annotated[bool, Wire("bool")] = False
    compression_type: Annotated[int, Wire("int8")] = 0
    metrics: Annotated[bytes, Wire("bytes")] = b""


class PushTelemetryResponse(Message):
    """API 72, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("PushTelemetryResponse", 72, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
