# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""SaslHandshake, API key 17: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Wire


class SaslHandshakeRequest(Message):
    """API 17, request: versions 0-1, never flexible."""

    meta: ClassVar[Api] = Api("SaslHandshakeRequest", 17, "request", valid="0-1", flexible="none")

    mechanism: Annotated[str, Wire("string")] = ""


class SaslHandshakeResponse(Message):
    """API 17, response: versions 0-1, never flexible."""

    meta: ClassVar[Api] = Api("SaslHandshakeResponse", 17, "response", valid="0-1", flexible="none")

    error_code: Annotated[int, Wire("int16")] = 0
    mechanisms: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
