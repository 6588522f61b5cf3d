"""A consumer's state between requests: its fetch session (KIP-227) and its fetch sizes and epochs by
partition.
"""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.wire.messages.fetch import FetchPartition, FetchResponse, FetchTopic

Place = tuple[str, int]
"""Topic and partition."""

NO_EPOCH = -1


class FetchSession:
    """The client's half of a fetch session: it sends only the positions that the server does not know yet.

    A session ends with its connection. :meth:`forget` it then.
    """

    def __init__(self) -> None:
        self.session_id = 0
        self.session_epoch = 0
        self._told: dict[Place, int] = {}
        self._asked: dict[Place, int] = {}

    def wanted(self, positions: Mapping[Place, int], partition_max_bytes: int) -> list[FetchTopic]:
        """Return the topics of the next request."""
        self._asked = dict(positions)
        topics: dict[str, FetchTopic] = {}
        for (topic, partition), offset in positions.items():
            if self._told.get((topic, partition)) == offset:
                continue
            wanted = topics.setdefault(topic, FetchTopic(topic=topic))
            wanted.partitions.append(
                FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                )
            )
        return list(topics.values())

    def answered(self, answer: FetchResponse) -> None:
        """Take an answer without an error of its own. Session id 0 means that the server keeps no session: the next
        request names everything again.
        """
        self.session_id = answer.session_id
        self.session_epoch = self.session_epoch + 1 if answer.session_id else 0
        self._told = self._asked if answer.session_id else {}

    def forget(self) -> None:
        """Start a new session: after a new connection, FETCH_SESSION_ID_NOT_FOUND or
        INVALID_FETCH_SESSION_EPOCH.
        """
        self.session_id = self.session_epoch = 0
        self._told.clear()


class PartitionFetch:
    """The fetch size and last leader epoch of one partition.

    :param partition_max_bytes: bytes to ask for at first
    :param bytes_max: most bytes to ask for
    """

    __slots__ = ("_bytes_max", "leader_epoch", "partition", "partition_max_bytes")

    def __init__(self, partition: int, partition_max_bytes: int, bytes_max: int) -> None:
        self.partition = partition
        self.partition_max_bytes = partition_max_bytes
        self.leader_epoch = NO_EPOCH
        """The leader epoch of the last batch that was read."""
        self._bytes_max = bytes_max

    def wanted(self, offset: int, *, diverging: bool = False) -> FetchPartition:
        """Return the partition's part of a request.

        :param diverging: name the epoch of the last batch, so that a new leader says where its log parts from the one
            that was read (KIP-595)
        """
        return FetchPartition(
            partition=self.partition,
            fetch_offset=offset,
            last_fetched_epoch=self.leader_epoch if diverging else NO_EPOCH,
            partition_max_bytes=self.partition_max_bytes,
        )

    def grow(self) -> bool:
        """Ask for twice as much from now on: not even one batch came whole. Return False if that is not allowed."""
        if self.partition_max_bytes >= self._bytes_max:
            return False
        self.partition_max_bytes = min(2 * self.partition_max_bytes, self._bytes_max)
        return True
