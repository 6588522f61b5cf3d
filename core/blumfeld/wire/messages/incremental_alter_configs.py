# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""IncrementalAlterConfigs, API key 44: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class AlterableConfig(Struct):
    """Part of IncrementalAlterConfigsRequest."""

    name: Annotated[str, Wire("string")] = ""
    config_operation: Annotated[int, Wire("int8")] = 0
    value: Annotated[str | None, Wire("string", nullable="0+")] = ""


class AlterConfigsResource(Struct):
    """Part of IncrementalAlterConfigsRequest."""

    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    configs: Annotated[list[AlterableConfig], Wire("[]struct")] = field(default_factory=list)


class IncrementalAlterConfigsRequest(Message):
    """API 44, request: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("IncrementalAlterConfigsRequest", 44, "request", valid="0-1", flexible="1+")

    resources: Annotated[list[AlterConfigsResource], Wire("[]struct")] = field(default_factory=list)
    validate_only: Annotated[bool, Wire("bool")] = False


class AlterConfigsResourceResponse(Struct):
    """Part of IncrementalAlterConfigsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""


class IncrementalAlterConfigsResponse(Message):
    """API 44, response: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("IncrementalAlterConfigsResponse", 44, "response", valid="0-1", flexible="1+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    responses: Annotated[list[AlterConfigsResourceResponse], Wire("[]struct")] = field(default_factory=list)
