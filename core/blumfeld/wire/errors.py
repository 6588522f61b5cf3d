"""Kafka's error codes, which of them a client may retry, and the exception that carries one.

A handler that can't do what was asked raises :class:`BrokerError` with a named code; the encoder of the
answer writes the number. The codes are those of Apache Kafka 4.3.1; the messages are ours.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The int16 of every ``errorCode`` field. Names and numbers are Kafka's and never change."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


RETRIABLE: frozenset[ErrorCode] = frozenset(
    ErrorCode(code)
    for code in (
        *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78),
        *(80, 83, 84, 88, 89, 100, 103, 106, 122, 123, 133),
    )
)
"""Codes after which Kafka's clients retry. Any other code ends the operation."""

REFRESHES_METADATA: frozenset[ErrorCode] = frozenset(
    ErrorCode(code) for code in (3, 5, 6, 9, 13, 15, 16, 56, 72, 74, 80, 83, 84, 100, 103)
)
"""Codes that make a client refresh its metadata before it retries; a subset of RETRIABLE."""

# Messages for codes whose name alone says too little to the reader of a client's log.
_MESSAGES: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker failed in a way it did not foresee; its log says more",
    ErrorCode.NONE: "",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset lies outside of what this partition holds",
    ErrorCode.CORRUPT_MESSAGE: "the batch is damaged: its checksum, size or layout is wrong",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this broker hosts no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker is not a replica, or not the leader, of the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request was not completed within its timeout",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes allows",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the text committed with the offset is too long",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still reading its log",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "there is no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "this broker does not coordinate that group or transaction",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic's name is illegal, or the topic may not be used like this",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the records do not fit into one segment",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written to fewer replicas than min.insync.replicas asks for",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.ILLEGAL_GENERATION: "the group has moved on to another generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member's protocol fits no other member of the group",
    ErrorCode.INVALID_GROUP_ID: "the group id is empty or may not be used here",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the broker's bounds",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing: join again",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the offset commit is too large to be written",
    ErrorCode.INVALID_TIMESTAMP: "a record's timestamp is outside of what the topic accepts",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the request or feature is not supported here",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not possible",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are not that many brokers, or the number is below 1",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "the replica assignment is not possible",
    ErrorCode.INVALID_CONFIG: "a configuration key or value is not valid",
    ErrorCode.NOT_CONTROLLER: "this node is not the active controller",
    ErrorCode.INVALID_REQUEST: "the request contradicts the protocol",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the producer's sequence number leaves a gap",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer with this id has been seen",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not in a state that allows this",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the producer id does not belong to this transactional id",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the previous transaction is still being completed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the disk under this partition failed",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch in the request is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch in the request is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "this version of the request does not know that codec",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id of this answer",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as group.max.size allows",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken over this group.instance.id",
    ErrorCode.INVALID_RECORD: "a record breaks the rules of its topic or of the format",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "an open transaction holds offsets of this partition",
    ErrorCode.PRODUCER_FENCED: "a newer producer with this transactional id has taken over",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset is no longer held locally, only remotely",
}


def message_of(code: ErrorCode) -> str:
    """Returns a short sentence for people; empty only for ``NONE``."""
    message = _MESSAGES.get(code)
    return code.name.replace("_", " ").lower() if message is None else message


def known_code(code: int) -> ErrorCode:
    """Returns the error of a number that another node sent. A number of a newer release is UNKNOWN_SERVER_ERROR, as in
    Kafka's ``Errors.forCode``."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def is_retriable(code: int) -> bool:
    """Whether a client may send the same request again; an unknown number is not retriable."""
    return code in RETRIABLE


MESSAGE_CHARACTERS_MAX = 4_000
"""A longer message loses its middle. Messages quote names that a peer chose, and an answer's string ends at
32,767 bytes. A longer one has no form on the wire, so the connection would be closed instead of answered.
"""


def cut(message: str) -> str:
    """Shorten an error message so that it fits into an answer. Beginning and end stay, because a long value
    mostly stands in the middle.
    """
    if len(message) <= MESSAGE_CHARACTERS_MAX:
        return message
    half = MESSAGE_CHARACTERS_MAX // 2
    return f"{message[:half]} … {message[-half:]}"


class BrokerError(Exception):
    """A request that is answered with an error code.

    :param code: the answer's ``errorCode``; never ``NONE``
    :param message: the answer's ``errorMessage``, where it has one. With ``None`` that field stays null;
        ``str(error)`` then still explains the code
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        if message is not None:
            message = cut(message)
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def retriable(self) -> bool:
        """Whether Kafka's clients ask again after this code."""
        return self.code in RETRIABLE

    def __reduce__(self) -> tuple[object, ...]:
        # Copying an exception calls its class with Exception's arguments, but subclasses take others.
        return _restored, (type(self), self.args, self.__dict__.copy())

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message or message_of(self.code)}"


def _restored(kind: type[BrokerError], args: tuple[object, ...], state: dict[str, object]) -> BrokerError:
    made = kind.__new__(kind)
    made.args = args
    made.__dict__.update(state)
    return made


class CorruptBatch(BrokerError):  # noqa: N818 - the noun says whose fault it is
    """Bytes that are not a record batch: cut off, wrong checksum, impossible lengths. CORRUPT_MESSAGE on the
    wire.

    Retriable: data damaged on the way may arrive intact next time.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class InvalidRecord(BrokerError):  # noqa: N818 - as above
    """A batch with a correct CRC whose records break the format. INVALID_RECORD on the wire.

    Not retriable: the same bytes would fail again.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class PluginContractError(Exception):
    """Blumfeld or a plug-in broke an internal contract. The peer sees only UNKNOWN_SERVER_ERROR."""
