# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""BrokerRegistration, API key 62: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Api, Message, Struct, Wire


class Listener(Struct):
    """Part of BrokerRegistrationRequest."""

    name: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    port: Annotated[int, Wire("uint16")] = 0
    security_protocol: Annotated[int, Wire("int16")] = 0


class Feature(Struct):
    """Part of BrokerRegistrationRequest."""

    name: Annotated[str, Wire("string")] = ""
    min_supported_version: Annotated[int, Wire("int16")] = 0
    max_supported_version: Annotated[int, Wire("int16")] = 0


class BrokerRegistrationRequest(Message):
    """API 62, request: versions 0-4, flexible."""

    meta: ClassVar[Api] = Api("BrokerRegistrationRequest", 62, "request", valid="0-4", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    cluster_id: Annotated[str, Wire("string")] = ""
    incarnation_id: Annotated[bytes, Wire("uuid")] = ZERO_UUID
    listeners: Annotated[list[Listener], Wire("[]struct")] = field(default_factory=list)
    features: Annotated[list[Feature], Wire("[]struct")] = field(default_factory=list)
    rack: Annotated[str | None, Wire("string", nullable="0+")] = ""
    is_migrating_zk_broker: Annotated[bool, Wire("bool", versions="1+")] = False
    log_dirs: Annotated[list[bytes], Wire("[]uuid", versions="2+", ignorable=True)] = field(
        default_factory=list
    )
    previous_broker_epoch: Annotated[int, Wire("int64", versions="3+", ignorable=True)] = -1


class BrokerRegistrationResponse(Message):
    """API 62, response: versions 0-4, flexible."""

    meta: ClassVar[Api] = Api("BrokerRegistrationResponse", 62, "response", valid="0-4", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1
