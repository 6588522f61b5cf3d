"""A controller's image that is driven by hand: decide, replay, and the changes that come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.steps import drained
from blumfeld.wire.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.controller.decided_steps import replayed, with_leader_epochs

EPOCH = 7


def registration(broker_id: int, epoch: int = 100, port: int = 9092) -> RegisterBrokerRecord:
    """A live broker's."""
    at = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=port, security_protocol=0)
    return RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, end_points=[at], fenced=False)


def topic_id(name: str) -> bytes:
    """A fixed id for a topic."""
    return name.encode().ljust(16, b"-")


def topic(name: str, *partitions: tuple[int, Sequence[int], Sequence[int]]) -> list[Message]:
    """Records of a topic.

    :param partitions: leader, ISR, replicas of each
    """
    return [
        TopicRecord(name=name, topic_id=topic_id(name)),
        *(
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id(name),
                replicas=list(replicas),
                isr=list(isr),
                leader=leader,
                leader_epoch=3 if isr else -1,
                partition_epoch=5 if isr else -1,
            )
            for number, (leader, isr, replicas) in enumerate(partitions)
        ),
    ]


class Decided:
    """A controller over an image of these brokers and records."""

    def __init__(
        self, brokers: Sequence[int], records: Sequence[Message], config: Mapping[str, Any] | None = None
    ) -> None:
        self.controller = Controller(MetadataImage("cluster"), BrokerConfig(config))
        self._uuids = 0
        self.replay([*(registration(broker) for broker in brokers), *records])

    @property
    def state(self) -> ControllerState:
        return self.controller.state

    def partition(self, name: str, number: int = 0) -> PartitionImage:
        return self.state.image.topics[name].partitions[number]

    def moment(self) -> Moment:
        return Moment(now_ms=0.0, wall_ms=0, next_offset=0, new_uuid=self._new_uuid, new_secret=bytes)

    def _new_uuid(self) -> bytes:
        self._uuids += 1
        return b"u" + self._uuids.to_bytes(15)

    def replay(self, records: Sequence[Message], *, by_leader: bool = False) -> list[Change]:
        with_leader_epochs(self.state.image, records, by_leader=by_leader)
        return [step.change for step in drained(replayed(self.state.image, records, EPOCH))]

    def carry_out(
        self, decide: Callable[[ControllerState, Moment], ControllerDecision]
    ) -> tuple[Message, list[Change]]:
        """Decide part by part; the response of the last, and the changes of all."""
        decision = decide(self.state, self.moment())
        changes = self.replay(decision.records)
        parts = 1
        while decision.rest is not None:
            decision = decision.rest(self.state, self.moment())
            changes += self.replay(decision.records)
            parts += 1
            assert parts < 1_000, "the parts don't come to an end"
        return decision.response, changes
