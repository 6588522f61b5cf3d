"""Protocols of a shard's host: the log that it writes and replays, and the state machine that lives by that log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from blumfeld.coordinator.runtime.record_runs import RecordRun
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import CoordinatorRecord, Decision, Producer


class TransactionalRecord(msgspec.Struct, frozen=True):
    """A record of a producer's transaction. It takes effect when a marker commits the transaction."""

    producer: Producer
    record: CoordinatorRecord


class TransactionMarker(msgspec.Struct, frozen=True):
    """The end of a producer's transaction in this log."""

    producer_id: int
    committed: bool


LogItem: TypeAlias = CoordinatorRecord | RecordRun | TransactionalRecord | TransactionMarker
"""An item of a log's replay. Plain records come one by one, or all of a batch at once, which is faster."""


class CoordinatorLog(Protocol):
    """The log of an internal topic's partition, on its leader, in one leader epoch."""

    @property
    def epoch(self) -> int:
        """The leader epoch: the coordinator epoch that fences earlier coordinators of these keys."""
        ...

    def append(
        self, records: Sequence[CoordinatorRecord], producer: Producer | None = None
    ) -> Completion[None]:
        """Place the records as one batch. Completes when the high watermark has passed it, in the order of the calls.

        Records that exceed the largest batch are placed as several batches. After a crash only the first of them may be
        there.

        :param producer: makes the batch a transactional one of this producer
        :raises BrokerError: nothing was placed; MESSAGE_TOO_LARGE if a single record exceeds the largest batch,
            NOT_ENOUGH_REPLICAS if the ISR is smaller than ``min.insync.replicas``
        """
        ...

    def check_producer(self, producer: Producer) -> None:
        """Check that this producer may write in a transaction.

        :raises BrokerError: INVALID_PRODUCER_EPOCH: the log has a later epoch of the producer
        """
        ...

    def written(self) -> Completion[None]:
        """Completes when everything placed so far is written, or has failed. Wait for it before a replay, because
        :meth:`records` reads only what is written.
        """
        ...

    def records(self) -> Iterator[LogItem | Completion[Any]]:
        """Yields every record with a key, and every transaction marker, in log order.

        When it yields a completion, the next item needs a cold read: the caller must ask for it after the completion
        is done, with or without an error. Unreadable items raise ``BrokerError`` or ``OSError``.
        """
        ...

    def committed(self) -> Completion[None]:
        """Completes when everything in the log now is committed. A new leader's log may have uncommitted records."""
        ...


class Shard(Protocol):
    """A state machine that lives by its log. Pure: the time is an argument."""

    def replay(self, item: CoordinatorRecord) -> None:
        """Apply one record. It must not decide anything, and must not fail on records that this build wrote."""
        ...

    def replay_run(self, run: RecordRun) -> None:
        """Apply many records in order, with the same result as :meth:`replay` of each."""
        ...

    def command(self, command: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on a command. It reads state and never writes it. Raises ``BrokerError`` with the request's error."""
        ...

    def loaded(self, now_ms: int) -> Decision:
        """Returns the first timers, and the effects that the log says are still to be performed, when the replay has
        ended."""
        ...


@runtime_checkable
class PendingShard(Shard, Protocol):
    """A shard whose log takes producers' transactions. For any other shard their records and markers change nothing."""

    def replay_transactional(self, item: CoordinatorRecord, producer: Producer) -> None:
        """Apply one record of a transaction. It is pending until :meth:`end_transaction`."""
        ...

    def end_transaction(self, producer_id: int, committed: bool) -> bool:
        """Commit or forget the pending records of this producer. Returns whether some of them are left for
        :meth:`end_more`: the shard gives a large transaction several turns of the loop.

        Without any nothing happens: the marker came twice, or the transaction's records were compacted away.
        """
        ...

    def end_more(self) -> bool:
        """Commit or forget some more pending records of transactions that have ended. Returns whether any are left.

        Other records may be replayed in between. Pending ones look as if their transaction were still open.
        """
        ...
