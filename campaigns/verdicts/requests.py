"""The requests of the campaign: for every API that authorizes, the shapes in which it may be asked.

Hardly any changes what another one finds: what is created is only validated, what is deleted isn't there. Each server
has ids of its own, so a request is made for one server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import attrs
import msgspec

from blumfeld.wire.api import request_class
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.schema import Message

TOPICS = ("t-a", "t-b", "o-a")
"""The topics that there are."""
ABSENT = "t-none"
GROUPS = ("g-a", "g-b")
TRANSACTIONAL_IDS = ("x-a", "y-a")
NO_ID = bytes(16)
_KINDS = {"topic": 2, "broker": 4, "logger": 8, "group": 32, "metrics": 16}


@attrs.frozen
class Case:
    """One request in one version."""

    name: str
    listener: str
    """The kind of listener: ``broker`` or ``controller``."""
    version: int
    message: Message


def cases(topic_ids: Mapping[str, bytes], cluster_id: str) -> Iterator[Case]:
    """Yields every request, for the server that has these ids."""
    for kind, rows in (
        ("broker", _of_brokers(topic_ids)),
        ("controller", _of_controllers(topic_ids, cluster_id)),
    ):
        for name, key, version, fields in rows:
            yield Case(f"{name} v{version}", kind, version, built(request_class(key), fields))


def built(kind: type[Any], fields: Mapping[str, Any]) -> Any:
    """Returns a message, or a part of one, with these fields; nested parts are mappings."""
    types = {field.name: _part(field.type) for field in msgspec.structs.fields(kind)}
    return kind(**{name: _value(types[name], value) for name, value in fields.items()})


def _value(part: type[Any] | None, value: Any) -> Any:
    if part is None or value is None:
        return value
    return [built(part, one) for one in value] if isinstance(value, list) else built(part, value)


def _part(annotation: Any) -> type[Any] | None:
    """Returns the class of the parts that a field of this type has."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    return next((part for part in map(_part, get_args(annotation)) if part is not None), None)


Rows = Iterator[tuple[str, int, int, dict[str, Any]]]


def _of_brokers(ids: Mapping[str, bytes]) -> Rows:
    yield from _data(ids)
    yield from _metadata(ids)
    yield from _groups(ids)
    yield from _transactions()
    yield from _topics(ids)
    yield from _configs()
    yield from _cluster()
    yield from _acls()
    yield from _users()
    owner = {"owner_principal_type": "User", "owner_principal_name": "nobody"}
    yield "CreateDelegationToken for another", 38, 3, owner
    yield "DescribeDelegationToken", 41, 3, {"owners": None}


def _batch() -> bytes:
    return bytes(build_batch([Record(b"k", b"v", (), 1_700_000_000_000)]))


def _data(ids: Mapping[str, bytes]) -> Rows:
    def produced(transactional_id: str | None, *topics: str, version: int) -> dict[str, Any]:
        named = "name" if version < 13 else "topic_id"
        return {
            "acks": 1,
            "timeout_ms": 1000,
            "transactional_id": transactional_id,
            "topic_data": [
                {
                    named: topic if version < 13 else ids.get(topic, b"n" * 16),
                    "partition_data": [{"index": 0, "records": _batch()}],
                }
                for topic in topics
            ],
        }

    for version in (3, 9, 12, 13):
        yield "Produce one", 0, version, produced(None, "t-a", version=version)
        yield "Produce several", 0, version, produced(None, *TOPICS, ABSENT, version=version)
    yield "Produce with an id", 0, 9, produced("x-a", "t-a", version=9)
    transactional = produced("x-a", "t-a", version=9)
    batch = build_batch(
        [Record(b"k", b"v", (), 1_700_000_000_000)],
        producer_id=987_654,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    transactional["topic_data"][0]["partition_data"][0]["records"] = bytes(batch)
    yield "Produce in a transaction", 0, 9, transactional

    yield from _fetches(ids)
    yield from _lookups()


def _fetches(ids: Mapping[str, bytes]) -> Rows:
    def fetched(version: int, *topics: str, replica: int = -1) -> dict[str, Any]:
        return {
            **({"replica_id": replica} if version < 15 else {"replica_state": {"replica_id": replica}}),
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": [
                {
                    **({"topic": topic} if version < 13 else {"topic_id": ids.get(topic, b"n" * 16)}),
                    "partitions": [
                        {
                            "partition": 0,
                            "fetch_offset": 0,
                            "partition_max_bytes": 1000,
                            "log_start_offset": -1,
                        }
                    ],
                }
                for topic in topics
            ],
        }

    for version in (4, 12, 13, 17):
        yield "Fetch one", 1, version, fetched(version, "t-a")
        yield "Fetch several", 1, version, fetched(version, *TOPICS, ABSENT)
    yield "Fetch as a replica", 1, 12, fetched(12, "t-a", ABSENT, replica=7)
    yield "Fetch as a replica", 1, 17, fetched(17, "t-a", replica=7)


