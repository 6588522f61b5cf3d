"""Changes become writes: under versions, in the order of ADR 0047, in requests that fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, PartitionImage, TopicImage
from blumfeld.spi.zookeeper import BadVersionError, Check, Create, Delete, Set, request_bytes
from blumfeld.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from blumfeld.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_topics import TopicNode, decode_topic, encode_topic
from blumfeld_consensus_zk_compat.tree.loading import loaded, subtree
from blumfeld_consensus_zk_compat.tree.versions import TreeVersions
from blumfeld_consensus_zk_compat.tree.writing import Multi, TreeWriter
from blumfeld_consensus_zk_compat.zookeeper.acls import Acls
from tests.everyday import examples
from tests.plugins.consensus_zk_compat.tree.kafka_nodes import tree
from tests.plugins.consensus_zk_compat.tree.tree_cluster import Crashed, TreeCluster, in_tree
from tests.plugins.consensus_zk_compat.tree.tree_session import TreeSession, at_once, session_of

SMALL_BYTES = 1_000
"""A limit on requests that few partitions reach."""
NEW_PARTITION = PartitionImage(
    partition=0, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0, partition_epoch=0
)
TOPIC = TopicImage(name="t", topic_id=b"t" * 16, partitions={0: NEW_PARTITION})


def writer(request_bytes_max: int = 0xFFFFF, **versions: Any) -> TreeWriter:
    nodes = dict.fromkeys([above for path in paths.PERSISTENT for above in (*paths.above(path), path)], 0)
    given = {"controller_epoch": 7, "nodes": nodes, **versions}
    return TreeWriter(TreeVersions(**given), 3, request_bytes_max)


def create(name: str, assignment: list[list[int]], **configs: str) -> CreateTopicsRequest:
    from blumfeld.wire.messages.create_topics import CreatableReplicaAssignment

    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=at, broker_ids=replicas)
                    for at, replicas in enumerate(assignment)
                ],
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=configs[key]) for key in configs
                ],
            )
        ]
    )


def reassign(topic: str, **wanted: list[int] | None) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[ReassignablePartition(int(at[1:]), replicas) for at, replicas in wanted.items()],
            )
        ]
    )


def alter(kind: int, name: str, **values: str) -> IncrementalAlterConfigsRequest:
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    return IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)]
    )


def said(multis: list[Multi]) -> list[list[tuple[str, str]]]:
    """Kind and path of each operation."""
    return [[(type(at).__name__, at.path) for at in multi] for multi in multis]


def test_a_topic_is_created_as_kafka_does() -> None:
    """Configuration, topic, states; no notification. All behind the check, with Kafka's bytes."""
    partition = PartitionStep("t", b"t" * 16, None, NEW_PARTITION)
    image = MetadataImage()
    (multi,) = writer().multis(Change(topics_created=(TOPIC,), partitions=(partition,)), image)
    assert multi == (
        Check(paths.CONTROLLER_EPOCH, 7),
        Create("/config/topics/t", b'{"version":1,"config":{}}'),
        Create(
            "/brokers/topics/t",
            b'{"partitions":{"0":[1,2]},"topic_id":"dHR0dHR0dHR0dHR0dHR0dA","adding_replicas":{},'
            b'"removing_replicas":{},"version":3}',
        ),
        Create("/brokers/topics/t/partitions"),
        Create("/brokers/topics/t/partitions/0"),
        Create(
            "/brokers/topics/t/partitions/0/state",
            b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
        ),
    )


def test_a_change_that_a_tree_doesnt_show_writes_nothing() -> None:
    assert writer().multis(Change(brokers=(1,)), MetadataImage()) == []


def test_a_partition_is_written_once_for_each_step_of_its_epoch() -> None:
    """Its epoch is the version of its node."""
    after = PartitionImage(
        partition=0, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1, partition_epoch=3
    )
    step = PartitionStep("t", b"t" * 16, NEW_PARTITION, after)
    image = MetadataImage()
    image.topics["t"] = TOPIC
    (multi,) = writer(topics={"t": 0}).multis(Change(partitions=(step,)), image)
    assert [(at.path, at.version) for at in multi if isinstance(at, Set)] == [
        (paths.state("t", 0), version) for version in (0, 1, 2)
    ]


