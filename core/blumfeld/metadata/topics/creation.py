"""CreateTopics and DeleteTopics (Kafka's ``ReplicationControlManager``), and the rules for names (``Topic``). Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Set

from blumfeld.config.values import TOPIC_CONFIGS, ConfigError, TopicConfig, check_topic_configs, render
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.placement import check_assignment, new_partition, place
from blumfeld.spi.cluster import TOPIC_RESOURCE
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, REMOTE_LOG_METADATA_TOPIC, is_internal
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from blumfeld.wire.messages.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Message

NAME_CHARACTERS_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Check a topic's name.

    :raises BrokerError: INVALID_TOPIC_EXCEPTION; the message says what is wrong
    """
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > NAME_CHARACTERS_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {NAME_CHARACTERS_MAX}"
    elif _LEGAL.fullmatch(name) is None:
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def colliding_topic(name: str, others: Iterable[str]) -> str | None:
    """Returns the topic whose metric names ``name`` would share ('.' and '_' are the same there), or ``None``."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in others if other != name and other.replace(".", "_") == unified), None)


NEW_PARTITIONS_MAX = 10_000
"""Limit of new partitions in one request, because all of them are one batch of records (Kafka's limit)."""


def create_topics(state: ControllerState, request: CreateTopicsRequest, moment: Moment) -> ControllerDecision:
    """Create the topics that can be created; each other topic has its own error and message.

    Errors: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REQUEST (a name twice, or an assignment
    together with a partition count or replication factor), INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION (more than 10000 new partitions).
    """
    names = Counter(topic.name for topic in request.topics)
    creation = _Creation(state, moment)
    results = []
    for topic in request.topics:
        try:
            if names[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results.append(creation.create(topic))
        except BrokerError as error:
            results.append(
                CreatableTopicResult(
                    name=topic.name,
                    error_code=error.code,
                    error_message=error.message or message_of(error.code),
                )
            )
    seen: dict[str, CreatableTopicResult] = {result.name: result for result in results}
    response = CreateTopicsResponse(topics=list(seen.values()))
    return ControllerDecision([] if request.validate_only else creation.records, response)


class _Creation:
    """The topics of one request. Each sees those before it."""

    def __init__(self, state: ControllerState, moment: Moment) -> None:
        self.records: list[Message] = []
        self._state = state
        self._moment = moment
        self._config = state.image.broker_config(state.config)
        self._names: list[str] = []
        self._next_partition = state.image.index.count
        self._new_partitions = 0

    def create(self, topic: CreatableTopic) -> CreatableTopicResult:
        self._check_name(topic.name)
        # If a key is given twice, the last one counts, as in Kafka.
        given = {c.name: c.value for c in topic.configs}
        if nulls := [name for name, value in given.items() if value is None]:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {nulls[0]}"
            )
        config = check_topic_configs(given, self._config)
        if given:
            _check_effects(topic, self._config.abilities)
            check_tiered_name(topic.name, config)
        topic_id = self._moment.new_uuid()
        while topic_id in self._state.image.topic_names:
            topic_id = self._moment.new_uuid()
        partitions = self._partitions(topic, topic_id)
        self._new_partitions += len(partitions)
        if self._new_partitions > NEW_PARTITIONS_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        self._next_partition += len(partitions)
        self._names.append(topic.name)
        self.records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        self.records += [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=given[name])
            for name in sorted(given)
        ]
        self.records += partitions
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=described(config),
        )

    def _check_name(self, name: str) -> None:
        check_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the topic {name} cannot be created")
        image = self._state.image
        if name in image.topics:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        collision = colliding_topic(name, [*image.topics, *self._names])
        if collision is not None:
            raise BrokerError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {collision}"
            )

    def _partitions(self, topic: CreatableTopic, topic_id: bytes) -> list[PartitionRecord]:
        image = self._state.image
        if topic.assignments:
            return self._assigned(topic, topic_id)
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        config = self._config
        count = config.int("num.partitions") if topic.num_partitions == -1 else topic.num_partitions
        factor = topic.replication_factor
        if factor == -1:
            factor = config.int("default.replication.factor")
        if count > NEW_PARTITIONS_MAX:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        placed = place(image, count, factor, self._next_partition)
        return [new_partition(image, topic_id, number, replicas) for number, replicas in enumerate(placed)]

    def _assigned(self, topic: CreatableTopic, topic_id: bytes) -> list[PartitionRecord]:
        image = self._state.image
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            wrong = "replication factor" if topic.replication_factor != -1 else "numPartitions"
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {wrong} was not set to -1.",
            )
        by_number: dict[int, list[int]] = {}
        factor: int | None = None
        for assignment in topic.assignments:
            if assignment.partition_index in by_number:
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {assignment.partition_index}",
                )
            check_assignment(image, assignment.broker_ids, factor)
            factor = len(assignment.broker_ids)
            by_number[assignment.partition_index] = assignment.broker_ids
        if sorted(by_number) != list(range(len(by_number))):
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [new_partition(image, topic_id, number, by_number[number]) for number in range(len(by_number))]


