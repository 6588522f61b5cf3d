# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AddOffsetsToTxn, API key 25: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class AddOffsetsToTxnRequest(Message):
    """API 25, request: versions 0-4, flexible from 3."""

    meta: ClassVar[Api] = Api("AddOffsetsToTxnRequest", 25, "request", valid="0-4", flexible="3+")

    transactional_id: Annotated[str, Wire("string")] = ""
    producer_id: Annotated[int, Wire("int64")] = 0
    producer_epoch: Annotated[int, Wire("int16")] = 0
    group_id: Annotated[str, Wire("string")] = ""


class AddOffsetsToTxnResponse(Message):
    """API 25, response: versions 0-4, flexible from 3."""

    meta: ClassVar[Api] = Api("AddOffsetsToTxnResponse", 25, "response", valid="0-4", flexible="3+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
