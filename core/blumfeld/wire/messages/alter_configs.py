# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterConfigs, API key 33: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class AlterableConfig(Struct):
    """Part of AlterConfigsRequest."""

    name: Annotated[str, Wire("string")] = ""
    value: Annotated[str | None, Wire("string", nullable="0+")] = ""


class AlterConfigsResource(Struct):
    """Part of AlterConfigsRequest."""

    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    configs: Annotated[list[AlterableConfig], Wire("[]struct")] = field(default_factory=list)


class AlterConfigsRequest(Message):
    """API 33, request: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("AlterConfigsRequest", 33, "request", valid="0-2", flexible="2+")

    resources: Annotated[list[AlterConfigsResource], Wire("[]struct")] = field(default_factory=list)
    validate_only: Annotated[bool, Wire("bool")] = False


class AlterConfigsResourceResponse(Struct):
    """Part of AlterConfigsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""


class AlterConfigsResponse(Message):
    """API 33, response: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("AlterConfigsResponse", 33, "response", valid="0-2", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    responses: Annotated[list[AlterConfigsResourceResponse], Wire("[]struct")] = field(default_factory=list)
