# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Envelope, API key 58: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class EnvelopeRequest(Message):
    """API 58, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("EnvelopeRequest", 58, "request", valid="0", flexible="0+")

    request_data: Annotated[bytes, Wire("bytes")] = b""
    request_principal: Annotated[bytes | None, Wire("bytes", nullable="0+")] = b""
    client_host_address: Annotated[bytes, Wire("bytes")] = b""


class EnvelopeResponse(Message):
    """API 58, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("EnvelopeResponse", 58, "response", valid="0", flexible="0+")

    response_data: Annotated[bytes | None, Wire("bytes", nullable="0+")] = None
    error_code: Annotated[int, Wire("int16")] = 0
