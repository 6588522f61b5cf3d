"""AlterPartitionReassignments: other replicas for partitions (KIP-455). Pure.

A reassignment begins with a record that adds the new replicas to the old ones. It ends by itself, with the first change
of the partition after which the ISR has all that is needed: usually the leader's AlterPartition. See
:class:`~blumfeld.metadata.partitions.partition_change.PartitionChange`.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.step import changed_partition
from blumfeld.metadata.partitions.partition_change import (
    Election,
    PartitionChange,
    active_in,
    partition_change,
)
from blumfeld.metadata.partitions.placement import check_assignment, default_directory
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from blumfeld.wire.schema import Message


def alter_partition_reassignments(
    state: ControllerState, request: AlterPartitionReassignmentsRequest, _moment: Moment
) -> ControllerDecision:
    """Begin, change or cancel the reassignment of the named partitions; each has its own result. A request for many
    partitions is decided on in parts.

    Errors of a partition:
    * UNKNOWN_TOPIC_OR_PARTITION
    * INVALID_REPLICA_ASSIGNMENT: the list is empty, or names a broker twice or one that is not registered; or a cancel
      would need an unclean election, which the topic forbids
    * INVALID_REPLICATION_FACTOR: another number of replicas, which the request forbids (version 1)
    * NO_REASSIGNMENT_IN_PROGRESS: there is nothing to cancel
    """
    wanted = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    answers = [ReassignableTopicResponse(name=topic.name) for topic in request.topics]
    places = [
        answer.partitions
        for answer, topic in zip(answers, request.topics, strict=True)
        for _ in topic.partitions
    ]
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=answers,
    )
    return _alter(state, wanted, places, response, 0)


def _alter(
    state: ControllerState,
    wanted: Sequence[tuple[str, ReassignablePartition]],
    places: Sequence[list[ReassignablePartitionResponse]],
    response: AlterPartitionReassignmentsResponse,
    done: int,
) -> ControllerDecision:
    """Decide on the partitions from number ``done`` on, as far as one part goes.

    :param places: where the result of each goes
    """
    part = _Part(state, response.allow_replication_factor_change)
    end = min(len(wanted), done + SLICE_LOOKS)
    while done < end and len(part.records) < SLICE_RECORDS:
        places[done].append(part.outcome(*wanted[done]))
        done += 1
    rest = None
    if done < len(wanted):

        def rest(state: ControllerState, _: Moment) -> ControllerDecision:
            return _alter(state, wanted, places, response, done)

    return ControllerDecision(part.records, response, atomic=False, rest=rest)


class _Part:
    """The changes of one part. Each sees those before it."""

    def __init__(self, state: ControllerState, another_factor: bool) -> None:
        self.records: list[Message] = []
        self._state = state
        self._another_factor = another_factor
        self._config = state.image.broker_config(state.config)
        self._usable = active_in(state.image)
        self._changed: dict[tuple[bytes, int], PartitionImage] = {}

    def outcome(self, name: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
        result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
        try:
            self._alter(self._state.image.topics.get(name), wanted)
        except BrokerError as error:
            result.error_code = error.code
            result.error_message = error.message or message_of(error.code)
        return result

    def _alter(self, topic: TopicImage | None, wanted: ReassignablePartition) -> None:
        if topic is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        key = (topic.topic_id, wanted.partition_index)
        partition = self._changed.get(key, topic.partitions.get(wanted.partition_index))
        if partition is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if wanted.replicas is None:
            record = self._cancel(topic, partition)
        else:
            record = self._begin(topic, partition, wanted.replicas)
        if record is not None:
            self.records.append(record)
            self._changed[key] = changed_partition(partition, record)

    def _begin(
        self, topic: TopicImage, partition: PartitionImage, target: list[int]
    ) -> PartitionChangeRecord | None:
        """Returns the record that begins the reassignment or gives a running one another target; ``None`` if the
        partition has these replicas already.
        """
        image = self._state.image
        check_assignment(image, target, None, new=False)
        factor = len(set(partition.replicas) - set(partition.removing_replicas))
        if not self._another_factor and len(target) != factor:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {factor} to {len(target)}",
            )
        change = self._change(topic, partition, Election.ONLINE)
        removing = sorted(set(partition.replicas) - set(target))
        change.replicas = [*target, *removing]
        change.removing = removing
        # A cancel takes away what is here. So a replica that an earlier target added stays in the list, also if the
        # new target has it no more. Kafka forgets it, and can't end a reassignment back to the original replicas.
        original = set(partition.replicas) - set(partition.adding_replicas)
        change.adding = sorted(set(change.replicas) - original)
        for replica in target:
            if replica not in partition.replicas:
                change.assign(replica, default_directory(image, replica))
        return change.record()

    def _cancel(self, topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
        """Returns the record that takes the added replicas away and keeps those that were to go.

        :raises BrokerError: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT: only added replicas have every
            committed record, and the topic forbids an unclean election
        """
        if not partition.adding_replicas and not partition.removing_replicas:
            raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        adding = partition.adding_replicas
        change = self._change(topic, partition, None)
        change.replicas = [replica for replica in partition.replicas if replica not in adding]
        change.adding, change.removing = [], []
        change.isr = [replica for replica in partition.isr if replica not in adding]
        eligible = (
            set(partition.eligible_leader_replicas) - set(adding) if self._state.image.elr_enabled else ()
        )
        if not change.isr and not eligible:
            allowed = self._state.image.topic_config(topic.name, self._config).unclean_leader_election_enable
            if not change.replicas or not allowed:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {topic.name}:{partition.partition} because it would "
                    "require an unclean leader election.",
                )
            change.isr = [next(filter(change.usable, change.replicas), change.replicas[0])]
            change.forget_eligible()
        return change.record()

    def _change(
        self, topic: TopicImage, partition: PartitionImage, election: Election | None
    ) -> PartitionChange:
        config = self._state.image.topic_config(topic.name, self._config)
        return partition_change(self._state, topic, partition, config, self._usable, election=election)
