"""Changes that span several batches: what a controller brackets counts only once it is whole (KIP-868). Pure."""

from __future__ import annotations

from blumfeld.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from blumfeld.wire.schema import Message


class TransactionGate:
    """Holds records back from BeginTransactionRecord until EndTransactionRecord; AbortTransactionRecord drops them."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Message] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended: a new controller aborts it first."""
        return self._held is not None

    def pass_on(self, record: Message) -> list[Message]:
        """The records that may be replayed now that this one has been read; often just itself."""
        if isinstance(record, BeginTransactionRecord):
            self._held = []
            return []
        if isinstance(record, EndTransactionRecord):
            held, self._held = self._held or [], None
            return held
        if isinstance(record, AbortTransactionRecord):
            self._held = None
            return []
        if self._held is None:
            return [record]
        self._held.append(record)
        return []