def test_a_partition_with_a_first_state_of_a_later_epoch_gets_its_versions_too() -> None:
    before = PartitionImage(
        partition=0, replicas=(1,), isr=(1,), leader=-1, leader_epoch=-1, partition_epoch=-1
    )
    after = PartitionImage(partition=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=1)
    at = writer(topics={"t": 0}, without_partitions={"t"}, without_state={("t", 9)})
    change = Change(partitions=(PartitionStep("t", b"t" * 16, before, after),))
    (multi,) = at.multis(change, MetadataImage())
    assert said([multi])[0][1:] == [
        ("Create", paths.partitions("t")),
        ("Create", paths.partition("t", 0)),
        ("Create", paths.state("t", 0)),
        ("Set", paths.state("t", 0)),
    ]


def test_a_reassignment_writes_the_topic_and_its_states_together() -> None:
    cluster = TreeCluster(1, 2, 3)
    cluster.do(create("t", [[1, 2], [1, 2], [1, 2]]))
    before = len(cluster.session.multis)
    cluster.do(reassign("t", p0=[3, 1], p1=[2, 3]))
    (multi,) = cluster.session.multis[before:]
    assert said([multi])[0] == [
        ("Check", paths.CONTROLLER_EPOCH),
        ("Set", paths.topic("t")),
        ("Set", paths.state("t", 0)),
        ("Set", paths.state("t", 1)),
    ]
    node = decode_topic("", cluster.session.tree.get(paths.topic("t")).data)
    assert (dict(node.adding), dict(node.removing)) == ({0: (3,), 1: (3,)}, {0: (2,), 1: (1,)})


def test_a_reassignment_that_is_too_large_goes_partition_by_partition() -> None:
    """Each request has the topic's node as it is with its own partitions, and their states."""
    cluster = TreeCluster(1, 2, 3, request_bytes_max=SMALL_BYTES)
    cluster.do(create("t", [[1, 2]] * 8))
    before = len(cluster.session.multis)
    cluster.do(reassign("t", **{f"p{at}": [3] for at in range(8)}))
    multis = cluster.session.multis[before:]
    assert len(multis) > 2
    moved: set[int] = set()
    for multi in multis:
        check, *operations = multi
        assert isinstance(check, Check)
        while operations:
            topic = operations.pop(0)
            assert isinstance(topic, Set)
            adding = set(decode_topic("", topic.data).adding)
            states = set()
            while operations and operations[0].path.endswith("/state"):
                states.add(int(operations.pop(0).path.split("/")[-2]))
            assert adding == moved | states
            assert states
            moved = adding
    assert moved == set(range(8))


def test_more_partitions_write_the_topic_before_their_states() -> None:
    cluster = TreeCluster(1, 2)
    cluster.do(create("t", [[1]]))
    before = len(cluster.session.multis)
    cluster.do(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)]))
    (multi,) = cluster.session.multis[before:]
    assert said([multi])[0][1:] == [
        ("Set", paths.topic("t")),
        ("Create", paths.partition("t", 1)),
        ("Create", paths.state("t", 1)),
        ("Create", paths.partition("t", 2)),
        ("Create", paths.state("t", 2)),
    ]


