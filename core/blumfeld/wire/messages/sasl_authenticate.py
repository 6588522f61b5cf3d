# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""SaslAuthenticate, API key 36: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class SaslAuthenticateRequest(Message):
    """API 36, request: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("SaslAuthenticateRequest", 36, "request", valid="0-2", flexible="2+")

    auth_bytes: Annotated[bytes, Wire("bytes")] = b""


class SaslAuthenticateResponse(Message):
    """API 36, response: versions 0-2, flexible from 2."""

    meta: ClassVar[Api] = Api("SaslAuthenticateResponse", 36, "response", valid="0-2", flexible="2+")

    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
    auth_bytes: Annotated[bytes, Wire("bytes")] = b""
    session_lifetime_ms: Annotated[int, Wire("int64", versions="1+", ignorable=True)] = 0
