"""Reports to the controller in which log directory each replica lies (AssignReplicasToDirs), and retries until it
knows.

The numbers are Kafka's: changes are gathered for half a second, and one request has up to 2250. A failed request is
tried again after 100 ms; the pause doubles up to 10 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY
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
        self._said: dict[Replica, bytes] = {}
        """Directories that the controller has recorded and the image does not show yet. A lost directory stands here
        from the request on: an answer that doesn't come leaves open whether the controller has decided."""
        self._timer: Timer | None = None
        self._urgent = False
        """Send without a pause once the answer to the last request is here."""
        self._retry_ms = RETRY_MS_MIN
        self.taken: Callable[[Replica], None] = lambda _: None
        """Called for each assignment that the controller has taken."""

    def __len__(self) -> int:
        """Number of replicas whose directory the controller doesn't know yet."""
        return len(self._wanted)

    def place(
        self,
        replica: Replica,
        directory_id: bytes,
        shown: bytes,
        *,
        urgent: bool = False,
        again: bool = False,
    ) -> None:
        """Report that the replica lies in this directory, unless the controller knows. The last call for a replica
        counts.

        :param shown: its directory in the image, which may be behind what the controller was told
        :param urgent: send at once
        :param again: report it although the image shows it
        """
        said = self._said.get(replica)
        if directory_id == shown and not again and said in (None, shown):
            self.forget(replica)
        elif self._wanted.get(replica, said) != directory_id:
            self._wanted[replica] = directory_id
            self._send_in(0 if urgent else GATHER_MS)

    def may_be_lost(self, replica: Replica) -> bool:
        """Whether the controller was told, or is to be told, that the replica's directory is lost, and the image
        doesn't show it yet."""
        return LOST_DIRECTORY in (self._wanted.get(replica), self._said.get(replica))

    def forget(self, replica: Replica) -> None:
        """Report nothing for this replica: the controller knows, or it is not ours any more."""
        self._wanted.pop(replica, None)
        self._said.pop(replica, None)

    def stop(self) -> None:
        """Stop. The next start reports again what the controller doesn't know by now."""
        self._wanted.clear()
        self._said.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_in(self, delay_ms: float) -> None:
        if self._sent:
            self._urgent = self._urgent or not delay_ms
            return
        if self._timer is not None:
            if delay_ms or self._retry_ms > RETRY_MS_MIN:
                return
            self._timer.cancel()
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
        self._said.update(assignment for assignment in self._sent.items() if assignment[1] == LOST_DIRECTORY)
        self._urgent = False
        sent = self._metadata.submit(self._request(self._sent), timeout_ms, wait_image=False)
        sent.when_done(self._answered)

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
            self._send_in(0 if self._urgent else GATHER_MS)

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
                        continue
                    if self._wanted.get(replica) == sent.get(replica):
                        self._wanted.pop(replica, None)
                    if not partition.error_code and replica in sent:
                        self._said[replica] = sent[replica]
                        self.taken(replica)
        return refused