def test_a_deletion_is_a_mark_and_in_the_end_nothing() -> None:
    """The mark is the last to go."""
    cluster = TreeCluster(1, request_bytes_max=SMALL_BYTES)
    cluster.do(create("t", [[1]] * 20))
    cluster.do(create("other", [[1]]))
    nodes = cluster.session.tree.paths()
    cluster.do(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    assert set(cluster.session.tree.paths()) - set(nodes) == {paths.deletion("t")}
    before = len(cluster.session.multis)
    cluster.remove("t")
    removal = cluster.session.multis[before:]
    assert len(removal) > 2
    assert removal[-1][-1] == Delete(paths.deletion("t"))
    assert removal[-1][-2] == Delete("/config/topics/t")
    assert not [path for path in cluster.session.tree.paths() if "/t/" in path or path.endswith("/t")]
    cluster.do(create("t", [[1]]))
    assert "t" in cluster.load().image.topics


def test_a_topic_that_is_marked_already_is_not_marked_again() -> None:
    at = writer()
    at.versions.nodes[paths.deletion("t")] = 0
    assert at.multis(Change(topics_deleted=(TOPIC,)), MetadataImage()) == []


def test_a_configuration_and_its_notification_are_one() -> None:
    cluster = TreeCluster(1)
    cluster.do(create("t", [[1]], retention_ms="1000"))
    before = len(cluster.session.multis)
    cluster.do(alter(TOPIC_RESOURCE, "t", retention_ms="5", max_message_bytes="9"))
    (multi,) = cluster.session.multis[before:]
    assert multi == (
        multi[0],
        Set("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5","max.message.bytes":"9"}}', 0),
        Create("/config/changes/config_change_", b'{"version":2,"entity_path":"topics/t"}', sequential=True),
    )
    cluster.do(alter(BROKER_RESOURCE, "", log_retention_ms="7"))
    assert cluster.session.tree.get("/config/brokers/<default>").data == (
        b'{"version":1,"config":{"log.retention.ms":"7"}}'
    )


def test_a_configuration_that_somebody_else_wrote_is_written_over_under_its_new_version() -> None:
    cluster = TreeCluster(1)
    cluster.do(create("t", [[1]]))
    cluster.session.change(Set("/config/topics/t", b'{"version":1,"config":{}}'))
    cluster.writer.seen("/config/topics/t", 1)
    cluster.do(alter(TOPIC_RESOURCE, "t", retention_ms="5"))
    assert b'"5"' in cluster.session.tree.get("/config/topics/t").data
    cluster.session.change(Delete("/config/topics/t"))
    cluster.writer.seen("/config/topics/t", None)
    cluster.do(alter(TOPIC_RESOURCE, "t", retention_ms="6"))
    assert b'"6"' in cluster.session.tree.get("/config/topics/t").data


def test_what_a_tree_cant_keep_is_refused() -> None:
    with pytest.raises(ValueError, match="resource type 32"):
        writer().multis(Change(configs=((GROUP_RESOURCE, "g"),)), MetadataImage())


def test_producer_ids_and_features_are_written_under_their_versions() -> None:
    cluster = TreeCluster(1)
    epoch = cluster.image.brokers[1].epoch
    for _ in range(2):
        cluster.do(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    block = cluster.session.tree.get(paths.PRODUCER_IDS)
    assert block.data == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert block.stat.version == 2
    cluster.place([FeatureLevelRecord(name="group.version", feature_level=1)])
    cluster.place([FeatureLevelRecord(name="metadata.version", feature_level=30)])
    assert json.loads(cluster.session.tree.get(paths.FEATURE).data)["features"] == {
        "group.version": {"max_version_level": 1}
    }


def acl(number: int, name: str = "t", pattern_type: int = 3, **more: Any) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=number.to_bytes(16),
        resource_type=2,
        resource_name=name,
        pattern_type=pattern_type,
        principal=f"User:{number}",
        host="*",
        operation=3,
        permission_type=3,
        **more,
    )


