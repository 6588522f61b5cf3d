"""Changes of ISRs on their way to the controller: many partitions in one AlterPartition, one request at a time
(KIP-497, Kafka's ``AlterPartitionManager``).

A broker that dies leaves the ISRs of all its partitions at once. Its leaders ask in the same turn, and share a request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Phase, Timer
from blumfeld.wire.errors import BrokerError, known_code
from blumfeld.wire.schema import Message
from blumfeld_replication_isr.node import Node

if TYPE_CHECKING:
    from blumfeld.wire.messages.alter_partition import (
        AlterPartitionRequest,
        RequestPartitionData,
        ResponsePartitionData,
    )

RETRY_MS = 50
"""Pause after a request that failed as a whole: Kafka's, too."""
PARTITIONS_MAX = 1_000
"""Partitions in one request, so that it is encoded, and its answer taken, in a few milliseconds. The controller
decides on it in parts."""


class IsrChange:
    """One leader's request for another ISR.

    :param partition: name of the partition, for the log
    :param answered: is told the controller's decision, once. As long as there is none, the change may have happened
    """

    __slots__ = ("answered", "data", "partition", "topic_id", "withdrawn")

    def __init__(
        self,
        partition: str,
        topic_id: bytes,
        data: RequestPartitionData,
        answered: Callable[[ResponsePartitionData], None],
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.data = data
        self.answered = answered
        self.withdrawn = False

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and partition."""
        return (self.topic_id, self.data.partition_index)


class IsrChanges:
    """The changes of all leaders of this node."""

    def __init__(self, node: Node) -> None:
        self.shrinks = self.expands = 0
        """Replicas that left the ISR of a leader of this node, and that joined it."""
        self._node = node
        self._unsent: dict[tuple[bytes, int], IsrChange] = {}
        self._under_way: dict[tuple[bytes, int], IsrChange] = {}
        self._planned = False
        self._timer: Timer | None = None
        self._stopped = False

    def ask(self, change: IsrChange) -> None:
        """Send a change with the next request: at the end of this turn, or after the answer to the last one."""
        self._unsent[change.key] = change
        self._plan()

    def withdraw(self, change: IsrChange) -> None:
        """Tell this change's leader nothing any more, and don't send it if it hasn't been sent."""
        change.withdrawn = True
        if self._unsent.get(change.key) is change:
            del self._unsent[change.key]

    def count(self, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        """Count the replicas that left an ISR or joined it."""
        self.shrinks += sum(replica not in after for replica in before)
        self.expands += sum(replica not in before for replica in after)

    def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _plan(self) -> None:
        if not self._planned and self._timer is None:
            self._planned = True
            self._node.runtime.at_end_of_turn(Phase.COMPLETE, self._send)

    def _send(self) -> None:
        self._planned = False
        if self._under_way or not self._unsent or self._stopped:
            return
        for key in list(self._unsent)[:PARTITIONS_MAX]:
            self._under_way[key] = self._unsent.pop(key)
        self._node.submit(self._request()).when_done(self._answered)

    def _request(self) -> AlterPartitionRequest:
        from blumfeld.wire.messages.alter_partition import AlterPartitionRequest, RequestTopicData

        topics: dict[bytes, RequestTopicData] = {}
        for change in self._under_way.values():
            topic = topics.get(change.topic_id)
            if topic is None:
                topic = topics[change.topic_id] = RequestTopicData(topic_id=change.topic_id)
            topic.partitions.append(change.data)
        return AlterPartitionRequest(
            broker_id=self._node.node_id, broker_epoch=self._node.own_epoch(), topics=list(topics.values())
        )

    def _answered(self, done: Completion[Message]) -> None:
        from blumfeld.wire.messages.alter_partition import AlterPartitionResponse

        under_way, self._under_way = self._under_way, {}
        answer = None if done.error is not None else done.result()
        failed: BaseException | None = done.error
        if isinstance(answer, AlterPartitionResponse) and answer.error_code:
            failed = BrokerError(known_code(answer.error_code))
        elif isinstance(answer, AlterPartitionResponse):
            for topic in answer.topics:
                for partition in topic.partitions:
                    change = under_way.pop((topic.topic_id, partition.partition_index), None)
                    if change is not None and not change.withdrawn:
                        self._tell(change, partition)
        # What is left has no decision. Whether the controller has made one isn't known, so nothing is taken back: the
        # same question is asked again.
        left = {key: change for key, change in under_way.items() if not change.withdrawn}
        self._unsent = left | self._unsent
        if failed is not None and not self._stopped:
            self._node.say_refused(
                "the controller decided on no change of an ISR", failed, partitions=len(left)
            )
        if left:
            self._timer = self._node.runtime.call_later(RETRY_MS, self._again)
        elif self._unsent:
            self._plan()

    def _tell(self, change: IsrChange, decision: ResponsePartitionData) -> None:
        """Tell one leader. Its defect must not keep the other leaders' decisions, or undecided changes, from them."""
        try:
            change.answered(decision)
        except Exception as defect:
            self._node.say_defect("a leader met a defect in a change of its ISR", change.partition, defect)

    def _again(self) -> None:
        self._timer = None
        self._plan()
