"""The brokers of a cluster: who leads a partition, and a connection there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld.wire.primitives import DecodeError
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.fetching.connection import Connection

PORT = 9092

Address = tuple[str, int]

AWAY = (OSError, DecodeError)
"""What says that a broker can't be spoken to now, perhaps soon again."""


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

    def leader(self, topic: str, partition: int) -> Connection:
        """A connection to the broker that leads a partition now.

        :raises ArchiveError: it will not tell us
        """
        answer = self.metadata([topic])
        addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        [found] = answer.topics
        check(found.error_code, topic)
        for each in found.partitions:
            if each.partition_index == partition:
                check(each.error_code, f"{topic}-{partition}")
                if each.leader_id in addresses:
                    return self._connected(addresses[each.leader_id])
        raise NotNowError(f"{topic}-{partition} has no leader")

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """What some broker knows of these topics; of all if None."""
        names = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return self.any().ask(MetadataRequest(topics=names, allow_auto_topic_creation=False))

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
        """Lets go of all connections; what is asked later makes new ones."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _connected(self, address: Address) -> Connection:
        if address not in self._open:
            self._open[address] = Connection(*address, self._client_id, self._timeout_s)
        return self._open[address]


def addresses_of(bootstrap: str) -> list[Address]:
    """Hosts and ports of ``bootstrap.servers``; ``[::1]:9092`` where a host has colons."""
    found = []
    for text in bootstrap.split(","):
        host, colon, port = text.strip().rpartition(":")
        if not colon or not port.isdigit():
            host, port = text.strip(), str(PORT)
        if host:
            found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return found


def check(code: int, about: str) -> None:
    """:raises NotNowError: an error that can pass
    :raises ArchiveError: one that can't
    """
    if not code:
        return
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
    if is_retriable(code):
        raise NotNowError(f"{about}: {name}")
    raise ArchiveError(f"{about}: the broker answers {name}")
