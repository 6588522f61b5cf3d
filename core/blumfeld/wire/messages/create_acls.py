# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""CreateAcls, API key 30: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class AclCreation(Struct):
    """Part of CreateAclsRequest."""

    resource_type: Annotated[int, Wire("int8")] = 0
    resource_name: Annotated[str, Wire("string")] = ""
    resource_pattern_type: Annotated[int, Wire("int8", versions="1+")] = 3
    principal: Annotated[str, Wire("string")] = ""
    host: Annotated[str, Wire("string")] = ""
    operation: Annotated[int, Wire("int8")] = 0
    permission_type: Annotated[int, Wire("int8")] = 0


class CreateAclsRequest(Message):
    """API 30, request: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("CreateAclsRequest", 30, "request", valid="1-3", flexible="2+")

    creations: Annotated[list[AclCreation], Wire("[]struct")] = field(default_factory=list)


class AclCreationResult(Struct):
    """Part of CreateAclsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""


class CreateAclsResponse(Message):
    """API 30, response: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("CreateAclsResponse", 30, "response", valid="1-3", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    results: Annotated[list[AclCreationResult], Wire("[]struct")] = field(default_factory=list)
