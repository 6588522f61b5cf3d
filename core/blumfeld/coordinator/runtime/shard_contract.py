"""What a shard's host needs: a log that it writes and replays, and the state machine that lives by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CoordinatorRecord, Decision, Producer


class TransactionalRecord(msgspec.Struct, frozen=True):
    """A record of a producer's transaction: it counts once a marker commits that."""

    producer: Producer
    record: CoordinatorRecord


class TransactionMarker(msgspec.Struct, frozen=True):
    """The end of a producer's transaction in this log."""

    producer_id: int
    committed: bool


LogItem: TypeAlias = CoordinatorRecord | RecordRun | TransactionalRecord | TransactionMarker
"""What a log gives: its plain records one by one, or those of a batch at once, which is the quick way."""


class CoordinatorLog(Protocol):
    """The partition of an internal topic, as its leader has it."""

    def append(
        self, records: Sequence[CoordinatorRecord], producer: Producer | None = None
    ) -> Completion[None]:
        """Place the records as one batch, a transactional one of ``producer``'s if that is given. Completes once the
        high watermark has passed it; in the order of the calls.

        What is more than a batch may be is placed as several: then a crash may leave a beginning of them.

        :raises BrokerError: nothing was placed; MESSAGE_TOO_LARGE: because one record alone is more
        """
        ...

    def check_producer(self, producer: Producer) -> None:
        """May this producer write in a transaction?

        :raises BrokerError: INVALID_PRODUCER_EPOCH: the log has a later epoch of it
        """
        ...

    def written(self) -> Completion[None]:
        """Completes once all that was placed so far is written, or is gone because that failed: before a log is
        replayed, since :meth:`records` gives what is written.
        """
        ...

    def records(self) -> Iterator[LogItem | Completion[Any]]:
        """Every record of the log with a key, and every transaction's end, in order; those that can't be read raise
        ``BrokerError`` or ``OSError``. A completion among them says that the next is on its way from somewhere slow: to
        be asked for when it is done, however it ended.
        """
        ...

    def committed(self) -> Completion[None]:
        """Completes once all that the log holds now is committed: a new leader's log may be ahead of that."""
        ...


class Shard(Protocol):
    """A state machine that lives by its log. Pure: the time is an argument."""

    def replay(self, item: CoordinatorRecord) -> None:
        """Apply one record. Never fails on what this build wrote, never decides."""
        ...

    def replay_run(self, run: RecordRun) -> None:
        """Apply many records in their order: the same as :meth:`replay` of each."""
        ...

    def replay_transactional(self, item: CoordinatorRecord, producer: Producer) -> None:
        """Apply one record of a transaction: pending until :meth:`end_transaction`."""
        ...

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """What this producer has pending counts from now on, or is forgotten. Without anything pending nothing
        happens: that marker came twice, or ended what was compacted away.
        """
        ...

    def command(self, command: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide. Reads state, never writes it. Raises ``BrokerError`` for the request's error."""
        ...

    def loaded(self, now_ms: int) -> Decision:
        """Replay has ended: set timers."""
        ...
