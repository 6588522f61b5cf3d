# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""UnregisterBroker, API key 64: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class UnregisterBrokerRequest(Message):
    """API 64, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("UnregisterBrokerRequest", 64, "request", valid="0", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0


class UnregisterBrokerResponse(Message):
    """API 64, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("UnregisterBrokerResponse", 64, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    error_message: Annotated[str | None, Wire("string", nullable="0+")] = ""
