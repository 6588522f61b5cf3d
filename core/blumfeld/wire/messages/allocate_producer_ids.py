# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AllocateProducerIds, API key 67: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class AllocateProducerIdsRequest(Message):
    """API 67, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("AllocateProducerIdsRequest", 67, "request", valid="0", flexible="0+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64")] = -1


class AllocateProducerIdsResponse(Message):
    """API 67, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("AllocateProducerIdsResponse", 67, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    producer_id_start: Annotated[int, Wire("int64")] = 0
    producer_id_len: Annotated[int, Wire("int32")] = 0
