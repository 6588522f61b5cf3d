"""Start and end of a leader's logs, as a follower asks for them after OFFSET_OUT_OF_RANGE."""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import PeerChannel
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.schema import Message

LATEST = -1
EARLIEST = -2
"""Timestamps of ListOffsets that stand for the log's end and start."""


class LogEnds:
    """The question about some partitions, and its answers.

    :param leader_epochs: the partitions, with the leader epoch that the leader is asked in
    """

    def __init__(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {partition: [] for partition in leader_epochs}
        """Start and end of the leader's log; fewer offsets if the leader didn't tell both."""
        self.refused: dict[TopicPartition, list[int]] = {}
        """Error codes of single partitions."""
        self.failed: BaseException | None = None
        """The ``OSError`` or ``BrokerError`` of a question that got no answer."""
        self._leader_epochs = leader_epochs

    def ask(self, channel: PeerChannel, node_id: int, timeout_ms: float) -> Completion[None]:
        """Send the question. The completion never fails; it is done when both offsets have an answer or none comes.

        :param node_id: this node, which is the replica that asks
        """
        done: Completion[None] = Completion()
        left = 2

        def answered(answer: Completion[Message]) -> None:
            nonlocal left
            left -= 1
            if answer.error is None:
                message = answer.result()
                assert isinstance(message, ListOffsetsResponse)
                self._note(message)
            else:
                self.failed = answer.error
            if not left:
                done.complete(None)

        for timestamp in (EARLIEST, LATEST):
            channel.send(self._question(node_id, timestamp), timeout_ms).when_done(answered)
        return done

    def _question(self, node_id: int, timestamp: int) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for at, leader_epoch in self._leader_epochs.items():
            topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=at.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
                )
            )
        return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))

    def _note(self, answer: ListOffsetsResponse) -> None:
        for topic in answer.topics:
            for data in topic.partitions:
                partition = TopicPartition(topic.name, data.partition_index)
                if partition not in self.offsets:
                    continue
                if data.error_code:
                    self.refused.setdefault(partition, []).append(data.error_code)
                elif data.offset >= 0:
                    self.offsets[partition].append(data.offset)