def _lookups() -> Rows:
    for version in (1, 7):
        topics = [
            {"name": t, "partitions": [{"partition_index": 0, "timestamp": -1}]} for t in (*TOPICS, ABSENT)
        ]
        yield "ListOffsets", 2, version, {"replica_id": -1, "topics": topics}
    for replica in (-1, 7):
        topics = [
            {"topic": t, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
            for t in (*TOPICS, ABSENT)
        ]
        yield f"OffsetForLeaderEpoch {replica}", 23, 3, {"replica_id": replica, "topics": topics}
    topics = [{"name": t, "partitions": [{"partition_index": 0, "offset": 0}]} for t in (*TOPICS, ABSENT)]
    yield "DeleteRecords", 21, 1, {"topics": topics, "timeout_ms": 1000}
    yield (
        "DescribeProducers",
        61,
        0,
        {"topics": [{"name": t, "partition_indexes": [0]} for t in (*TOPICS, ABSENT)]},
    )


def _metadata(ids: Mapping[str, bytes]) -> Rows:
    asked = [{"name": topic} for topic in (*TOPICS, ABSENT)]
    bits = {"include_topic_authorized_operations": True}
    for version in (1, 8, 9, 13):
        own = bits if version >= 8 else {}
        cluster = {"include_cluster_authorized_operations": True} if 8 <= version <= 10 else {}
        auto = {"allow_auto_topic_creation": False} if version >= 4 else {}
        if version >= 4:
            yield "Metadata of some", 3, version, {"topics": asked, **own, **cluster, **auto}
        yield "Metadata of all", 3, version, {"topics": None, **own, **cluster, **auto}
        yield "Metadata of none", 3, version, {"topics": [], **own, **cluster, **auto}
    by_id = [{"topic_id": ids[t], "name": None} for t in TOPICS] + [{"topic_id": b"n" * 16, "name": None}]
    yield "Metadata by id", 3, 12, {"topics": by_id, **bits, "allow_auto_topic_creation": False}
    creating = {"topics": [{"name": "bad/name"}, {"name": "t-a"}], "allow_auto_topic_creation": True}
    yield "Metadata that may create", 3, 9, creating
    for topics in ([], [{"name": t} for t in (*sorted(TOPICS), ABSENT)]):
        yield (
            f"DescribeTopicPartitions {len(topics)}",
            75,
            0,
            {"topics": topics, "response_partition_limit": 100},
        )
    for version in (0, 1, 2):
        yield "DescribeCluster", 60, version, {"include_cluster_authorized_operations": True}
        yield "DescribeCluster without bits", 60, version, {"include_cluster_authorized_operations": False}


def _groups(ids: Mapping[str, bytes]) -> Rows:
    for kind, keys in ((0, GROUPS), (1, TRANSACTIONAL_IDS), (2, ("no key of a share",))):
        if kind < 2:
            yield f"FindCoordinator {kind}", 10, 3, {"key": keys[0], "key_type": kind}
        yield f"FindCoordinator {kind}", 10, 6, {"coordinator_keys": [*keys], "key_type": kind}
    for version in (3, 6):
        described = {"groups": [*GROUPS, "g-none"], "include_authorized_operations": True}
        yield "DescribeGroups", 15, version, described
    for version in (0, 5):
        yield "ListGroups", 16, version, {}
    for group in ("g-a", ""):
        joined = {
            "group_id": group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": "nobody",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        yield f"JoinGroup {group!r}", 11, 5, joined
        yield f"SyncGroup {group!r}", 14, 3, {"group_id": group, "generation_id": 1, "member_id": "nobody"}
        yield f"Heartbeat {group!r}", 12, 3, {"group_id": group, "generation_id": 1, "member_id": "nobody"}
        yield f"LeaveGroup {group!r}", 13, 2, {"group_id": group, "member_id": "nobody"}
        yield f"LeaveGroup {group!r}", 13, 4, {"group_id": group, "members": [{"member_id": "nobody"}]}
        heartbeat = {"group_id": group, "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": -1}
        yield f"ConsumerGroupHeartbeat {group!r}", 68, 1, heartbeat
    unknown = {
        "group_id": "g-a",
        "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["o-a"],
        "topic_partitions": [],
        "instance_id": "",
    }
    yield "ConsumerGroupHeartbeat with topics", 68, 1, unknown
    described = {"group_ids": [*GROUPS, "g-none"], "include_authorized_operations": True}
    yield "ConsumerGroupDescribe", 69, 1, described
    for version in (5, 8, 9, 10):
        topics = [
            {
                **({"name": t} if version < 10 else {"topic_id": ids.get(t, b"n" * 16)}),
                "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
            }
            for t in (*TOPICS, ABSENT)
        ]
        yield (
            "OffsetCommit",
            8,
            version,
            {"group_id": "g-a", "generation_id_or_member_epoch": -1, "topics": topics},
        )
    named = [{"name": t, "partition_indexes": [0]} for t in (*TOPICS, ABSENT)]
    for version in (1, 5, 7):
        yield "OffsetFetch", 9, version, {"group_id": "g-a", "topics": named}
        if version > 1:
            yield "OffsetFetch of all", 9, version, {"group_id": "g-a", "topics": None}
    for version in (8, 9):
        asked = [{"group_id": "g-a", "topics": named}, {"group_id": "g-b", "topics": None}]
        yield "OffsetFetch of groups", 9, version, {"groups": asked}
    by_id = [{"topic_id": ids.get(t, b"n" * 16), "partition_indexes": [0]} for t in (*TOPICS, ABSENT)]
    asked = [{"group_id": "g-a", "topics": by_id}, {"group_id": "g-a", "topics": None}]
    yield "OffsetFetch of groups by id", 9, 10, {"groups": asked}
    deleted = [{"name": t, "partitions": [{"partition_index": 5}]} for t in (*TOPICS, ABSENT)]
    yield "OffsetDelete", 47, 0, {"group_id": "g-a", "topics": deleted}
    yield "DeleteGroups", 42, 2, {"groups_names": ["g-none", "h-none"]}


def _transactions() -> Rows:
    yield "InitProducerId", 22, 4, {"transactional_id": None, "transaction_timeout_ms": 1000}
    yield "InitProducerId with an id", 22, 4, {"transactional_id": "y-a", "transaction_timeout_ms": 1000}
    topics = [{"name": t, "partitions": [0]} for t in (*TOPICS, ABSENT)]
    for transactional_id in TRANSACTIONAL_IDS:
        ids = {"producer_id": 987_654, "producer_epoch": 0}
        old = {
            "v3_and_below_transactional_id": transactional_id,
            "v3_and_below_producer_id": 987_654,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": topics,
        }
        yield f"AddPartitionsToTxn {transactional_id}", 24, 3, old
        new = {"transactional_id": transactional_id, "verify_only": False, "topics": topics, **ids}
        yield f"AddPartitionsToTxn {transactional_id}", 24, 5, {"transactions": [new]}
        whole = {"transactional_id": transactional_id, **ids}
        yield f"AddOffsetsToTxn {transactional_id}", 25, 3, {**whole, "group_id": "g-a"}
        for version in (3, 4):
            yield f"EndTxn {transactional_id}", 26, version, {**whole, "committed": True}
        committed = [
            {
                "name": t,
                "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
            }
            for t in (*TOPICS, ABSENT)
        ]
        yield f"TxnOffsetCommit {transactional_id}", 28, 3, {**whole, "group_id": "g-a", "topics": committed}
    yield "DescribeTransactions", 65, 0, {"transactional_ids": [*TRANSACTIONAL_IDS, "x-none"]}
    for version in (0, 2):
        yield "ListTransactions", 66, version, {}
    marker = {
        "producer_id": 987_654,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": ABSENT, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    yield "WriteTxnMarkers", 27, 1, {"markers": [marker]}


def _topics(ids: Mapping[str, bytes]) -> Rows:
    created = [
        {"name": t, "num_partitions": 1, "replication_factor": 1} for t in ("t-new", "o-new", "t-a", "b/d")
    ]
    for version in (4, 7):
        yield "CreateTopics", 19, version, {"topics": created, "validate_only": True, "timeout_ms": 5000}
    for version in (3, 5):
        yield "DeleteTopics", 20, version, {"topic_names": [ABSENT, "o-none", "__x"], "timeout_ms": 5000}
    states = [{"name": ABSENT}, {"name": "o-none"}, {"name": None, "topic_id": b"n" * 16}]
    yield "DeleteTopics by state", 20, 6, {"topics": states, "timeout_ms": 5000}
    grown = [{"name": t, "count": 4, "assignments": None} for t in ("t-a", "o-a", ABSENT)]
    yield "CreatePartitions", 37, 3, {"topics": grown, "timeout_ms": 5000, "validate_only": True}


def _configs() -> Rows:
    resources = [(2, "t-a"), (2, "o-a"), (2, ABSENT), (4, "1"), (4, ""), (32, "g-a")]
    described = [{"resource_type": k, "resource_name": n, "configuration_keys": ["a"]} for k, n in resources]
    yield "DescribeConfigs", 32, 4, {"resources": described}
    entries = [{"name": "retention.ms", "value": "5"}]
    changed = [
        {"resource_type": k, "resource_name": n, "configs": entries} for k, n in ((2, "t-a"), (2, "o-a"))
    ]
    yield "AlterConfigs", 33, 2, {"resources": changed, "validate_only": True}
    steps = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    broker = [{"name": "log.cleaner.threads", "config_operation": 0, "value": "1"}]
    group = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "45000"}]
    changed = [
        {"resource_type": 2, "resource_name": "t-a", "configs": steps},
        {"resource_type": 2, "resource_name": "o-a", "configs": steps},
        {"resource_type": 4, "resource_name": "1", "configs": broker},
        {"resource_type": 32, "resource_name": "g-a", "configs": group},
    ]
    yield "IncrementalAlterConfigs", 44, 1, {"resources": changed, "validate_only": True}
    for version in (0, 1):
        yield "ListConfigResources", 74, version, {}


def _cluster() -> Rows:
    yield (
        "AlterReplicaLogDirs",
        34,
        2,
        {"dirs": [{"path": "/no", "topics": [{"name": "t-a", "partitions": [9]}]}]},
    )
    yield "DescribeLogDirs", 35, 4, {"topics": [{"topic": "t-a", "partitions": [0]}]}
    yield (
        "ElectLeaders",
        43,
        2,
        {"topic_partitions": [{"topic": "t-a", "partitions": [0]}], "timeout_ms": 5000},
    )
    moved = [{"name": ABSENT, "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    yield "AlterPartitionReassignments", 45, 0, {"topics": moved, "timeout_ms": 5000}
    asked = [{"name": "t-a", "partition_indexes": [0]}]
    yield "ListPartitionReassignments", 46, 0, {"topics": asked, "timeout_ms": 5000}
    feature = {"feature": "no.feature", "max_version_level": 1, "upgrade_type": 1}
    for version in (1, 2):
        yield (
            "UpdateFeatures",
            57,
            version,
            {"feature_updates": [feature], "validate_only": True, "timeout_ms": 5000},
        )
    yield "UnregisterBroker", 64, 0, {"broker_id": 99}
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield "DescribeQuorum", 55, 0, {"topics": quorum}


def _acls() -> Rows:
    yield "DescribeAcls", 29, 3, _filter("no-name")
    bad = {
        "resource_type": 4,
        "resource_name": "no-cluster",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 2,
        "permission_type": 3,
    }
    for version in (1, 3):
        yield "CreateAcls", 30, version, {"creations": [bad]}
        yield "DeleteAcls", 31, version, {"filters": [_filter("no-name")]}


def _filter(name: str) -> dict[str, Any]:
    return {
        "resource_type_filter": 2,
        "resource_name_filter": name,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _users() -> Rows:
    yield "DescribeClientQuotas", 48, 1, {}
    nobody = {"entity_type": "user", "entity_name": "nobody"}
    limit = {"key": "producer_byte_rate", "value": 1e9}
    changed = [{"entity": [nobody], "ops": [limit]}]
    yield "AlterClientQuotas", 49, 1, {"entries": changed, "validate_only": True}
    yield "DescribeUserScramCredentials", 50, 0, {"users": [{"name": "nobody"}]}
    yield "AlterUserScramCredentials", 51, 0, {"deletions": [{"name": "nobody", "mechanism": 1}]}


def _of_controllers(ids: Mapping[str, bytes], cluster_id: str) -> Rows:
    yield from _topics(ids)
    yield from ((name, key, version, fields) for name, key, version, fields in _configs() if key in (33, 44))
    yield from (row for row in _cluster() if row[1] in (43, 45, 55, 57, 64))
    yield from _acls()
    yield from (row for row in _users() if row[1] in (49, 51))
    partition = {"partition_index": 0, "leader_epoch": 0, "new_isr_with_epochs": [{"broker_id": 99}]}
    yield (
        "AlterPartition",
        56,
        3,
        {
            "broker_id": 1,
            "broker_epoch": 987_654,
            "topics": [{"topic_id": ids["t-a"], "partitions": [partition]}],
        },
    )
    yield "BrokerRegistration", 62, 0, {"broker_id": 99, "cluster_id": "no-cluster", "incarnation_id": NO_ID}
    yield "BrokerHeartbeat", 63, 0, {"broker_id": 1, "broker_epoch": 987_654}
    yield "AllocateProducerIds", 67, 0, {"broker_id": 1, "broker_epoch": 987_654}
    yield "AssignReplicasToDirs", 73, 0, {"broker_id": 1, "broker_epoch": 987_654, "directories": []}
    yield (
        "Envelope",
        58,
        0,
        {"request_data": b"", "request_principal": b"", "client_host_address": b"\x7f\0\0\1"},
    )
    yield from _of_the_quorum()


def _of_the_quorum() -> Rows:
    of_metadata = {"topic_name": "__cluster_metadata"}
    voted = {
        "partition_index": 0,
        "replica_epoch": 0,
        "replica_id": 99,
        "last_offset_epoch": 0,
        "last_offset": 0,
    }
    yield "Vote", 52, 0, {"cluster_id": "no-cluster", "topics": [{**of_metadata, "partitions": [voted]}]}
    begun = {"partition_index": 0, "leader_id": 99, "leader_epoch": 0}
    yield (
        "BeginQuorumEpoch",
        53,
        0,
        {"cluster_id": "no-cluster", "topics": [{**of_metadata, "partitions": [begun]}]},
    )
    yield (
        "EndQuorumEpoch",
        54,
        0,
        {"cluster_id": "no-cluster", "topics": [{**of_metadata, "partitions": [begun]}]},
    )
    snapshot = {
        "partition": 0,
        "current_leader_epoch": 0,
        "snapshot_id": {"end_offset": 1, "epoch": 0},
        "position": 0,
    }
    yield (
        "FetchSnapshot",
        59,
        0,
        {"cluster_id": "no-cluster", "topics": [{"name": "__cluster_metadata", "partitions": [snapshot]}]},
    )
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    yield (
        "Fetch of the quorum",
        1,
        13,
        {
            "cluster_id": "no-cluster",
            "replica_id": 99,
            "topics": [{"topic_id": b"\0" * 15 + b"\1", "partitions": [fetched]}],
        },
    )
    yield "AddRaftVoter", 80, 0, {"cluster_id": "no-cluster", "voter_id": 99, "timeout_ms": 1000}
    yield "UpdateRaftVoter", 82, 0, {"cluster_id": "no-cluster", "voter_id": 99}
    yield "RemoveRaftVoter", 81, 0, {"cluster_id": "no-cluster", "voter_id": 99}
    yield "ControllerRegistration", 70, 0, {"controller_id": 99, "incarnation_id": NO_ID}
    yield "DescribeCluster", 60, 1, {"include_cluster_authorized_operations": True, "endpoint_type": 2}
