"""Asks a leader where the logs of some partitions begin and end, as a follower does after OFFSET_OUT_OF_RANGE."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import PeerChannel
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.schema import Message
from blumfeld_replication_isr.fetcher_rules import Key
from blumfeld_replication_isr.follower import IsrFollower

LATEST = -1
EARLIEST = -2
"""Timestamps of ListOffsets that stand for the log's end and start."""


class LookUp:
    """The question about these followers' partitions, and its answers."""

    def __init__(self, followers: Sequence[IsrFollower]) -> None:
        self.followers = followers
        self.offsets: dict[Key, list[int]] = {follower.key: [] for follower in followers}
        """Start and end of the leader's log; fewer offsets if the leader didn't tell both."""
        self.refused: list[tuple[IsrFollower, int]] = []
        """Error codes of single partitions."""
        self.failed: BaseException | None = None
        """The ``OSError`` or ``BrokerError`` of a question that got no answer."""

    def ask(self, channel: PeerChannel, node_id: int, timeout_ms: float) -> Completion[LookUp]:
        """Send the question. The completion never fails; it is done when both offsets have an answer or none comes.

        :param node_id: this node, which is the replica that asks
        """
        done: Completion[LookUp] = Completion()
        left = 2

        def answered(one: Completion[Message]) -> None:
            nonlocal left
            left -= 1
            if one.error is None:
                answer = one.result()
                assert isinstance(answer, ListOffsetsResponse)
                self._note(answer)
            else:
                self.failed = one.error
            if not left:
                done.complete(self)

        for timestamp in (EARLIEST, LATEST):
            channel.send(self._question(node_id, timestamp), timeout_ms).when_done(answered)
        return done

    def _question(self, node_id: int, timestamp: int) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for follower in self.followers:
            at = follower.host.partition
            topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=at.partition,
                    current_leader_epoch=follower.image.leader_epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(replica_id=node_id, topics=list(topics.values()))

    def _note(self, answer: ListOffsetsResponse) -> None:
        followers = {(f.host.partition.topic, f.host.partition.partition): f for f in self.followers}
        for topic in answer.topics:
            for one in topic.partitions:
                follower = followers.get((topic.name, one.partition_index))
                if follower is None:
                    continue
                if one.error_code:
                    self.refused.append((follower, one.error_code))
                elif one.offset >= 0:
                    self.offsets[follower.key].append(one.offset)
