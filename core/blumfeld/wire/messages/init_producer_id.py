# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""InitProducerId, API key 22: request and response."""

from typing import Annotated, ClassVar

from blumfeld.wire.schema import Api, Message, Wire


class InitProducerIdRequest(Message):
    """Get a producer id and epoch. Versions 0-5, and 6 unstable; flexible from 2.

    A null ``transactional_id`` is an idempotent producer. ``producer_id`` and ``producer_epoch`` (version 3,
    KIP-360) ask to go on from an epoch; -1 for a new one.
    """

    meta: ClassVar[Api] = Api("InitProducerIdRequest", 22, "request", valid="0-6", flexible="2+")

    transactional_id: Annotated[str | None, Wire("string", nullable="0+")] = ""
    transaction_timeout_ms: Annotated[int, Wire("int32")] = 0
    producer_id: Annotated[int, Wire("int64", versions="3+")] = -1
    producer_epoch: Annotated[int, Wire("int16", versions="3+")] = -1
    enable_2pc: Annotated[bool, Wire("bool", versions="6+", name="enable2Pc")] = False
    keep_prepared_txn: Annotated[bool, Wire("bool", versions="6+")] = False


class InitProducerIdResponse(Message):
    """A producer id and its epoch; both -1 after an error. Versions 0-5, and 6 unstable; flexible from 2."""

    meta: ClassVar[Api] = Api("InitProducerIdResponse", 22, "response", valid="0-6", flexible="2+")

    throttle_time_ms: Annotated[int, Wire("int32", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    producer_id: Annotated[int, Wire("int64")] = -1
    producer_epoch: Annotated[int, Wire("int16")] = 0
    ongoing_txn_producer_id: Annotated[int, Wire("int64", versions="6+")] = -1
    ongoing_txn_producer_epoch: Annotated[int, Wire("int16", versions="6+")] = -1
