# Written by tools/convert_messages.py from the message schemas of Apache Kafka 3.9.2; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ControlledShutdown, API key 7: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ControlledShutdownRequest(Message):
    """A broker asks a ZooKeeper cluster's controller to move its leaders away. Versions 0-3, flexible from 3.

    Version 0 stands behind a header without a client id, which nobody has sent since Kafka 0.9: serve 1-3.
    """

    meta: ClassVar[Api] = Api("ControlledShutdownRequest", 7, "request", valid="0-3", flexible="3+")

    broker_id: Annotated[int, Wire("int32")] = 0
    broker_epoch: Annotated[int, Wire("int64", versions="2+", ignorable=True)] = -1


class RemainingPartition(Struct):
    """Part of ControlledShutdownResponse."""

    topic_name: Annotated[str, Wire("string")] = ""
    partition_index: Annotated[int, Wire("int32")] = 0


class ControlledShutdownResponse(Message):
    """The partitions that the broker still leads; it asks again while there are some. Versions 0-3, flexible
    from 3.
    """

    meta: ClassVar[Api] = Api("ControlledShutdownResponse", 7, "response", valid="0-3", flexible="3+")

    error_code: Annotated[int, Wire("int16")] = 0
    remaining_partitions: Annotated[list[RemainingPartition], Wire("[]struct")] = field(default_factory=list)
