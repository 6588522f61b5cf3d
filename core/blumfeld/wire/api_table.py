"""The table of all APIs, written by tools/convert_messages.py. Use :mod:`blumfeld.wire.api`."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

NEVER = 32767
"""As first flexible version: none is."""


class ApiInfo(NamedTuple):
    """The facts of an API in the protocol, whether or not a broker serves it.

    ``max_version`` is the last stable version; where ``latest_unstable``, the schema knows one more.
    ``module`` is below blumfeld.wire.messages.
    """

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    flexible_from: int
    listeners: tuple[str, ...]
    latest_unstable: bool


class ApiKey(IntEnum):
    """The number of each API, by Kafka's name for it."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


APIS: dict[int, ApiInfo] = {
    0: ApiInfo(0, "Produce", "produce", 3, 13, 9, ("broker",), False),
    1: ApiInfo(
        1,
        "Fetch",
        "fetch",
        4,
        18,
        12,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    2: ApiInfo(2, "ListOffsets", "list_offsets", 1, 11, 6, ("broker",), False),
    3: ApiInfo(3, "Metadata", "metadata", 0, 13, 9, ("broker",), False),
    4: ApiInfo(4, "LeaderAndIsr", "leader_and_isr", 0, 7, 4, ("zkBroker",), False),
    5: ApiInfo(5, "StopReplica", "stop_replica", 0, 4, 2, ("zkBroker",), False),
    6: ApiInfo(6, "UpdateMetadata", "update_metadata", 0, 8, 6, ("zkBroker",), False),
    7: ApiInfo(
        7,
        "ControlledShutdown",
        "controlled_shutdown",
        0,
        3,
        3,
        (
            "zkBroker",
            "controller",
        ),
        False,
    ),
    8: ApiInfo(8, "OffsetCommit", "offset_commit", 2, 10, 8, ("broker",), False),
    9: ApiInfo(9, "OffsetFetch", "offset_fetch", 1, 10, 6, ("broker",), False),
    10: ApiInfo(10, "FindCoordinator", "find_coordinator", 0, 6, 3, ("broker",), False),
    11: ApiInfo(11, "JoinGroup", "join_group", 0, 9, 6, ("broker",), False),
    12: ApiInfo(12, "Heartbeat", "heartbeat", 0, 4, 4, ("broker",), False),
    13: ApiInfo(13, "LeaveGroup", "leave_group", 0, 5, 4, ("broker",), False),
    14: ApiInfo(14, "SyncGroup", "sync_group", 0, 5, 4, ("broker",), False),
    15: ApiInfo(15, "DescribeGroups", "describe_groups", 0, 6, 5, ("broker",), False),
    16: ApiInfo(16, "ListGroups", "list_groups", 0, 5, 3, ("broker",), False),
    17: ApiInfo(
        17,
        "SaslHandshake",
        "sasl_handshake",
        0,
        1,
        NEVER,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    18: ApiInfo(
        18,
        "ApiVersions",
        "api_versions",
        0,
        4,
        3,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    19: ApiInfo(
        19,
        "CreateTopics",
        "create_topics",
        2,
        7,
        5,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    20: ApiInfo(
        20,
        "DeleteTopics",
        "delete_topics",
        1,
        6,
        4,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    21: ApiInfo(21, "DeleteRecords", "delete_records", 0, 2, 2, ("broker",), False),
    22: ApiInfo(22, "InitProducerId", "init_producer_id", 0, 5, 2, ("broker",), True),
    23: ApiInfo(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 2, 4, 4, ("broker",), False),
    24: ApiInfo(24, "AddPartitionsToTxn", "add_partitions_to_txn", 0, 5, 3, ("broker",), False),
    25: ApiInfo(25, "AddOffsetsToTxn", "add_offsets_to_txn", 0, 4, 3, ("broker",), False),
    26: ApiInfo(26, "EndTxn", "end_txn", 0, 5, 3, ("broker",), False),
    27: ApiInfo(27, "WriteTxnMarkers", "write_txn_markers", 1, 2, 1, ("broker",), False),
    28: ApiInfo(28, "TxnOffsetCommit", "txn_offset_commit", 0, 5, 3, ("broker",), False),
    29: ApiInfo(
        29,
        "DescribeAcls",
        "describe_acls",
        1,
        3,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    30: ApiInfo(
        30,
        "CreateAcls",
        "create_acls",
        1,
        3,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    31: ApiInfo(
        31,
        "DeleteAcls",
        "delete_acls",
        1,
        3,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    32: ApiInfo(
        32,
        "DescribeConfigs",
        "describe_configs",
        1,
        4,
        4,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    33: ApiInfo(
        33,
        "AlterConfigs",
        "alter_configs",
        0,
        2,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    34: ApiInfo(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 1, 2, 2, ("broker",), False),
    35: ApiInfo(35, "DescribeLogDirs", "describe_log_dirs", 1, 5, 2, ("broker",), False),
    36: ApiInfo(
        36,
        "SaslAuthenticate",
        "sasl_authenticate",
        0,
        2,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    37: ApiInfo(
        37,
        "CreatePartitions",
        "create_partitions",
        0,
        3,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    38: ApiInfo(
        38,
        "CreateDelegationToken",
        "create_delegation_token",
        1,
        3,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    39: ApiInfo(
        39,
        "RenewDelegationToken",
        "renew_delegation_token",
        1,
        2,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    40: ApiInfo(
        40,
        "ExpireDelegationToken",
        "expire_delegation_token",
        1,
        2,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    41: ApiInfo(
        41,
        "DescribeDelegationToken",
        "describe_delegation_token",
        1,
        3,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    42: ApiInfo(42, "DeleteGroups", "delete_groups", 0, 2, 2, ("broker",), False),
    43: ApiInfo(
        43,
        "ElectLeaders",
        "elect_leaders",
        0,
        2,
        2,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    44: ApiInfo(
        44,
        "IncrementalAlterConfigs",
        "incremental_alter_configs",
        0,
        1,
        1,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    45: ApiInfo(
        45,
        "AlterPartitionReassignments",
        "alter_partition_reassignments",
        0,
        1,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    46: ApiInfo(
        46,
        "ListPartitionReassignments",
        "list_partition_reassignments",
        0,
        0,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    47: ApiInfo(47, "OffsetDelete", "offset_delete", 0, 0, NEVER, ("broker",), False),
    48: ApiInfo(48, "DescribeClientQuotas", "describe_client_quotas", 0, 1, 1, ("broker",), False),
    49: ApiInfo(
        49,
        "AlterClientQuotas",
        "alter_client_quotas",
        0,
        1,
        1,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    50: ApiInfo(
        50,
        "DescribeUserScramCredentials",
        "describe_user_scram_credentials",
        0,
        0,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    51: ApiInfo(
        51,
        "AlterUserScramCredentials",
        "alter_user_scram_credentials",
        0,
        0,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    52: ApiInfo(52, "Vote", "vote", 0, 2, 0, ("controller",), False),
    53: ApiInfo(53, "BeginQuorumEpoch", "begin_quorum_epoch", 0, 1, 1, ("controller",), False),
    54: ApiInfo(54, "EndQuorumEpoch", "end_quorum_epoch", 0, 1, 1, ("controller",), False),
    55: ApiInfo(
        55,
        "DescribeQuorum",
        "describe_quorum",
        0,
        2,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    56: ApiInfo(56, "AlterPartition", "alter_partition", 2, 3, 0, ("controller",), False),
    57: ApiInfo(
        57,
        "UpdateFeatures",
        "update_features",
        0,
        2,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    58: ApiInfo(58, "Envelope", "envelope", 0, 0, 0, ("controller",), False),
    59: ApiInfo(59, "FetchSnapshot", "fetch_snapshot", 0, 1, 0, ("controller",), False),
    60: ApiInfo(
        60,
        "DescribeCluster",
        "describe_cluster",
        0,
        2,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    61: ApiInfo(61, "DescribeProducers", "describe_producers", 0, 0, 0, ("broker",), False),
    62: ApiInfo(62, "BrokerRegistration", "broker_registration", 0, 4, 0, ("controller",), False),
    63: ApiInfo(63, "BrokerHeartbeat", "broker_heartbeat", 0, 2, 0, ("controller",), False),
    64: ApiInfo(
        64,
        "UnregisterBroker",
        "unregister_broker",
        0,
        0,
        0,
        (
            "broker",
            "controller",
        ),
        False,
    ),
    65: ApiInfo(65, "DescribeTransactions", "describe_transactions", 0, 0, 0, ("broker",), False),
    66: ApiInfo(66, "ListTransactions", "list_transactions", 0, 2, 0, ("broker",), False),
    67: ApiInfo(67, "AllocateProducerIds", "allocate_producer_ids", 0, 0, 0, ("controller",), False),
    68: ApiInfo(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, 0, ("broker",), False),
    69: ApiInfo(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, 0, ("broker",), False),
    70: ApiInfo(70, "ControllerRegistration", "controller_registration", 0, 0, 0, ("controller",), False),
    71: ApiInfo(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0, 0, ("broker",), False),
    72: ApiInfo(72, "PushTelemetry", "push_telemetry", 0, 0, 0, ("broker",), False),
    73: ApiInfo(73, "AssignReplicasToDirs", "assign_replicas_to_dirs", 0, 0, 0, ("controller",), False),
    74: ApiInfo(74, "ListConfigResources", "list_config_resources", 0, 1, 0, ("broker",), False),
    75: ApiInfo(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, 0, ("broker",), False),
    76: ApiInfo(76, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, 0, ("broker",), False),
    77: ApiInfo(77, "ShareGroupDescribe", "share_group_describe", 1, 1, 0, ("broker",), False),
    78: ApiInfo(78, "ShareFetch", "share_fetch", 1, 2, 0, ("broker",), False),
    79: ApiInfo(79, "ShareAcknowledge", "share_acknowledge", 1, 2, 0, ("broker",), False),
    80: ApiInfo(
        80,
        "AddRaftVoter",
        "add_raft_voter",
        0,
        1,
        0,
        (
            "controller",
            "broker",
        ),
        False,
    ),
    81: ApiInfo(
        81,
        "RemoveRaftVoter",
        "remove_raft_voter",
        0,
        0,
        0,
        (
            "controller",
            "broker",
        ),
        False,
    ),
    82: ApiInfo(82, "UpdateRaftVoter", "update_raft_voter", 0, 0, 0, ("controller",), False),
    83: ApiInfo(83, "InitializeShareGroupState", "initialize_share_group_state", 0, 0, 0, ("broker",), False),
    84: ApiInfo(84, "ReadShareGroupState", "read_share_group_state", 0, 0, 0, ("broker",), False),
    85: ApiInfo(85, "WriteShareGroupState", "write_share_group_state", 0, 1, 0, ("broker",), False),
    86: ApiInfo(86, "DeleteShareGroupState", "delete_share_group_state", 0, 0, 0, ("broker",), False),
    87: ApiInfo(
        87, "ReadShareGroupStateSummary", "read_share_group_state_summary", 0, 1, 0, ("broker",), False
    ),
    88: ApiInfo(88, "StreamsGroupHeartbeat", "streams_group_heartbeat", 0, 0, 0, ("broker",), False),
    89: ApiInfo(89, "StreamsGroupDescribe", "streams_group_describe", 0, 0, 0, ("broker",), False),
    90: ApiInfo(90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, 0, ("broker",), False),
    91: ApiInfo(91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, 0, ("broker",), False),
    92: ApiInfo(92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, 0, ("broker",), False),
}
"""All APIs by their keys."""

OTHER_MESSAGES: dict[str, str] = {
    "AbortTransactionRecord": "metadata_records",
    "AccessControlEntryRecord": "metadata_records",
    "BeginTransactionRecord": "metadata_records",
    "BrokerRegistrationChangeRecord": "metadata_records",
    "ClearElrRecord": "metadata_records",
    "ClientQuotaRecord": "metadata_records",
    "ConfigRecord": "metadata_records",
    "ConsumerGroupCurrentMemberAssignmentKey": "group_coordinator_records",
    "ConsumerGroupCurrentMemberAssignmentValue": "group_coordinator_records",
    "ConsumerGroupMemberMetadataKey": "group_coordinator_records",
    "ConsumerGroupMemberMetadataValue": "group_coordinator_records",
    "ConsumerGroupMetadataKey": "group_coordinator_records",
    "ConsumerGroupMetadataValue": "group_coordinator_records",
    "ConsumerGroupPartitionMetadataKey": "group_coordinator_records",
    "ConsumerGroupPartitionMetadataValue": "group_coordinator_records",
    "ConsumerGroupRegularExpressionKey": "group_coordinator_records",
    "ConsumerGroupRegularExpressionValue": "group_coordinator_records",
    "ConsumerGroupTargetAssignmentMemberKey": "group_coordinator_records",
    "ConsumerGroupTargetAssignmentMemberValue": "group_coordinator_records",
    "ConsumerGroupTargetAssignmentMetadataKey": "group_coordinator_records",
    "ConsumerGroupTargetAssignmentMetadataValue": "group_coordinator_records",
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "ControlRecordTypeSchema": "control_records",
    "DefaultPrincipalData": "default_principal",
    "DelegationTokenRecord": "metadata_records",
    "EndTransactionRecord": "metadata_records",
    "EndTxnMarker": "control_records",
    "FeatureLevelRecord": "metadata_records",
    "FenceBrokerRecord": "metadata_records",
    "GroupMetadataKey": "group_coordinator_records",
    "GroupMetadataValue": "group_coordinator_records",
    "KRaftVersionRecord": "raft_records",
    "LeaderChangeMessage": "raft_records",
    "LegacyOffsetCommitKey": "group_coordinator_records",
    "LegacyOffsetCommitValue": "group_coordinator_records",
    "NoOpRecord": "metadata_records",
    "OffsetCommitKey": "group_coordinator_records",
    "OffsetCommitValue": "group_coordinator_records",
    "PartitionChangeRecord": "metadata_records",
    "PartitionRecord": "metadata_records",
    "ProducerIdsRecord": "metadata_records",
    "ProducerSnapshot": "producer_snapshot",
    "QuorumStateData": "quorum_state",
    "RegisterBrokerRecord": "metadata_records",
    "RegisterControllerRecord": "metadata_records",
    "RemoteLogSegmentMetadataRecord": "remote_log_metadata_records",
    "RemoteLogSegmentMetadataSnapshotRecord": "remote_log_metadata_records",
    "RemoteLogSegmentMetadataUpdateRecord": "remote_log_metadata_records",
    "RemotePartitionDeleteMetadataRecord": "remote_log_metadata_records",
    "RemoveAccessControlEntryRecord": "metadata_records",
    "RemoveDelegationTokenRecord": "metadata_records",
    "RemoveTopicRecord": "metadata_records",
    "RemoveUserScramCredentialRecord": "metadata_records",
    "RequestHeader": "headers",
    "ResponseHeader": "headers",
    "ShareGroupCurrentMemberAssignmentKey": "group_coordinator_records",
    "ShareGroupCurrentMemberAssignmentValue": "group_coordinator_records",
    "ShareGroupMemberMetadataKey": "group_coordinator_records",
    "ShareGroupMemberMetadataValue": "group_coordinator_records",
    "ShareGroupMetadataKey": "group_coordinator_records",
    "ShareGroupMetadataValue": "group_coordinator_records",
    "ShareGroupStatePartitionMetadataKey": "group_coordinator_records",
    "ShareGroupStatePartitionMetadataValue": "group_coordinator_records",
    "ShareGroupTargetAssignmentMemberKey": "group_coordinator_records",
    "ShareGroupTargetAssignmentMemberValue": "group_coordinator_records",
    "ShareGroupTargetAssignmentMetadataKey": "group_coordinator_records",
    "ShareGroupTargetAssignmentMetadataValue": "group_coordinator_records",
    "ShareSnapshotKey": "share_coordinator_records",
    "ShareSnapshotValue": "share_coordinator_records",
    "ShareUpdateKey": "share_coordinator_records",
    "ShareUpdateValue": "share_coordinator_records",
    "SnapshotFooterRecord": "raft_records",
    "SnapshotHeaderRecord": "raft_records",
    "StreamsGroupCurrentMemberAssignmentKey": "group_coordinator_records",
    "StreamsGroupCurrentMemberAssignmentValue": "group_coordinator_records",
    "StreamsGroupMemberMetadataKey": "group_coordinator_records",
    "StreamsGroupMemberMetadataValue": "group_coordinator_records",
    "StreamsGroupMetadataKey": "group_coordinator_records",
    "StreamsGroupMetadataValue": "group_coordinator_records",
    "StreamsGroupTargetAssignmentMemberKey": "group_coordinator_records",
    "StreamsGroupTargetAssignmentMemberValue": "group_coordinator_records",
    "StreamsGroupTargetAssignmentMetadataKey": "group_coordinator_records",
    "StreamsGroupTargetAssignmentMetadataValue": "group_coordinator_records",
    "StreamsGroupTopologyKey": "group_coordinator_records",
    "StreamsGroupTopologyValue": "group_coordinator_records",
    "SubscriptionInfoData": "streams_subscription",
    "TopicRecord": "metadata_records",
    "TransactionLogKey": "transaction_coordinator_records",
    "TransactionLogValue": "transaction_coordinator_records",
    "UnfenceBrokerRecord": "metadata_records",
    "UnregisterBrokerRecord": "metadata_records",
    "UserScramCredentialRecord": "metadata_records",
    "VotersRecord": "raft_records",
    "ZkMigrationStateRecord": "metadata_records",
}
"""The module of each message that is neither request nor response."""
