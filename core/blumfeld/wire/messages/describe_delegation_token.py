# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeDelegationToken, API key 41: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribeDelegationTokenOwner(Struct):
    """Part of DescribeDelegationTokenRequest."""

    principal_type: Annotated[str, Wire("string")] = ""
    principal_name: Annotated[str, Wire("string")] = ""


class DescribeDelegationTokenRequest(Message):
    """API 41, request: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("DescribeDelegationTokenRequest", 41, "request", valid="1-3", flexible="2+")

    owners: Annotated[list[DescribeDelegationTokenOwner] | None, Wire("[]struct", nullable="0+")] = field(
        default_factory=list
    )


class DescribedDelegationTokenRenewer(Struct):
    """Part of DescribeDelegationTokenResponse."""

    principal_type: Annotated[str, Wire("string")] = ""
    principal_name: Annotated[str, Wire("string")] = ""


class DescribedDelegationToken(Struct):
    """Part of DescribeDelegationTokenResponse."""

    principal_type: Annotated[str, Wire("string")] = ""
    principal_name: Annotated[str, Wire("string")] = ""
    token_requester_principal_type: Annotated[str, Wire("string", versions="3+")] = ""
    token_requester_principal_name: Annotated[str, Wire("string", versions="3+")] = ""
    issue_timestamp: Annotated[int, Wire("int64")] = 0
    expiry_timestamp: Annotated[int, Wire("int64")] = 0
    max_timestamp: Annotated[int, Wire("int64")] = 0
    token_id: Annotated[str, Wire("string")] = ""
    hmac: Annotated[bytes, Wire("bytes")] = b""
    renewers: Annotated[list[DescribedDelegationTokenRenewer], Wire("[]struct")] = field(default_factory=list)


class DescribeDelegationTokenResponse(Message):
    """API 41, response: versions 1-3, flexible from 2."""

    meta: ClassVar[Api] = Api("DescribeDelegationTokenResponse", 41, "response", valid="1-3", flexible="2+")

    error_code: Annotated[int, Wire("int16")] = 0
    tokens: Annotated[list[DescribedDelegationToken], Wire("[]struct")] = field(default_factory=list)
    throttle_time_ms: Annotated[int, Wire("int32")] = 0
