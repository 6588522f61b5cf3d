# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""WriteTxnMarkers, API key 27: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class WritableTxnMarkerTopic(Struct):
    """Part of WriteTxnMarkersRequest."""

    name: Annotated[str, Wire("string")] = ""
    partition_indexes: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class WritableTxnMarker(Struct):
    """Part of WriteTxnMarkersRequest."""

    producer_id: Annotated[int, Wire("int64")] = 0
    producer_epoch: Annotated[int, Wire("int16")] = 0
    transaction_result: Annotated[bool, Wire("bool")] = False
    topics: Annotated[list[WritableTxnMarkerTopic], Wire("[]struct")] = field(default_factory=list)
    coordinator_epoch: Annotated[int, Wire("int32")] = 0
    transaction_version: Annotated[int, Wire("int8", versions="2+", ignorable=True)] = 0


class WriteTxnMarkersRequest(Message):
    """API 27, request: versions 1-2, flexible."""

    meta: ClassVar[Api] = Api("WriteTxnMarkersRequest", 27, "request", valid="1-2", flexible="1+")

    markers: Annotated[list[WritableTxnMarker], Wire("[]struct")] = field(default_factory=list)


class WritableTxnMarkerPartitionResult(Struct):
    """Part of WriteTxnMarkersResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0


class WritableTxnMarkerTopicResult(Struct):
    """Part of WriteTxnMarkersResponse."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[WritableTxnMarkerPartitionResult], Wire("[]struct")] = field(
        default_factory=list
    )


class WritableTxnMarkerResult(Struct):
    """Part of WriteTxnMarkersResponse."""

    producer_id: Annotated[int, Wire("int64")] = 0
    topics: Annotated[list[WritableTxnMarkerTopicResult], Wire("[]struct")] = field(default_factory=list)


class WriteTxnMarkersResponse(Message):
    """API 27, response: versions 1-2, flexible."""

    meta: ClassVar[Api] = Api("WriteTxnMarkersResponse", 27, "response", valid="1-2", flexible="1+")

    markers: Annotated[list[WritableTxnMarkerResult], Wire("[]struct")] = field(default_factory=list)
