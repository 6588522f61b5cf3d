"""The brokers of a cluster: finds the leader of a partition, and connects to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from blumfeld.client.errors import RefusedError, error_name
from blumfeld.client.errors import check as client_check
from blumfeld.client.metadata import ClusterView
from blumfeld.wire.messages.metadata import MetadataResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.fetching.connection import Connection

PORT = 9092

Address = tuple[str, int]

AWAY = (OSError, DecodeError)
"""Errors that mean: this broker can't be reached now, perhaps soon again."""


class NotNowError(OSError):
    """The broker answered with an error that can pass."""


class Brokers:
    """Connections, made when they are needed. What is in ``AWAY`` is for the caller to try again."""

    def __init__(self, bootstrap: str, client_id: str, timeout_s: float) -> None:
        """:param bootstrap: ``bootstrap.servers``"""
        self.bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._open: dict[Address, Connection] = {}
        self._view = ClusterView()

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the broker that leads a partition now.

        :raises ArchiveError: it will not tell us
        """
        self._view.take(self.metadata([topic]))
        with _told():
            leader = self._view.leader(topic, partition)
        return self._connected((leader.host, leader.port))

    def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Returns the metadata of these topics from the first broker that answers; of all topics if None."""
        return self.any().ask(ClusterView.request(topics), MetadataResponse)

    def any(self) -> Connection:
        """A connection to some broker of the bootstrap's."""
        for connection in self._open.values():
            return connection
        failed: Exception | None = None
        for address in addresses_of(self.bootstrap):
            try:
                return self._connected(address)
            except AWAY as error:
                failed = error
        raise failed or ConnectionError("no bootstrap server is given")

    def close(self) -> None:
        """Closes all connections. A later request opens new ones."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _connected(self, address: Address) -> Connection:
        if address not in self._open:
            self._open[address] = Connection(*address, self._client_id, self._timeout_s)
        return self._open[address]


def addresses_of(bootstrap: str) -> list[Address]:
    """Hosts and ports of ``bootstrap.servers``; ``[::1]:9092`` where a host has colons."""
    addresses = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdigit():
            host, port = text.strip(), str(PORT)
        if host:
            addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return addresses


def check(code: int, about: str) -> None:
    """:raises NotNowError: an error that can pass
    :raises ArchiveError: one that can't
    """
    with _told():
        client_check(code, about)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        if error.retriable:
            raise NotNowError(str(error)) from None
        raise ArchiveError(f"{error.about}: the broker answers {error_name(error.code)}") from None
