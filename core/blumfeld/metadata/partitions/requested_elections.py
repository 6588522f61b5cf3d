"""ElectLeaders: elect the preferred leader, or any leader (KIP-183, KIP-460). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.partition_index import NO_LEADER
from blumfeld.metadata.partitions.partition_change import Election, active_in, partition_change
from blumfeld.metadata.slices import SLICE_LOOKS, SLICE_RECORDS
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

    With a null list the answer omits partitions that need no election, as Kafka's does. It is decided on in parts.

    Errors:
    * the whole answer, repeated for each partition: INVALID_REQUEST (unknown election type)
    * a partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
      ELIGIBLE_LEADERS_NOT_AVAILABLE
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        message = f"no election has the type {request.election_type}"
        return ControllerDecision([], failed(request, ErrorCode.INVALID_REQUEST, message))
    if request.topic_partitions is None:
        return _elect_all(state, request.election_type, tuple(state.image.topics), 0, 0, [])
    elections = _Elections(state, request.election_type)
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[elections.outcome(topic.topic, index) for index in topic.partitions],
        )
        for topic in request.topic_partitions
    ]
    response = ElectLeadersResponse(replica_election_results=results)
    return ControllerDecision(elections.records, response, atomic=False)


def _elect_all(
    state: ControllerState,
    kind: int,
    names: Sequence[str],
    at: int,
    number: int,
    done: list[ReplicaElectionResult],
) -> ControllerDecision:
    """Elect leaders from partition ``number`` of topic ``names[at]`` on, as far as one part goes.

    :param done: results of the parts before; grows
    """
    elections = _Elections(state, kind)
    looks = SLICE_LOOKS
    while at < len(names) and looks > 0 and len(elections.records) < SLICE_RECORDS:
        topic = state.image.topics.get(names[at])  # it may have been deleted between two parts
        count = 0 if topic is None else len(topic.partitions)
        outcomes = []
        while number < count and looks > 0 and len(elections.records) < SLICE_RECORDS:
            outcome = elections.outcome(names[at], number)
            number, looks = number + 1, looks - 1
            if outcome.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                outcomes.append(outcome)
        if done and done[-1].topic == names[at]:
            outcomes = [*done.pop().partition_result, *outcomes]
        if topic is not None:
            done.append(ReplicaElectionResult(topic=names[at], partition_result=outcomes))
        if number >= count:
            at, number, looks = at + 1, 0, looks - 1
    response = ElectLeadersResponse(replica_election_results=done)
    rest = None
    if at < len(names):

        def rest(state: ControllerState, _: Moment) -> ControllerDecision:
            return _elect_all(state, kind, names, at, number, done)

    return ControllerDecision(elections.records, response, atomic=False, rest=rest)


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
        self._config = state.image.broker_config(state.config)
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
        """Elect the first replica if it has every committed record and is active."""
        if partition.leader == partition.replicas[0]:
            raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
        record = self._change(topic, partition, Election.PREFERRED)
        if record is None:
            raise BrokerError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        return record

    def _elect_any(self, topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord:
        """Elect any replica for a partition without a leader, even one that may lack records."""
        if partition.leader != NO_LEADER:
            raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
        record = self._change(topic, partition, Election.UNCLEAN)
        if record is None or record.leader < 0:
            raise BrokerError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
        return record

    def _change(
        self, topic: TopicImage, partition: PartitionImage, election: Election
    ) -> PartitionChangeRecord | None:
        config = self._state.image.topic_config(topic.name, self._config)
        return partition_change(
            self._state, topic, partition, config, self._usable, election=election
        ).record()
