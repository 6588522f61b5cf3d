# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterClientQuotas, API key 49: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class EntityData(Struct):
    """Part of AlterClientQuotasRequest, AlterClientQuotasResponse."""

    entity_type: Annotated[str, Wire("string")] = ""
    entity_name: Annotated[str | None, Wire("string", nullable="0+")] = ""


class OpData(Struct):
    """Part of AlterClientQuotasRequest."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[float, Wire("float64")] = 0.0
    remove: Annotated[bool, Wire("bool")] = False


class RequestEntryData(Struct):
    """Part of AlterClientQuotasRequest."""

    entity: Annotated[list[EntityData], Wire("[]struct")] = field(default_factory=list)
    ops: Annotated[list[OpData], Wire("[]struct")] = field(default_factory=list)


class AlterClientQuotasRequest(Message):
    """API 49, request: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("AlterClientQuotasRequest", 49, "request", valid="0-1", flexible="1+")

    entries: Annotated[list[RequestEntryData], Wire("[]struct")] = field(default_factory=list)
    validate_only: Annotated[bool, Wire("bool")] = False


class ResponseEntryData(Struct):
    """Part of AlterClientQuotasResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    entity: Annotated[list[EntityData], Wire("[]struct")] = field(default_factory=list)


class AlterClientQuotasResponse(Message):
    """API 49, response: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("AlterClientQuotasResponse", 49, "response", valid="0-1", flexible="1+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    entries: Annotated[list[ResponseEntryData], Wire("[]struct")] = field(default_factory=list)
