"""The node's side of a fetcher."""

from __future__ import annotations

from typing import Protocol

from blumfeld.spi.runtime import Runtime


class IdleFetcher(Protocol):
    """A fetcher without partitions: :class:`blumfeld_replication_isr.fetcher.Fetcher`."""

    leader_id: int
    number: int

    def stop(self) -> None:
        """Send nothing more."""
        ...


class FetcherOwner(Protocol):
    """The methods of the node that a fetcher calls: :class:`blumfeld_replication_isr.replication.IsrReplication`."""

    @property
    def runtime(self) -> Runtime:
        """Clock, timers and the end of the turn."""
        ...

    @property
    def node_id(self) -> int:
        """This node, which is the replica that fetches."""
        ...

    def own_epoch(self) -> int:
        """This node's broker epoch, as registered; -1 before that."""
        ...

    def close_idle(self, fetcher: IdleFetcher) -> None:
        """Stop a fetcher that has had no partition for a while."""
        ...
