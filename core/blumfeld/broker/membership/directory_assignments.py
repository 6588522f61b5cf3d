"""Reports to the controller in which log directory each replica lies (AssignReplicasToDirs), and retries until it
knows.

The numbers are Kafka's: changes are gathered for half a second, and one request has up to 2250. A failed request is
tried again after 100 ms; the pause doubles up to 10 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.wire.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )

GATHER_MS = 500
ASSIGNMENTS_MAX = 2250
RETRY_MS_MIN, RETRY_MS_MAX = 100, 10_000
_NOT_OURS = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)

Replica = tuple[bytes, int]
"""(topic id, partition)."""


class DirectoryAssignments:
    """Assignments that the controller doesn't know yet. One request is under way at a time."""

    def __init__(
        self,
        *,
        node_id: int,
        runtime: Runtime,
        metadata: ClusterMetadata,
        lifecycle: Lifecycle,
        events: EventLog,
    ) -> None:
        self._node_id = node_id
        self._runtime = runtime
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._events = events
        self._wanted: dict[Replica, bytes] = {}
        self._sent: dict[Replica, bytes] = {}
        self._timer: Timer | None = None
        self._retry_ms = RETRY_MS_MIN

    def __len__(self) -> int:
        """Number of replicas whose directory the controller doesn't know yet."""
        return len(self._wanted)

    def tell(self, replica: Replica, directory_id: bytes) -> None:
        """Report that the replica lies in this directory. The last call for a replica counts."""
        if self._wanted.get(replica) != directory_id:
            self._wanted[replica] = directory_id
            self._send_in(GATHER_MS)

    def known(self, replica: Replica) -> None:
        """Report nothing for this replica: the controller knows, or it is not ours any more."""
        self._wanted.pop(replica, None)

    def stop(self) -> None:
        """Stop. The next start reports again what the controller doesn't know by now."""
        self._wanted.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_in(self, delay_ms: float) -> None:
        if self._timer is None and not self._sent:
            self._timer = self._runtime.call_later(delay_ms, self._send)

    def _send(self) -> None:
        self._timer = None
        if not self._wanted:
            return
        if self._lifecycle.broker_epoch < 0:  # not registered yet
            self._send_in(GATHER_MS)
            return
        self._sent = dict(list(self._wanted.items())[:ASSIGNMENTS_MAX])
        timeout_ms = self._lifecycle.session_timeout_ms
        self._metadata.submit(self._request(self._sent), timeout_ms).when_done(self._answered)

    def _request(self, assignments: dict[Replica, bytes]) -> AssignReplicasToDirsRequest:
        # Imported here: with a single directory there is nothing to report, and a start must not pay for it.
        from blumfeld.wire.messages.assign_replicas_to_dirs import (
            AssignReplicasToDirsRequest,
            RequestDirectoryData,
            RequestPartitionData,
            RequestTopicData,
        )

        by_directory: dict[bytes, dict[bytes, list[RequestPartitionData]]] = {}
        for (topic_id, index), directory_id in assignments.items():
            topics = by_directory.setdefault(directory_id, {})
            topics.setdefault(topic_id, []).append(RequestPartitionData(partition_index=index))
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._lifecycle.broker_epoch,
            directories=[
                RequestDirectoryData(
                    id=directory_id,
                    topics=[
                        RequestTopicData(topic_id=topic_id, partitions=partitions)
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory_id, topics in by_directory.items()
            ],
        )

    def _answered(self, done: Completion[Message]) -> None:
        sent, self._sent = self._sent, {}
        if isinstance(done.error, BrokerError) and done.error.code == ErrorCode.UNSUPPORTED_VERSION:
            self._wanted.clear()  # this controller doesn't record directories
            return
        refused = self._refused(done, sent)
        if refused:
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
            self._send_in(self._retry_ms / 2)
            return
        self._retry_ms = RETRY_MS_MIN
        if self._wanted:
            self._send_in(GATHER_MS)

    def _refused(self, done: Completion[Message], sent: dict[Replica, bytes]) -> bool:
        """Remove the assignments that the controller took. Returns whether some must be tried again."""
        if done.error is not None:
            self._events.warning("directory assignment not answered", error=str(done.error))
            return True
        answer = cast("AssignReplicasToDirsResponse", done.result())
        if answer.error_code:
            self._events.warning("directory assignment refused", error=known_code(answer.error_code).name)
            return True
        refused = False
        for directory in answer.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    replica = (topic.topic_id, partition.partition_index)
                    if partition.error_code and partition.error_code not in _NOT_OURS:
                        refused = True
                    elif self._wanted.get(replica) == sent.get(replica):
                        self._wanted.pop(replica, None)
        return refused
