# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ListConfigResources, API key 74: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ListConfigResourcesRequest(Message):
    """API 74, request: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("ListConfigResourcesRequest", 74, "request", valid="0-1", flexible="0+")

    resource_types: Annotated[list[int], Wire("[]int8", versions="1+")] = field(default_factory=list)


class ConfigResource(Struct):
    """Part of ListConfigResourcesResponse."""

    resource_name: Annotated[str, Wire("string")] = ""
    resource_type: Annotated[int, Wire("int8", versions="1+", ignorable=True)] = 16


class ListConfigResourcesResponse(Message):
    """API 74, response: versions 0-1, flexible."""

    meta: ClassVar[Api] = Api("ListConfigResourcesResponse", 74, "response", valid="0-1", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    config_resources: Annotated[list[ConfigResource], Wire("[]struct")] = field(default_factory=list)
