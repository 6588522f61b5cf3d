"""A controller that is driven by hand: decide, replay, and the log that comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision, Moment
from blumfeld.metadata.image.bootstrap import first_records
from blumfeld.metadata.image.cluster_image import ELR_FEATURE, MetadataImage
from blumfeld.metadata.image.record_frame import decode_record, encode_record
from blumfeld.metadata.image.records import feature_records
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.hooks import Feature
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from blumfeld.wire.messages.broker_registration import Feature as FeatureRange
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.schema import Message

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
M = TypeVar("M", bound=Message)


def directory_id(broker_id: int, nth: int = 0) -> bytes:
    """A log directory of a broker."""
    return b"directory" + nth.to_bytes(3) + broker_id.to_bytes(4)


class Driven:
    """A controller with its log in a list; every record passes through its bytes."""

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        features: Sequence[Feature] = (),
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.controller = Controller(MetadataImage(CLUSTER_ID), BrokerConfig(config), features)
        self.log: list[Message] = []
        self._now_ms = 0.0
        self._uuids = 0
        wanted = {"metadata.version": 30, **(levels or {})}
        self.place(first_records(feature_records(wanted), 1))

    @property
    def now_ms(self) -> float:
        """The time. While it passes, the controller runs, as it does under a driver."""
        return self._now_ms

    @now_ms.setter
    def now_ms(self, then_ms: float) -> None:
        while self._now_ms < then_ms:
            self._now_ms = min(then_ms, self._now_ms + 1_000)
            self.controller.sessions.runs(self._now_ms)

    def paused_ms(self, pause_ms: float) -> None:
        """Time passes while the controller is stopped."""
        self._now_ms += pause_ms

    def carry_out(self, decision: ControllerDecision) -> ControllerDecision:
        """Append and replay a decision, part by part; its last part."""
        self.place(decision.records)
        while decision.rest is not None:
            decision = decision.rest(self.controller.state, self.moment())
            self.place(decision.records)
        return decision

    @property
    def image(self) -> MetadataImage:
        """What the controller knows."""
        return self.controller.image

    def moment(self) -> Moment:
        """Now."""
        return Moment(now_ms=self.now_ms, next_offset=len(self.log), new_uuid=self.new_uuid)

    def new_uuid(self) -> bytes:
        """Ids in a row."""
        self._uuids += 1
        return b"u" + self._uuids.to_bytes(15)

    def decide(self, request: Message) -> ControllerDecision:
        """Only ask."""
        return self.controller.command(request, self.moment())

    def place(self, records: Sequence[Message]) -> None:
        """Append and replay, as the driver does."""
        read = [decode_record(encode_record(record)) for record in records]
        self.controller.replay(read, len(self.log), 1)
        self.log += read

    def do(self, request: Message, response_class: type[M]) -> M:
        """Ask, append, replay, answer."""
        decision = self.carry_out(self.decide(request))
        self.controller.answered(request, decision.response, self.now_ms)
        assert isinstance(decision.response, response_class)
        return decision.response

    def registration(
        self, broker_id: int, incarnation: int = 1, log_dirs: Sequence[bytes] = ()
    ) -> BrokerRegistrationRequest:
        """As a broker of this build registers: with one directory, or these."""
        return BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=b"process" + broker_id.to_bytes(4) + incarnation.to_bytes(5),
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9092)],
            features=[
                FeatureRange(name="metadata.version", min_supported_version=30, max_supported_version=30),
                FeatureRange(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            rack=None,
            log_dirs=list(log_dirs) or [directory_id(broker_id)],
        )

    def register(self, broker_id: int, incarnation: int = 1, log_dirs: Sequence[bytes] = ()) -> int:
        """Register a broker; its epoch."""
        response = self.do(self.registration(broker_id, incarnation, log_dirs), BrokerRegistrationResponse)
        assert response.error_code == 0
        return response.broker_epoch

    def beat(self, broker_id: int, epoch: int, **wants: Any) -> BrokerHeartbeatResponse:
        """A heartbeat of a broker that has read everything."""
        wants.setdefault("current_metadata_offset", len(self.log))
        return self.do(
            BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, **wants), BrokerHeartbeatResponse
        )

    def join(self, *broker_ids: int) -> list[int]:
        """Register and unfence brokers; their epochs."""
        epochs = []
        for broker_id in broker_ids:
            epochs.append(self.register(broker_id))
            self.beat(broker_id, epochs[-1])
        return epochs

    def create(self, name: str, partitions: int = 1, factor: int = 1, **more: Any) -> CreatableTopicResult:
        """Create one topic."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)
        return self.do(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics[0]

    def alter_isr(self, topic: str, isr: Sequence[int], number: int = 0) -> int:
        """The leader of a partition asks for an ISR; the error."""
        partition = self.partition(topic, number)
        wanted = RequestPartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=b, broker_epoch=self.image.brokers[b].epoch) for b in isr
            ],
        )
        topic_id = self.image.topics[topic].topic_id
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.image.brokers[partition.leader].epoch,
            topics=[RequestTopicData(topic_id=topic_id, partitions=[wanted])],
        )
        return self.do(request, AlterPartitionResponse).topics[0].partitions[0].error_code

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        """A partition as it is now."""
        return self.image.topics[topic].partitions[number]


def replayed(log: Sequence[Message]) -> MetadataImage:
    """The image of a controller that reads this log."""
    controller = Controller(MetadataImage(CLUSTER_ID), BrokerConfig())
    controller.replay(list(log), 0, 1)
    return controller.image
