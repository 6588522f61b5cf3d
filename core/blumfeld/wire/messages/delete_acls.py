# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DeleteAcls, API key 31: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DeleteAclsFilter(Struct):
    """Part of DeleteAclsRequest."""

    resource_type_filter: Annotated[int, Wire("int8")] = 0
    resource_name_filter: Annotated[str | None, Wire("string", nullable="0+")] = ""
    pattern_type_filter: Annotated[int, Wire("int8", versions="1+")] = 3
    principal_filter: Annotated[str | None, Wire("string", nullable="0+")] = ""
    host_filter: Annotated[str | None, Wire("string", nullable="0+")] = ""
    operation: Annotated[int, Wire("int8")] = 0
    permission_type: Annotated[int, Wire("int8")] = 0


class DeleteAclsRequest(Message):
    """API 31, request: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("DeleteAclsRequest", 31, "request", valid="1-3", flexible="2+")

    filters: Annotated[list[DeleteAclsFilter], Wire("[]struct")] = field(default_factory=list)


class DeleteAclsMatchingAcl(Struct):
    """Part of DeleteAclsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    pattern_type: Annotated[int, Wire("int8", versions="1+")] = 3
    principal: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    operation: Annotated[int, Wire("int8")] = 0
    permission_type: Annotated[int, Wire("int8")] = 0


class DeleteAclsFilterResult(Struct):
    """Part of DeleteAclsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    matching_acls: Annotated[list[DeleteAclsMatchingAcl], Wire("[]struct")] = field(default_factory=list)


class DeleteAclsResponse(Message):
    """API 31, response: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("DeleteAclsResponse", 31, "response", valid="1-3", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    filter_results: Annotated[list[DeleteAclsFilterResult], Wire("[]struct")] = field(default_factory=list)