def test_acls_go_into_the_node_of_their_resource_with_a_notification() -> None:
    """The nodes above are made where they are missing. The node goes with its last ACL."""
    cluster = TreeCluster(1)
    cluster.place([acl(1), acl(2), acl(3, "p", 4)])
    get = cluster.session.tree.get
    assert len(json.loads(get("/kafka-acl/Topic/t").data)["acls"]) == 2
    assert len(json.loads(get("/kafka-acl-extended/prefixed/Topic/p").data)["acls"]) == 1
    assert get("/kafka-acl-changes/acl_changes_0000000000").data == b"TOPIC:t"
    assert b"PREFIXED" in get("/kafka-acl-extended-changes/acl_changes_0000000000").data
    cluster.place([RemoveAccessControlEntryRecord(id=(1).to_bytes(16))])
    assert [at["principal"] for at in json.loads(get("/kafka-acl/Topic/t").data)["acls"]] == ["User:2"]
    cluster.place([RemoveAccessControlEntryRecord(id=(2).to_bytes(16))])
    assert cluster.session.tree.exists("/kafka-acl/Topic/t") is None
    assert len(cluster.session.tree.children(paths.ACL_CHANGES)) == 3
    cluster.place([RemoveAccessControlEntryRecord(id=(2).to_bytes(16))])
    assert len(cluster.session.tree.children(paths.ACL_CHANGES)) == 3


def quota(key: str, value: float, *, remove: bool = False, **parts: str | None) -> ClientQuotaRecord:
    entity = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in parts.items()
    ]
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


def credential(mechanism: int, name: str = "u") -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
    )


def test_quotas_and_credentials_of_a_user_share_its_node() -> None:
    """With the values that are neither, and each change tells all brokers."""
    cluster = TreeCluster(1)
    cluster.session.put("/config/users/u", b'{"version":1,"config":{"else":"1"}}')
    cluster.fail_over()
    cluster.place([quota("producer_byte_rate", 5.0, user="u"), credential(1), credential(2)])
    values = json.loads(cluster.session.tree.get("/config/users/u").data)["config"]
    assert sorted(values) == ["SCRAM-SHA-256", "SCRAM-SHA-512", "else", "producer_byte_rate"]
    cluster.place([RemoveUserScramCredentialRecord(name="u", mechanism=1)])
    cluster.place([quota("producer_byte_rate", 0.0, remove=True, user="u")])
    values = json.loads(cluster.session.tree.get("/config/users/u").data)["config"]
    assert sorted(values) == ["SCRAM-SHA-512", "else"]
    changes = cluster.session.tree.children(paths.CONFIG_CHANGES)
    assert [
        json.loads(cluster.session.tree.get(f"{paths.CONFIG_CHANGES}/{name}").data)["entity_path"]
        for name in changes
    ] == ["users/u"] * 3


def test_a_delegation_token_is_written_and_removed_with_notifications() -> None:
    cluster = TreeCluster(1)
    token = DelegationTokenRecord(owner="User:a", requester="User:b", renewers=["User:c"], token_id="id")
    cluster.place([token])
    assert cluster.load().image.kept == cluster.image.kept
    cluster.place([RemoveDelegationTokenRecord(token_id="id")])
    assert cluster.session.tree.exists(paths.token("id")) is None
    assert len(cluster.session.tree.children(paths.TOKEN_CHANGES)) == 2


def test_topics_of_an_old_kafka_get_ids_from_the_controller() -> None:
    session = TreeSession()
    session.put(paths.CONTROLLER_EPOCH, b"1")
    session.put(paths.topic("old"), encode_topic(TopicNode({0: (1,)}, None, {0: (2,)}, {})))
    read = at_once(loaded(session_of(session)))
    at = TreeWriter(read.versions, 1, 0xFFFFF)
    for multi in at.topic_ids(read.without_id, {"old": b"i" * 16}):
        session.multi(multi).result()
    again = at_once(loaded(session_of(session)))
    assert again.image.topics["old"].topic_id == b"i" * 16
    assert again.image.topics["old"].partitions[0].adding_replicas == (2,)


def test_what_a_tool_asked_for_is_removed_once_it_was_taken_over() -> None:
    cluster = TreeCluster(1)
    cluster.session.put(paths.REASSIGNMENTS, b'{"version":1,"partitions":[]}')
    cluster.fail_over()
    cluster.write(cluster.writer.taken_over(paths.REASSIGNMENTS))
    assert cluster.load().reassignments_asked is None


