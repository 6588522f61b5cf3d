# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ExpireDelegationToken, API key 40: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class ExpireDelegationTokenRequest(Message):
    """API 40, request: versions 1-2, flexible from 2."""

    meta: ClassVar[Api] = Api("ExpireDelegationTokenRequest", 40, "request", valid="1-2", flexible="2+")

    hmac: Annotated[bytes, Wire("bytes")] = b""
    expiry_time_period_ms: Annotated[int, Wire("int64")] = 0


class ExpireDelegationTokenResponse(Message):
    """API 40, response: versions 1-2, flexible from 2."""

    meta: ClassVar[Api] = Api("ExpireDelegationTokenResponse", 40, "response", valid="1-2", flexible="2+")

    error_code: Annotated[int, Wire("int16")] = 0
    expiry_timestamp_ms: Annotated[int, Wire("int64")] = 0
    throttle_time_ms: Annotated[int, Wire("int32")] = 0
