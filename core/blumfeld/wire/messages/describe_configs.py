# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeConfigs, API key 32: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribeConfigsResource(Struct):
    """Part of DescribeConfigsRequest."""

    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    configuration_keys: Annotated[list[str] | None, Wire("[]string", nullable="0+")] = field(
        default_factory=list
    )


class DescribeConfigsRequest(Message):
    """API 32, request: versions 1-4, flexible from 4."""

    meta: ClassVar[Api] = Api("DescribeConfigsRequest", 32, "request", valid="1-4", flexible="4+")

    resources: Annotated[list[DescribeConfigsResource], Wire("[]struct")] = field(default_factory=list)
    include_synonyms: Annotated[bool, Wire("bool", versions="1+")] = False
    include_documentation: Annotated[bool, Wire("bool", versions="3+")] = False


class DescribeConfigsSynonym(Struct):
    """Part of DescribeConfigsResponse."""

    name: Annotated[str, Wire("string", versions="1+")] = ""
    value: Annotated[str | None, Wire("string", versions="1+", nullable="0+")] = ""
    source: Annotated[int, Wire("int8", versions="1+")] = 0


class DescribeConfigsResourceResult(Struct):
    """Part of DescribeConfigsResponse."""

    name: Annotated[str, Wire("string")] = ""
    value: Annotated[str | None, Wire("string", nullable="0+")] = ""
    read_only: Annotated[bool, Wire("bool")] = False
    config_source: Annotated[int, Wire("int8", versions="1+", ignorable=True)] = -1
    is_sensitive: Annotated[bool, Wire("bool")] = False
    synonyms: Annotated[list[DescribeConfigsSynonym], Wire("[]struct", versions="1+", ignorable=True)] = (
        field(default_factory=list)
    )
    config_type: Annotated[int, Wire("int8", versions="3+", ignorable=True)] = 0
    documentation: Annotated[str | None, Wire("string", versions="3+", nullable="0+", ignorable=True)] = ""


class DescribeConfigsResult(Struct):
    """Part of DescribeConfigsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    configs: Annotated[list[DescribeConfigsResourceResult], Wire("[]struct")] = field(default_factory=list)


class DescribeConfigsResponse(Message):
    """API 32, response: versions 1-4, flexible from 4."""

    meta: ClassVar[Api] = Api("DescribeConfigsResponse", 32, "response", valid="1-4", flexible="4+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    results: Annotated[list[DescribeConfigsResult], Wire("[]struct")] = field(default_factory=list)
