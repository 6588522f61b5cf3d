# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""AddPartitionsToTxn, API key 24: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class AddPartitionsToTxnTopic(Struct):
    """Part of AddPartitionsToTxnRequest."""

    name: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class AddPartitionsToTxnTransaction(Struct):
    """Part of AddPartitionsToTxnRequest."""

    transactional_id: Annotated[str, Wire("string", versions="4+")] = ""
    producer_id: Annotated[int, Wire("int64", versions="4+")] = 0
    producer_epoch: Annotated[int, Wire("int16", versions="4+")] = 0
    verify_only: Annotated[bool, Wire("bool", versions="4+")] = False
    topics: Annotated[list[AddPartitionsToTxnTopic], Wire("[]struct", versions="4+")] = field(
        default_factory=list
    )


class AddPartitionsToTxnRequest(Message):
    """API 24, request: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("AddPartitionsToTxnRequest", 24, "request", valid="0-5", flexible="3+")

    transactions: Annotated[list[AddPartitionsToTxnTransaction], Wire("[]struct", versions="4+")] = field(
        default_factory=list
    )
    v3_and_below_transactional_id: Annotated[str, Wire("string", versions="0-3")] = ""
    v3_and_below_producer_id: Annotated[int, Wire("int64", versions="0-3")] = 0
    v3_and_below_producer_epoch: Annotated[int, Wire("int16", versions="0-3")] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], Wire("[]struct", versions="0-3")] = field(
        default_factory=list
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """Part of AddPartitionsToTxnResponse."""

    partition_index: Annotated[int, Wire("int32")] = 0
    partition_error_code: Annotated[int, Wire("int16")] = 0


class AddPartitionsToTxnTopicResult(Struct):
    """Part of AddPartitionsToTxnResponse."""

    name: Annotated[str, Wire("string")] = ""
    results_by_partition: Annotated[list[AddPartitionsToTxnPartitionResult], Wire("[]struct")] = field(
        default_factory=list
    )


class AddPartitionsToTxnResult(Struct):
    """Part of AddPartitionsToTxnResponse."""

    transactional_id: Annotated[str, Wire("string", versions="4+")] = ""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], Wire("[]struct", versions="4+")] = field(
        default_factory=list
    )


class AddPartitionsToTxnResponse(Message):
    """API 24, response: versions 0-5, flexible from 3."""

    meta: ClassVar[Api] = Api("AddPartitionsToTxnResponse", 24, "response", valid="0-5", flexible="3+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16", versions="4+", ignorable=True)] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], Wire("[]struct", versions="4+")] = (
        field(default_factory=list)
    )
    results_by_topic_v3_and_below: Annotated[
        list[AddPartitionsToTxnTopicResult], Wire("[]struct", versions="0-3")
    ] = field(default_factory=list)