def check_tiered_name(topic: str, config: TopicConfig) -> None:
    """Refuse tiering for topics that are read to find what is remote, or by a coordinator when it begins.

    :raises ConfigError: ``remote.storage.enable`` is on for such a topic. Kafka takes it there, and doesn't do it
    """
    if config.remote_storage_enable and (is_internal(topic) or topic == REMOTE_LOG_METADATA_TOPIC):
        raise ConfigError("remote.storage.enable", True, f"false: {topic} is never tiered")


def _check_effects(topic: CreatableTopic, abilities: Set[str]) -> None:
    """Refuse keys that would have no effect in this build.

    :raises ConfigError: such a key has another value than Kafka's default
    """
    from blumfeld.config.effects import (
        check_effect,
    )  # imported late: topics without configuration need no table

    for config in topic.configs:
        check_effect(TOPIC_CONFIGS.find(config.name), config.value, abilities)


def described(config: TopicConfig) -> list[CreatableTopicConfigs]:
    """Returns all topic keys with value and source, sorted by name, as CreateTopics answers from version 5 on."""
    configs = []
    for name in sorted(TOPIC_CONFIGS):
        defn = TOPIC_CONFIGS[name]
        if defn.internal:
            continue
        configs.append(
            CreatableTopicConfigs(
                name=name,
                value=None if defn.sensitive else render(defn, config.get(name)),
                read_only=False,
                config_source=config.source(name),
                is_sensitive=defn.sensitive,
            )
        )
    return configs


def delete_topics(
    state: ControllerState, request: DeleteTopicsRequest, _moment: Moment
) -> ControllerDecision:
    """Delete topics by name or id, with their configurations.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST (a topic twice, both or neither of
    name and id), TOPIC_DELETION_DISABLED (``delete.topic.enable``). Before version 3 the handler answers
    INVALID_REQUEST instead.
    """
    wanted = list(request.topics) or [DeleteTopicState(name=name) for name in request.topic_names]
    enabled = state.config.bool("delete.topic.enable")
    outcomes: list[tuple[DeleteTopicState, bytes | None, BrokerError | None]] = []
    for topic in wanted:
        try:
            if not enabled:
                raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED)
            outcomes.append((topic, _wanted_id(state, topic), None))
        except BrokerError as error:
            outcomes.append((topic, None, error))
    times = Counter(topic_id for _, topic_id, _ in outcomes if topic_id is not None)
    records: list[Message] = []
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    for topic, topic_id, refused in outcomes:
        name = topic.name
        if topic_id is not None:
            name = state.image.topic_names[topic_id]
            if times[topic_id] > 1:
                refused = BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            else:
                records.append(RemoveTopicRecord(topic_id=topic_id))
        results[topic.name, topic.topic_id] = DeletableTopicResult(
            name=name,
            topic_id=topic_id or topic.topic_id,
            error_code=ErrorCode.NONE if refused is None else refused.code,
            error_message=None if refused is None else refused.message or message_of(refused.code),
        )
    return ControllerDecision(records, DeleteTopicsResponse(responses=list(results.values())))


def _wanted_id(state: ControllerState, topic: DeleteTopicState) -> bytes:
    by_id = topic.topic_id != ZERO_UUID
    if (topic.name is None) != by_id:
        both = "You may not specify both topic name and topic id."
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, both if by_id else "Neither topic name nor id were specified."
        )
    if by_id:
        if topic.topic_id not in state.image.topic_names:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.topic_id
    known = state.image.topics.get(topic.name or "")
    if known is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return known.topic_id
