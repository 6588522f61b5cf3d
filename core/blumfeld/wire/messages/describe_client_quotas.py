# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeClientQuotas, API key 48: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ComponentData(Struct):
    """Part of DescribeClientQuotasRequest."""

    entity_type: Annotated[str, Wire("string")] = ""
    match_type: Annotated[int, Wire("int8")] = 0
    match: Annotated[str | None, Wire("string", nullable="0+")] = ""


class DescribeClientQuotasRequest(Message):
    """API 48, request: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("DescribeClientQuotasRequest", 48, "request", valid="0-1", flexible="1+")

    components: Annotated[list[ComponentData], Wire("[]struct")] = field(default_factory=list)
    strict: Annotated[bool, Wire("bool")] = False


class EntityData(Struct):
    """Part of DescribeClientQuotasResponse."""

    entity_type: Annotated[str, Wire("string")] = ""
    entity_name: Annotated[str | None, Wire("string", nullable="0+")] = ""


class ValueData(Struct):
    """Part of DescribeClientQuotasResponse."""

    key: Annotated[str, Wire("string")] = ""
    value: Annotated[float, Wire("float64")] = 0.0


class EntryData(Struct):
    """Part of DescribeClientQuotasResponse."""

    entity: Annotated[list[EntityData], Wire("[]struct")] = field(default_factory=list)
    values: Annotated[list[ValueData], Wire("[]struct")] = field(default_factory=list)


class DescribeClientQuotasResponse(Message):
    """API 48, response: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("DescribeClientQuotasResponse", 48, "response", valid="0-1", flexible="1+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    entries: Annotated[list[EntryData] | None, Wire("[]struct", nullable="0+")] = field(default_factory=list)
