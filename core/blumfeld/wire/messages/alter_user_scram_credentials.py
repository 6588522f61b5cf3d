# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AlterUserScramCredentials, API key 51: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ScramCredentialDeletion(Struct):
    """Part of AlterUserScramCredentialsRequest."""

    name: Annotated[str, Wire("string")] = ""
    mechanism: Annotated[int, Wire("int8")] = 0


class ScramCredentialUpsertion(Struct):
    """Part of AlterUserScramCredentialsRequest."""

    name: Annotated[str, Wire("string")] = ""
    mechanism: Annotated[int, Wire("int8")] = 0
    iterations: Annotated[int, Wire("int32")] = 0
    salt: Annotated[bytes, Wire("bytes")] = b""
    salted_password: Annotated[bytes, Wire("bytes")] = b""


class AlterUserScramCredentialsRequest(Message):
    """API 51, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("AlterUserScramCredentialsRequest", 51, "request", valid="0", flexible="0+")

    deletions: Annotated[list[ScramCredentialDeletion], Wire("[]struct")] = field(default_factory=list)
    upsertions: Annotated[list[ScramCredentialUpsertion], Wire("[]struct")] = field(default_factory=list)


class AlterUserScramCredentialsResult(Struct):
    """Part of AlterUserScramCredentialsResponse."""

    user: Annotated[str, Wire("string")] = ""
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""


class AlterUserScramCredentialsResponse(Message):
    """API 51, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("AlterUserScramCredentialsResponse", 51, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    results: Annotated[list[AlterUserScramCredentialsResult], Wire("[]struct")] = field(default_factory=list)
