"""ElectLeaders: elect the preferred leader, or any leader (KIP-183, KIP-460). Pure."""

from __future__ import annotations

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.change import (
    NO_LEADER,
    active_in,
    effective_config,
    partition_change,
    topic_config,
)
from blumfeld.metadata.partitions.directories import directory_of
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from blumfeld.wire.schema import Message

PREFERRED, UNCLEAN = 0, 1


def elect_leaders(
    state: ControllerState, request: ElectLeadersRequest, _moment: Moment
) -> ControllerDecision:
    """Elect leaders for the named partitions, or for every partition if the request's list is null.

    With a null list the answer omits partitions that need no election, as Kafka's does.

    Errors:
    * the whole answer, repeated for each partition: INVALID_REQUEST (unknown election type)
    * a partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
      ELIGIBLE_LEADERS_NOT_AVAILABLE
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"no election has the type {request.election_type}"
        return ControllerDecision([], failed(request, ErrorCode.INVALID_REQUEST, message))
    elections = _Elections(state, request.election_type)
    if request.topic_partitions is None:
        asked = [(topic.name, list(topic.partitions)) for topic in state.image.topics.values()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    results = []
    for name, partitions in asked:
        outcomes = [elections.outcome(name, index) for index in partitions]
        if request.topic_partitions is None:
            outcomes = [one for one in outcomes if one.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return ControllerDecision(elections.records, ElectLeadersResponse(replica_election_results=results))


def failed(request: ElectLeadersRequest, code: int, message: str | None) -> ElectLeadersResponse:
    """Returns an answer with this error for the whole and for each named partition."""
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


class _Elections:
    """The elections of one request."""

    def __init__(self, state: ControllerState, kind: int) -> None:
        self.records: list[Message] = []
        self._state = state
        self._elect = self._elect_preferred if kind == PREFERRED else self._elect_any
        self._config = effective_config(state)
        self._usable = active_in(state.image)
        self._elected: set[tuple[str, int]] = set()
        """Partitions elected in this request. The second mention of one is ELECTION_NOT_NEEDED."""

    def outcome(self, name: str, index: int) -> PartitionResult:
        try:
            topic = self._state.image.topics.get(name)
            partition = None if topic is None else topic.partitions.get(index)
            if topic is None or partition is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if (name, index) in self._elected:
                raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
            self.records.append(self._elect(topic, partition))
            self._elected.add((name, index))
        except BrokerError as error:
            message = error.message or message_of(error.code)
            return PartitionResult(partition_id=index, error_code=error.code, error_message=message)
        return PartitionResult(partition_id=index, error_message=None)

    def _elect_preferred(self, topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord:
        """Elect the first replica if it is in sync and active."""
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
        there = self._usable(preferred, directory_of(partition, preferred))
        if not there or preferred not in partition.isr:
            raise BrokerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        return PartitionChangeRecord(
            partition_id=partition.partition, topic_id=topic.topic_id, leader=preferred
        )

    def _elect_any(self, topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord:
        """Elect any replica for a partition without a leader, even one that may lack records."""
        if partition.leader != NO_LEADER:
            raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
        config = topic_config(self._state, topic, self._config)
        config.unclean_leader_election_enable = True
        change = partition_change(self._state, topic, partition, config, self._usable)
        record = change.record()
        if record is None or record.leader < 0:
            raise BrokerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        return record
