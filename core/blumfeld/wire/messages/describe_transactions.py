# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""DescribeTransactions, API key 65: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class DescribeTransactionsRequest(Message):
    """API 65, request: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeTransactionsRequest", 65, "request", valid="0", flexible="0+")

    transactional_ids: Annotated[list[str], Wire("[]string")] = field(default_factory=list)


class TopicData(Struct):
    """Part of DescribeTransactionsResponse."""

    topic: Annotated[str, Wire("string")] = ""
    partitions: Annotated[list[int], Wire("[]int32")] = field(default_factory=list)


class TransactionState(Struct):
    """Part of DescribeTransactionsResponse."""

    error_code: Annotated[int, Wire("int16")] = 0
    transactional_id: Annotated[str, Wire("string")] = ""
    transaction_state: Annotated[str, Wire("string")] = ""
    transaction_timeout_ms: Annotated[int, Wire("int32")] = 0
    transaction_start_time_ms: Annotated[int, Wire("int64")] = 0
    producer_id: Annotated[int, Wire("int64")] = 0
    producer_epoch: Annotated[int, Wire("int16")] = 0
    topics: Annotated[list[TopicData], Wire("[]struct")] = field(default_factory=list)


class DescribeTransactionsResponse(Message):
    """API 65, response: version 0, flexible."""

    meta: ClassVar[Api] = Api("DescribeTransactionsResponse", 65, "response", valid="0", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    transaction_states: Annotated[list[TransactionState], Wire("[]struct")] = field(default_factory=list)
