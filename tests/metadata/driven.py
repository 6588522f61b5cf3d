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
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from blumfeld.wire.messages.broker_registration import Feature as FeatureRange
from blumfeld.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from blumfeld.wire.schema import Message

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""
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
        return self.controller.image

    def moment(self) -> Moment:
        return Moment(
            now_ms=self.now_ms, wall_ms=0, next_offset=len(self.log), new_uuid=self.new_uuid, new_secret=bytes
        )

    def new_uuid(self) -> bytes:
        self._uuids += 1
        return b"u" + self._uuids.to_bytes(15)

    def decide(self, request: Message) -> ControllerDecision:
        return self.controller.command(request, self.moment())

    def place(self, records: Sequence[Message]) -> None:
        read = [decode_record(encode_record(record)) for record in records]
        self.controller.replay(read, len(self.log), 1)
        self.log += read

    def do(self, request: Message, response_class: type[M]) -> M:
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

    def register(
        self, broker_id: int, incarnation: int = 1, log_dirs: Sequence[bytes] = (), previous_epoch: int = -1
    ) -> int:
        """Register a broker; its epoch.

        :param previous_epoch: of its process before, if that stopped cleanly
        """
        request = self.registration(broker_id, incarnation, log_dirs)
        request.previous_broker_epoch = previous_epoch
        response = self.do(request, BrokerRegistrationResponse)
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
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **more)
        return self.do(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics[0]

    def delete(self, *topics: str | DeleteTopicState) -> list[tuple[str | None, int]]:
        """Delete topics; (name, error) of each answer."""
        states = [DeleteTopicState(name=topic) if isinstance(topic, str) else topic for topic in topics]
        response = self.do(DeleteTopicsRequest(topics=states), DeleteTopicsResponse)
        return [(result.name, result.error_code) for result in response.responses]

    def alter_isr(self, topic: str, isr: Sequence[int], number: int = 0) -> int:
        """The leader of a partition asks for an ISR; the error."""
        partition = self.partition(topic, number)
        wanted = RequestPartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(b, self.epoch_of(b)) for b in isr],
        )
        topic_id = self.image.topics[topic].topic_id
        request = isr_request(partition.leader, self.epoch_of(partition.leader), topic_id, wanted)
        return self.do(request, AlterPartitionResponse).topics[0].partitions[0].error_code

    def alter_config(
        self, kind: int, name: str, *edits: tuple[str, int, str | None], validate_only: bool = False
    ) -> int:
        """Alter one resource by (key, operation, value); its error."""
        configs = [AlterableConfig(name=n, config_operation=o, value=v) for n, o, v in edits]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        return self.do(request, IncrementalAlterConfigsResponse).responses[0].error_code

    def update_feature(self, name: str, level: int, upgrade_type: int = 1, **more: Any) -> int:
        """Ask for a feature's level; the error."""
        key = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
        return self.do(
            UpdateFeaturesRequest(feature_updates=[key], **more), UpdateFeaturesResponse
        ).error_code

    def elect(self, kind: int, *elections: tuple[str, list[int]]) -> dict[str, list[tuple[int, int]]]:
        """Elect leaders of these partitions, or of all; (partition, error) by topic."""
        topics = [TopicPartitions(topic=name, partitions=partitions) for name, partitions in elections]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=topics or None)
        answer = self.do(request, ElectLeadersResponse)
        assert answer.error_code == 0
        return {
            topic.topic: [(result.partition_id, result.error_code) for result in topic.partition_result]
            for topic in answer.replica_election_results
        }

    def reassign(
        self, topic: str, replicas: Sequence[int] | None, number: int = 0, *, same_factor: bool = False
    ) -> int:
        """Ask for other replicas of one partition, or cancel that; its error."""
        wanted = ReassignablePartition(number, None if replicas is None else list(replicas))
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=not same_factor,
            topics=[ReassignableTopic(name=topic, partitions=[wanted])],
        )
        response = self.do(request, AlterPartitionReassignmentsResponse)
        assert response.error_code == 0
        return response.responses[0].partitions[0].error_code

    def fail_over(self, own: int | None = None, incarnation: bytes | None = None) -> None:
        """Another controller goes on from the log, in the process of broker ``own``."""
        self.controller = Controller(MetadataImage(CLUSTER_ID), self.controller.state.config)
        self.controller.replay(list(self.log), 0, 1)
        self.controller.take_over(self.now_ms, own, incarnation)
        self.carry_out(self.controller.elect_left_over(self.moment()))

    def expire(self) -> list[int]:
        """End the sessions that are over; the brokers that are fenced for it."""
        expired = []
        while (fenced := self.controller.fence_expired(self.now_ms)) is not None:
            expired.append(fenced[0])
            self.place(fenced[1])
        return expired

    def epoch_of(self, broker_id: int) -> int:
        """The epoch of a registered broker."""
        return self.image.brokers[broker_id].epoch

    def partition(self, topic: str, number: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[number]


def isr_request(
    broker_id: int, epoch: int, topic_id: bytes, *partitions: RequestPartitionData
) -> AlterPartitionRequest:
    """A leader's request for other ISRs of one topic."""
    topic = RequestTopicData(topic_id=topic_id, partitions=list(partitions))
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=[topic])


def assigned(*replicas: Sequence[int]) -> dict[str, Any]:
    """Partitions on these brokers, as :meth:`Driven.create` takes them."""
    return numbered(*enumerate(replicas))


def numbered(*partitions: tuple[int, Sequence[int]]) -> dict[str, Any]:
    """The same with any numbers."""
    placed = [CreatableReplicaAssignment(number, list(brokers)) for number, brokers in partitions]
    return {"partitions": -1, "factor": -1, "assignments": placed}


def replayed(log: Sequence[Message]) -> MetadataImage:
    """The image of a controller that reads this log."""
    controller = Controller(MetadataImage(CLUSTER_ID), BrokerConfig())
    controller.replay(list(log), 0, 1)
    return controller.image
