# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""RenewDelegationToken, API key 39: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class RenewDelegationTokenRequest(Message):
    """API 39, request: versions 1-2, flexible from 2."""

    meta: ClassVar[Api] = Api("RenewDelegationTokenRequest", 39, "request", valid="1-2", flexible="2+")

    hmac: Annotated[bytes, Wire("bytes")] = b""
    renew_period_ms: Annotated[int, Wire("int64")] = 0


class RenewDelegationTokenResponse(Message):
    """API 39, response: versions 1-2, flexible from 2."""

    meta: ClassVar[Api] = Api("RenewDelegationTokenResponse", 39, "response", valid="1-2", flexible="2+")

    error_code: Annotated[int, Wire("int16")] = 0
    expiry_timestamp_ms: Annotated[int, Wire("int64")] = 0
    throttle_time_ms: Annotated[int, Wire("int32")] = 0
