"""Metadata transactions: a change that spans several batches counts only once it is complete (KIP-868). Pure."""

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
        """Whether a transaction has begun and not ended. A new controller must abort it before it writes."""
        return self._held is not None

    def copy(self) -> TransactionGate:
        """Returns an independent gate that holds back the same records."""
        other = TransactionGate()
        other._held = None if self._held is None else list(self._held)
        return other

    def pass_on(self, record: Message) -> list[Message]:
        """Returns the records that may be replayed now that this one has been read; outside of a transaction
        the record itself.
        """
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
