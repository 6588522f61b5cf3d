# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""EndTxn, API key 26: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class EndTxnRequest(Message):
    """API 26, request: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("EndTxnRequest", 26, "request", valid="0-5", flexible="3+")

    transactional_id: Annotated[str, Wire("string")] = ""
    producer_id: Annotated[int, Wire("int64")] = 0
    producer_epoch: Annotated[int, Wire("int16")] = 0
    committed: Annotated[bool, Wire("bool")] = False


class EndTxnResponse(Message):
    """API 26, response: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("EndTxnResponse", 26, "response", valid="0-5", flexible="3+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    producer_id: Annotated[int, Wire("int64", versions="5+", ignorable=True)] = -1
    producer_epoch: Annotated[int, Wire("int16", versions="5+", ignorable=True)] = -1