def test_a_paused_controller_writes_nothing_after_the_next_one_began() -> None:
    cluster = TreeCluster(1, 2)
    cluster.do(create("t", [[1, 2]]))
    paused, image = cluster.writer, cluster.image
    cluster.fail_over()
    nodes = cluster.session.tree.paths()
    after = PartitionImage(
        partition=0, replicas=(1, 2), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1
    )
    steps = (PartitionStep("t", TOPIC.topic_id, image.topics["t"].partitions[0], after),)
    changes = [
        Change(topics_deleted=(TOPIC,)),
        Change(partitions=steps),
        Change(configs=((TOPIC_RESOURCE, "t"),)),
    ]
    multis = [multi for change in changes for multi in paused.multis(change, image)]
    multis += paused.removal("t", at_once(subtree(session_of(cluster.session), paths.topic("t"))))
    multis += paused.taken_over(paths.REASSIGNMENTS)
    assert len(multis) == 5
    for multi in multis:
        with pytest.raises(BadVersionError, match=paths.CONTROLLER_EPOCH):
            cluster.session.multi(multi).result()
    assert cluster.session.tree.paths() == nodes


def test_a_partition_that_somebody_else_wrote_fails_the_write() -> None:
    cluster = TreeCluster(1, 2)
    cluster.do(create("t", [[1, 2]]))
    cluster.session.change(Set(paths.state("t", 0), b"{}"))
    topic_id = cluster.image.topics["t"].topic_id
    with pytest.raises(BadVersionError, match="state"):
        cluster.place([PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2)])


