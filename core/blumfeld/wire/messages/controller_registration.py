# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ControllerRegistration, API key 70: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class Listener(Struct):
    """Part of ControllerRegistrationRequest."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0
    security_protocol: Annotated[int, Wire("int16")] = 0


class Feature(Struct):
    """Part of ControllerRegistrationRequest."""

    name: Annotated[str, Wire("string")] = ""
    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


class ControllerRegistrationRequest(Message):
    """API 70, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("ControllerRegistrationRequest", 70, "request", valid="0", flexible="0+")

    controller_id: Annotated[int, Wire("int32")] = 0
    incarnation_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    zk_migration_ready: Annotated[bool, Wire("bool")] = False
    listeners: Annotated[list[Listener], Wire("[]struct")] = field(default_factory=list)
    features: Annotated[list[Feature], Wire("[]struct")] = field(default_factory=list)


class ControllerRegistrationResponse(Message):
    """API 70, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("ControllerRegistrationResponse", 70, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
