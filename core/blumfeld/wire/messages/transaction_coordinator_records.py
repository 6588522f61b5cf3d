# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The records of __transaction_state: keys by record type."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class TransactionLogKey(Message):
    """Key of record type 0: version 0, never flexible."""

    meta: ClassVar[Api] = Api("TransactionLogKey", 0, "coordinator-key", valid="0", flexible="none")

    transactional_id: Annotated[str, Wire("string", versions="0")] = ""


class PartitionsSchema(Struct):
    """Part of TransactionLogValue."""

    topic: Annotated[str, Wire("string")] = ""
    partition_ids: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class TransactionLogValue(Message):
    """Value of record type 0: versions 0-1, flexible from 1."""

    meta: ClassVar[Api] = Api("TransactionLogValue", 0, "coordinator-value", valid="0-1", flexible="1+")

    producer_id: Annotated[int, Wire("int64")] = 0
    previous_producer_id: Annotated[int, Wire("int64", versions="1+", tag=0, tagged="1+")] = -1
    next_producer_id: Annotated[int, Wire("int64", versions="1+", tag=1, tagged="1+")] = -1
    producer_epoch: Annotated[int, Wire("int16")] = 0
    next_producer_epoch: Annotated[int, Wire("int16", versions="1+", tag=3, tagged="1+")] = -1
    transaction_timeout_ms: Annotated[int, Wire("int32")] = 0
    transaction_status: Annotated[int, Wire("int8")] = 0
    transaction_partitions: Annotated[list[PartitionsSchema] | None, Wire("[]struct", nullable="0+")] = field(
        default_factory=list
    )
    transaction_last_update_timestamp_ms: Annotated[int, Wire("int64")] = 0
    transaction_start_timestamp_ms: Annotated[int, Wire("int64")] = 0
    client_transaction_version: Annotated[int, Wire("int16", versions="1+", tag=2, tagged="1+")] = 0


KEY_TYPES: dict[int, type[Message]] = {
    0: TransactionLogKey,
}
"""The class of each key, by record type."""

VALUE_TYPES: dict[int, type[Message]] = {
    0: TransactionLogValue,
}
"""The class of each value, by the record type of its key."""
