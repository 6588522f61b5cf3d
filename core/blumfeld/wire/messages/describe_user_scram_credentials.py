# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeUserScramCredentials, API key 50: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class UserName(Struct):
    """Part of DescribeUserScramCredentialsRequest."""

    name: Annotated[str, Wire("string")] = ""


class DescribeUserScramCredentialsRequest(Message):
    """API 50, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeUserScramCredentialsRequest", 50, "request", valid="0", flexible="0+")

    users: Annotated[list[UserName] | None, Wire("[]struct", nullable="0+")] = field(default_factory=list)


class CredentialInfo(Struct):
    """Part of DescribeUserScramCredentialsResponse."""

    mechanism: Annotated[int, Wire("int8")] = 0
    iterations: Annotated[int, Wire("int32")] = 0


class DescribeUserScramCredentialsResult(Struct):
    """Part of DescribeUserScramCredentialsResponse."""

    user: Annotated[str, Wire("string")] = ""
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    credential_infos: Annotated[list[CredentialInfo], Wire("[]struct")] = field(default_factory=list)


class DescribeUserScramCredentialsResponse(Message):
    """API 50, response: version 0, flexible."""

    meta: ClassVar[Api] = Api(
        "DescribeUserScramCredentialsResponse", 50, "response", valid="0", flexible="0+"
    )

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    results: Annotated[list[DescribeUserScramCredentialsResult], Wire("[]struct")] = field(
        default_factory=list
    )