def test_no_request_is_larger_than_the_session_allows() -> None:
    """A large creation goes in several, each with the check. Chroot and access lists count."""
    secure = Acls(secure=True).bytes_max
    at = writer(3_000)
    partitions = {
        n: PartitionImage(partition=n, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
        for n in range(60)
    }
    topic = TopicImage(name="t", topic_id=b"t" * 16, partitions=partitions)
    steps = tuple(PartitionStep("t", b"t" * 16, None, partition) for partition in partitions.values())
    multis = at.multis(Change(topics_created=(topic,), partitions=steps), MetadataImage())
    assert len(multis) > 5
    for multi in multis:
        assert multi[0] == Check(paths.CONTROLLER_EPOCH, 7)
        assert request_bytes(multi, acl_bytes=secure) <= 3_000
    far = TreeWriter(TreeVersions(controller_epoch=7), 3, 3_000, chroot="/" + "c" * 200)
    longer = far.multis(Change(topics_created=(topic,), partitions=steps), MetadataImage())
    assert len(longer) > len(multis)
    for multi in longer:
        assert request_bytes(multi, "/" + "c" * 200, secure) <= 3_000


def test_a_topic_that_no_request_can_hold_is_known_before() -> None:
    assert writer().fits(TOPIC)
    assert not writer(200).fits(TOPIC)


OPERATIONS = (
    *("create", "delete", "remove", "more", "reassign", "cancel", "isr", "config", "go", "come"),
    *("ids", "quota", "scram", "acl", "token", "fail over"),
)


def act(cluster: TreeCluster, chance: Any) -> None:
    """One random command, or nothing where it doesn't make sense."""
    topics = list(cluster.image.topics.values())
    match chance.choice(OPERATIONS):
        case "create":
            name = chance.choice("abcd")
            if name not in cluster.marked:
                factor = chance.randint(1, 3)
                assignment = [chance.sample(range(1, 5), factor) for _ in range(chance.randint(1, 6))]
                configs = {"retention_ms": "7"} if chance.random() < 0.5 else {}
                cluster.do(create(name, assignment, **configs))
        case "delete" if topics:
            cluster.do(DeleteTopicsRequest(topics=[DeleteTopicState(name=chance.choice(topics).name)]))
        case "remove" if cluster.marked:
            cluster.remove(chance.choice(sorted(cluster.marked)))
        case "more" if topics:
            topic = chance.choice(topics)
            wanted = CreatePartitionsTopic(
                name=topic.name, count=len(topic.partitions) + chance.randint(1, 4), assignments=None
            )
            cluster.do(CreatePartitionsRequest(topics=[wanted]))
        case "reassign" if topics:
            topic = chance.choice(topics)
            cluster.do(
                reassign(
                    topic.name,
                    **{
                        f"p{number}": chance.sample(range(1, 5), chance.randint(1, 3))
                        for number in topic.partitions
                        if chance.random() < 0.6
                    },
                )
            )
        case "cancel" if topics:
            topic = chance.choice(topics)
            cluster.do(reassign(topic.name, **{f"p{number}": None for number in topic.partitions}))
        case "isr" if topics:
            alter_isr(cluster, chance.choice(topics), chance)
        case "config":
            if topics and chance.random() < 0.6:
                cluster.do(
                    alter(TOPIC_RESOURCE, chance.choice(topics).name, retention_ms=str(chance.randint(1, 9)))
                )
            else:
                cluster.do(alter(BROKER_RESOURCE, chance.choice(["", "1"]), log_cleaner_threads="2"))
        case "go" if cluster.image.brokers:
            cluster.go(chance.choice(sorted(cluster.image.brokers)))
        case "come":
            cluster.come(chance.randint(1, 4))
        case "ids" if cluster.image.brokers:
            broker = cluster.image.brokers[chance.choice(sorted(cluster.image.brokers))]
            cluster.do(AllocateProducerIdsRequest(broker_id=broker.broker_id, broker_epoch=broker.epoch))
        case "quota":
            parts = chance.choice(
                [
                    {"user": "u"},
                    {"user": None},
                    {"user": "u", "client_id": "c/*"},
                    {"ip": "::1"},
                    {"client_id": None},
                ]
            )
            key = "connection_creation_rate" if "ip" in parts else "producer_byte_rate"
            cluster.place([quota(key, float(chance.randint(1, 99)), remove=chance.random() < 0.3, **parts)])
        case "scram":
            name, mechanism = chance.choice(["u", "ö b"]), chance.randint(1, 2)
            removal = RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
            cluster.place([removal if chance.random() < 0.3 else credential(mechanism, name)])
        case "acl":
            acls = [at for at in cluster.image.kept.values() if isinstance(at, AccessControlEntryRecord)]
            if acls and chance.random() < 0.5:
                cluster.place([RemoveAccessControlEntryRecord(id=chance.choice(acls).id)])
            else:
                cluster.place([acl(chance.randint(1, 9**9), chance.choice("xy"), chance.randint(3, 4))])
        case "token":
            token_id = chance.choice("pq")
            record: Message = RemoveDelegationTokenRecord(token_id=token_id)
            if chance.random() < 0.7:
                record = DelegationTokenRecord(
                    owner="User:a", requester="User:a", token_id=token_id, max_timestamp=chance.randint(1, 9)
                )
            cluster.place([record])
        case "fail over":
            before = in_tree(cluster.image)
            cluster.fail_over()
            assert in_tree(cluster.image) == before


def alter_isr(cluster: TreeCluster, topic: TopicImage, chance: Any) -> None:
    """Several partitions of a topic get another ISR, or in some cases another leader, in one step."""
    records: list[Message] = []
    for number, at in topic.partitions.items():
        isr = [
            replica for replica in at.replicas if replica in cluster.image.brokers and chance.random() < 0.8
        ]
        if isr and chance.random() < 0.7:
            leader = chance.choice(isr) if chance.random() < 0.5 or at.leader not in isr else -2
            recovery = chance.choice([-1, 0, 1])
            records.append(
                PartitionChangeRecord(
                    partition_id=number,
                    topic_id=topic.topic_id,
                    isr=isr,
                    leader=leader,
                    leader_recovery_state=recovery,
                )
            )
    cluster.place(records)


PROPERTY = settings(
    max_examples=examples(60, at_least=12),
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@PROPERTY
@given(st.randoms(use_true_random=False), st.sampled_from([SMALL_BYTES, 5_000, 0xFFFFF]))
def test_the_tree_is_the_image(chance: Any, bytes_max: int) -> None:
    """After any commands: what the next controller loads is what this one has. Each partition's epoch is its node's
    version, and no request was too large."""
    cluster = TreeCluster(1, 2, 3, 4, request_bytes_max=bytes_max)
    for _ in range(25):
        act(cluster, chance)
        assert in_tree(cluster.load().image) == in_tree(cluster.image)
    assert all(request_bytes(multi) <= bytes_max for multi in cluster.session.multis)


@PROPERTY
@given(st.randoms(use_true_random=False))
def test_a_crash_after_any_write_leaves_what_the_next_controller_finishes(chance: Any) -> None:
    """Each partition is as before the command, or as after it, or has no state; a topic is whole, or not there."""
    cluster = TreeCluster(1, 2, 3, 4, request_bytes_max=SMALL_BYTES)
    for _ in range(12):
        before = in_tree(cluster.load().image)["topics"]
        cluster.writes_left = chance.choice([None, None, 0, 1, 1, 2, 3])
        try:
            act(cluster, chance)
        except Crashed:
            after, marked = in_tree(cluster.image)["topics"], set(cluster.marked)
            left = cluster.load()
            check_left(in_tree(left.image)["topics"], before, after)
            assert {topic.name for topic in left.marked} <= marked | {*before}
            cluster.fail_over()
            check_finished(cluster)
        cluster.writes_left = None


def check_left(left: Any, before: Any, after: Any) -> None:
    for name, (topic_id, partitions) in left.items():
        stages = [image[name][1] for image in (before, after) if name in image and image[name][0] == topic_id]
        assert stages, f"{name} is neither from before nor from after"
        for number, partition in partitions.items():
            known = [stage[number] for stage in stages if number in stage]
            if partition.partition_epoch < 0:
                assert partition.replicas in [at.replicas for at in known]
            elif partition not in known:
                # A command in parts has been at this partition several times.
                assert known[0].partition_epoch < partition.partition_epoch < known[-1].partition_epoch
    for name in before:
        assert name in left or name not in after


def check_finished(cluster: TreeCluster) -> None:
    """Nothing that could have a leader is without a state."""
    read = cluster.load()
    assert in_tree(read.image) == in_tree(cluster.image)
    for at in read.without_state:
        replicas = read.image.topics[at.topic].partitions[at.partition].replicas
        assert not set(replicas) & set(read.image.brokers)


def test_kafkas_tree_is_written_as_it_was_read() -> None:
    """The image of Kafka's tree, written into an empty one, loads as the same image."""
    kafka = TreeSession()
    kafka.put_all(tree())
    image = at_once(loaded(session_of(kafka))).image
    empty = TreeSession()
    for path in paths.PERSISTENT:
        empty.put(path)
    empty.put(paths.CONTROLLER_EPOCH, b"1")
    for broker_id in image.brokers:
        node = next(node for node in tree() if node.path == paths.broker(broker_id))
        empty.put(node.path, node.data, czxid=node.czxid)
    at = TreeWriter(at_once(loaded(session_of(empty))).versions, 1, 0xFFFFF)
    delta = image.first_delta()
    change = Change(
        topics_created=delta.topics_created,
        partitions=tuple(
            PartitionStep(topic.name, topic.topic_id, None, partition)
            for topic, partition in delta.partitions_changed
        ),
        configs=delta.configs_changed,
        records=tuple(image.kept.values()),
    )
    for multi in at.multis(change, image):
        empty.multi(multi).result()
    written = in_tree(at_once(loaded(session_of(empty))).image)
    # Topics of one request have one moment of creation.
    assert written == {**in_tree(image), "order": sorted(image.topics)}
    for path in kafka.tree.paths():
        was = kafka.tree.get(path).data
        if (
            path.startswith(("/brokers/topics", "/config/users", "/kafka-acl/"))
            and was
            and "doomed" not in path
        ):
            assert json.loads(empty.tree.get(path).data) == json.loads(was), path
