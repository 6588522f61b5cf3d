# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""The file of producer state beside a log segment."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ProducerEntry(Struct):
    """Part of ProducerSnapshot."""

    producer_id: Annotated[int, Wire("int64", versions="1")] = 0
    epoch: Annotated[int, Wire("int16", versions="1")] = 0
    last_sequence: Annotated[int, Wire("int32", versions="1")] = 0
    last_offset: Annotated[int, Wire("int64", versions="1")] = 0
    offset_delta: Annotated[int, Wire("int32", versions="1")] = 0
    timestamp: Annotated[int, Wire("int64", versions="1")] = 0
    coordinator_epoch: Annotated[int, Wire("int32", versions="1")] = 0
    current_txn_first_offset: Annotated[int, Wire("int64", versions="1")] = 0


class ProducerSnapshot(Message):
    """Data: version 1, never flexible."""

    meta: ClassVar[Api] = Api("ProducerSnapshot", None, "data", valid="1", flexible="none")

    crc: Annotated[int, Wire("uint32", versions="1")] = 0
    producer_entries: Annotated[list[ProducerEntry], Wire("[]struct", versions="1")] = field(
        default_factory=list
    )
