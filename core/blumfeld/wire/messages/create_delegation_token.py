# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""CreateDelegationToken, API key 38: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class CreatableRenewers(Struct):
    """Part of CreateDelegationTokenRequest."""

    principal_type: Annotated[str, Wire("string")] = ""
    principal_name: Annotated[str, Wire("string")] = ""


class CreateDelegationTokenRequest(Message):
    """API 38, request: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("CreateDelegationTokenRequest", 38, "request", valid="1-3", flexible="2+")

    owner_principal_type: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = ""
    owner_principal_name: Annotated[str | None, Wire("string", versions="3+", nullable="3+")] = ""
    renewers: Annotated[list[CreatableRenewers], Wire("[]struct")] = field(default_factory=list)
    max_lifetime_ms: Annotated[int, Wire("int64")] = 0


class CreateDelegationTokenResponse(Message):
    """API 38, response: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("CreateDelegationTokenResponse", 38, "response", valid="1-3", flexible="2+")

    error_code: Annotated[int, Wire("int16")] = 0
    principal_type: Annotated[str, Wire("string")] = ""
    principal_name: Annotated[str, Wire("string")] = ""
    token_requester_principal_type: Annotated[str, Wire("string", versions="3+")] = ""
    token_requester_principal_name: Annotated[str, Wire("string", versions="3+")] = ""
    issue_timestamp_ms: Annotated[int, Wire("int64")] = 0
    expiry_timestamp_ms: Annotated[int, Wire("int64")] = 0
    max_timestamp_ms: Annotated[int, Wire("int64")] = 0
    token_id: Annotated[str, Wire("string")] = ""
    hmac: Annotated[bytes, Wire("bytes")] = b""
    throttle_time_ms: Annotated[int, Wire("int32")] = 0
