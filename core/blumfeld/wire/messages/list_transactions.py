# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""ListTransactions, API key 66: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.schema import Api, Message, Struct, Wire


class ListTransactionsRequest(Message):
    """API 66, request: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("ListTransactionsRequest", 66, "request", valid="0-2", flexible="0+")

    state_filters: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    producer_id_filters: Annotated[list[int], Wire("[]int64")] = field(default_factory=list)
    duration_filter: Annotated[int, Wire("int64", versions="1+")] = -1
    transactional_id_pattern: Annotated[str | None, Wire("string", versions="2+", nullable="2+")] = None


class TransactionState(Struct):
    """Part of ListTransactionsResponse."""

    transactional_id: Annotated[str, Wire("string")] = ""
    producer_id: Annotated[int, Wire("int64")] = 0
    transaction_state: Annotated[str, Wire("string")] = ""


class ListTransactionsResponse(Message):
    """API 66, response: versions 0-2, flexible."""

    meta: ClassVar[Api] = Api("ListTransactionsResponse", 66, "response", valid="0-2", flexible="0+")

    throttle_time_ms: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    unknown_state_filters: Annotated[list[str], Wire("[]string")] = field(default_factory=list)
    transaction_states: Annotated[list[TransactionState], Wire("[]struct")] = field(default_factory=list)
