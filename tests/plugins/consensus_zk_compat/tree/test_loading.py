"""The tree as Kafka 3.9.2 left it becomes the image; what isn't finished is named; reads are pipelined in slices."""

from __future__ import annotations

import pytest

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, PartitionImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import Delete, NoNodeError, Set, WatchEvent, WatchKind
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import (
    BrokerNode,
    ControllerNode,
    TreeError,
    decode_broker,
    encode_broker,
    encode_controller,
)
from blumfeld_consensus_zk_compat.tree.forms_topics import TopicNode, encode_topic
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded, subtree
from tests.plugins.consensus_zk_compat.tree.kafka_nodes import encoded, tree
from tests.plugins.consensus_zk_compat.tree.tree_session import TreeSession, at_once, session_of

ID = b"i" * 16


@pytest.fixture
def kafka() -> TreeSession:
    """Kafka's tree."""
    session = TreeSession()
    session.put_all(tree())
    return session


def load(session: TreeSession) -> Loaded:
    return at_once(loaded(session_of(session)))


def kept(image: MetadataImage, kind: type) -> list[object]:
    return [record for record in image.kept.values() if isinstance(record, kind)]


def test_kafkas_brokers_controller_and_cluster(kafka: TreeSession) -> None:
    read = load(kafka)
    node = next(node for node in tree() if node.path == "/brokers/ids/1")
    assert {n: (b.epoch, b.rack, b.fenced) for n, b in read.image.brokers.items()} == {
        1: (node.czxid, "r1", False),
        2: (next(n.czxid for n in tree() if n.path == "/brokers/ids/2"), "r2", False),
    }
    assert [at.listener for at in read.image.brokers[1].endpoints] == ["PLAINTEXT", "SECOND", "SASL"]
    assert read.image.brokers[1].endpoints == decode_broker(node.path, node.data).endpoints
    assert read.controller is not None
    assert (read.controller.broker_id, read.controller_epoch) == (1, 1)
    assert read.versions.controller_epoch == 1
    assert len(read.image.cluster_id) == 22
    assert read.image.features == {}


def test_kafkas_topics_in_the_order_of_their_creation(kafka: TreeSession) -> None:
    """A partition's epoch is its node's version. The topic that is being deleted isn't among them."""
    read = load(kafka)
    image = read.image
    assert list(image.topics) == ["a.b_c-1", "plain", "orders", "many", "moving"]
    assert [len(topic.partitions) for topic in image.topics.values()] == [2, 1, 3, 12, 2]
    assert image.topics["moving"].partitions[0] == PartitionImage(
        partition=0,
        replicas=(2, 1),
        isr=(1,),
        leader=1,
        leader_epoch=1,
        partition_epoch=1,
        adding_replicas=(2,),
        removing_replicas=(1,),
    )
    assert list(image.topics["many"].partitions) == list(range(12))
    assert read.versions.topics == {
        "a.b_c-1": 1,
        "doomed": 0,
        "many": 0,
        "moving": 1,
        "orders": 0,
        "plain": 0,
    }
    assert not read.without_state
    assert not read.without_id


def test_a_marked_topic_is_told_of_with_its_partitions(kafka: TreeSession) -> None:
    (marked,) = load(kafka).marked
    assert marked.name == "doomed"
    assert marked.partitions[0].replicas == (1, 2)
    assert (marked.partitions[0].leader, marked.partitions[0].partition_epoch) == (-1, 2)


def test_a_mark_without_its_topic_is_told_of_too(kafka: TreeSession) -> None:
    kafka.put(paths.deletion("gone"))
    assert {topic.name: len(topic.partitions) for topic in load(kafka).marked} == {"doomed": 1, "gone": 0}


def test_kafkas_configurations(kafka: TreeSession) -> None:
    image = load(kafka).image
    assert image.configs == {
        (TOPIC_RESOURCE, "orders"): {
            "cleanup.policy": "compact,delete",
            "min.insync.replicas": "2",
            "retention.ms": "70000",
        },
        (TOPIC_RESOURCE, "a.b_c-1"): {"compression.type": "zstd"},
        (BROKER_RESOURCE, "1"): {"log.cleaner.threads": "2"},
        (BROKER_RESOURCE, ""): {"log.retention.ms": "123456789"},
    }


def test_kafkas_quotas_credentials_acls_and_tokens_are_kept(kafka: TreeSession) -> None:
    image = load(kafka).image
    quotas = {
        (tuple((part.entity_type, part.entity_name) for part in record.entity), record.key): record.value
        for record in image.kept.values()
        if isinstance(record, ClientQuotaRecord)
    }
    assert quotas == {
        ((("user", "alice"),), "producer_byte_rate"): 1024.0,
        ((("user", "alice"),), "consumer_byte_rate"): 12345678.0,
        ((("user", "alice"),), "request_percentage"): 12.5,
        ((("user", "alice"),), "controller_mutation_rate"): 12345678.0,
        ((("user", None),), "producer_byte_rate"): 10.0,
        ((("client-id", "app*+ é/1"),), "consumer_byte_rate"): 20.0,
        ((("client-id", None),), "request_percentage"): 0.0001,
        ((("user", "bob"), ("client-id", "app")), "producer_byte_rate"): 30.0,
        ((("user", "bob"), ("client-id", None)), "producer_byte_rate"): 31.0,
        ((("user", None), ("client-id", "app")), "producer_byte_rate"): 32.0,
        ((("user", None), ("client-id", None)), "request_percentage"): 200.0,
        ((("ip", "127.0.0.1"),), "connection_creation_rate"): 10.0,
        ((("ip", None),), "connection_creation_rate"): 100.0,
    }
    credentials = kept(image, UserScramCredentialRecord)
    assert sorted((c.name, c.mechanism, c.iterations) for c in credentials) == [  # type: ignore[attr-defined]
        ("CN=ö,O=a b", 1, 8192),
        ("alice", 1, 4096),
        ("alice", 2, 4096),
    ]
    assert len(kept(image, AccessControlEntryRecord)) == 13
    (token,) = kept(image, DelegationTokenRecord)
    assert isinstance(token, DelegationTokenRecord)
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:alice",
        ["User:bob", "User:carol"],
    )


def test_a_controller_reads_what_it_decides_on_alone(kafka: TreeSession) -> None:
    """Topics, brokers and their configurations are as for any node; of what any node writes it reads nothing."""
    whole = load(kafka)
    kafka.reads.clear()
    part = at_once(loaded(session_of(kafka), for_controller=True))
    assert whole.image.kept
    assert part.image.kept == {}
    kinds = (paths.config(kind) for kind in ("users", "clients", "ips"))
    others = tuple(f"{above}/" for above in (paths.ACLS, paths.PREFIXED_ACLS, paths.TOKENS, *kinds))
    assert [path for path in kafka.reads if path.startswith(others)] == []
    for name in ("topics", "brokers", "configs", "features"):
        assert getattr(part.image, name) == getattr(whole.image, name), name
    assert (part.without_state, part.marked) == (whole.without_state, whole.marked)
    assert {path: whole.versions.nodes[path] for path in part.versions.nodes} == part.versions.nodes


def test_a_block_of_producer_ids_leads_to_the_next(kafka: TreeSession) -> None:
    """Kafka's tree has none yet."""
    assert load(kafka).image.producer_ids is None
    node = next(node for node in encoded() if node.path == paths.PRODUCER_IDS)
    kafka.change(Set(node.path, node.data))
    producer_ids = load(kafka).image.producer_ids
    assert producer_ids is not None
    assert (producer_ids.broker_id, producer_ids.next_producer_id) == (1, 5000)


def test_feature_levels_count_if_they_are_enabled(kafka: TreeSession) -> None:
    levels = []
    for node in encoded():
        if node.path == paths.FEATURE:
            kafka.change(Set(node.path, node.data))
            levels.append(load(kafka).image.features)
    assert levels == [{"group.version": 1}, {}]


def test_what_tools_before_kafka_2_4_ask_for_is_told_of(kafka: TreeSession) -> None:
    read = load(kafka)
    assert (read.reassignments_asked, read.elections_asked) == (None, None)
    for node in encoded():
        if node.path.startswith("/admin/"):
            kafka.put(node.path, node.data)
    read = load(kafka)
    assert read.reassignments_asked == {TopicPartition("t", 0): (2, 1)}
    assert read.elections_asked == (TopicPartition("t", 0), TopicPartition("u", 1))


def test_a_partition_without_a_state_waits_for_its_first_election(kafka: TreeSession) -> None:
    """Its ISR is what lives of its replicas. Which nodes above the state are there is known."""
    kafka.change(Delete(paths.state("orders", 1)))
    kafka.change(
        Delete(paths.state("plain", 0)),
        Delete(paths.partition("plain", 0)),
        Delete(paths.partitions("plain")),
    )
    kafka.change(Delete("/brokers/ids/2"))
    read = load(kafka)
    assert set(read.without_state) == {TopicPartition("plain", 0), TopicPartition("orders", 1)}
    bare = read.image.topics["orders"].partitions[1]
    assert (bare.replicas, bare.isr, bare.leader) == ((2, 1), (1,), -1)
    assert (bare.leader_epoch, bare.partition_epoch) == (-1, -1)
    assert read.versions.without_partitions == {"plain"}
    assert read.versions.without_state == {("orders", 1)}


def test_a_member_of_an_isr_that_came_again_after_it_was_written_is_told_of(kafka: TreeSession) -> None:
    """The state is older than the member's registration: an earlier process of that broker was in sync."""
    assert not load(kafka).restarted
    data = kafka.tree.get("/brokers/ids/2").data
    kafka.change(Delete("/brokers/ids/2"))
    kafka.put("/brokers/ids/2", data)
    restarted = dict(load(kafka).restarted)
    assert restarted[TopicPartition("orders", 1)] == (2,)
    assert all(members == (2,) for members in restarted.values())
    state = paths.state("orders", 1)
    kafka.change(Set(state, kafka.tree.get(state).data))
    assert TopicPartition("orders", 1) not in dict(load(kafka).restarted)


def test_a_topic_of_an_old_kafka_waits_for_its_id(kafka: TreeSession) -> None:
    old = TopicNode({0: (1,)})
    kafka.put(paths.topic("old"), encode_topic(old))
    read = load(kafka)
    assert read.without_id == {"old": old}
    assert "old" not in read.image.topics


def test_a_configuration_that_a_broken_creation_has_left_isnt_in_the_image(kafka: TreeSession) -> None:
    kafka.put("/config/topics/ghost", b'{"version":1,"config":{"retention.ms":"1"}}', version=2)
    read = load(kafka)
    assert (TOPIC_RESOURCE, "ghost") not in read.image.configs
    assert read.versions.nodes["/config/topics/ghost"] == 2


def test_values_that_are_neither_quota_nor_credential_are_kept_for_the_next_write(kafka: TreeSession) -> None:
    kafka.put("/config/users/odd", b'{"version":1,"config":{"else":"1","producer_byte_rate":"2"}}')
    assert load(kafka).versions.others == {"/config/users/odd": {"else": "1"}}


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("/config/users/bob", b'{"version":1,"config":{"producer_byte_rate":"much"}}', "a number"),
        ("/config/users/bob", b'{"version":1,"config":{"SCRAM-SHA-256":"hidden"}}', "SCRAM"),
        ("/config/topics/orders", b"?", "a configuration in version 1"),
        ("/delegation_token/tokens/t", b"?", "a delegation token"),
        ("/kafka-acl/Planet/x", b"?", "one of Topic"),
    ],
)
def test_a_configuration_or_token_that_cant_be_read_is_left_out_and_named(
    kafka: TreeSession, path: str, data: bytes, said: str
) -> None:
    before = load(kafka)
    if kafka.tree.exists(path) is None:
        kafka.put(path, data)
    else:
        kafka.change(Set(path, data))
    read = load(kafka)
    ((named, error),) = read.unreadable.items()
    assert path.startswith(named)
    assert said in error
    assert "hidden" not in error
    assert len(before.image.kept) == len(read.image.kept)
    if said == "a number":
        assert read.versions.others[path] == {"producer_byte_rate": "much"}, "the next write keeps it"


def test_an_empty_chroot_is_an_empty_cluster() -> None:
    read = load(TreeSession())
    assert read.image == MetadataImage()
    assert (read.controller, read.controller_epoch, read.versions.controller_epoch) == (None, 0, -1)
    assert read.marked == ()


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        (paths.CONTROLLER, encode_controller(ControllerNode(3000, 0, 5)), "belongs to KRaft"),
        (
            paths.MIGRATION,
            next(n.data for n in encoded() if n.path == paths.MIGRATION),
            "no migration to KRaft",
        ),
        ("/brokers/ids/x", b"", "a whole number"),
        ("/brokers/ids/9", b"", "version 1 to 5"),
        ("/kafka-acl/Topic/x", b"?", "ACLs in version 1"),
        (paths.state("orders", 0), b"{}", "leader_epoch"),
    ],
)
def test_a_tree_that_cant_be_taken_is_refused_with_its_node(
    kafka: TreeSession, path: str, data: bytes, said: str
) -> None:
    if kafka.tree.exists(path) is None:
        kafka.put(path, data)
    else:
        kafka.change(Set(path, data))
    with pytest.raises(TreeError, match=said) as error:
        load(kafka)
    assert error.value.path == path.removesuffix("/x") or error.value.path == path


def test_a_migration_that_has_not_begun_is_no_hindrance(kafka: TreeSession) -> None:
    kafka.put(paths.MIGRATION, b'{"version":0,"kraft_controller_id":-1,"kraft_controller_epoch":-1}')
    assert load(kafka).controller is not None


def test_a_broker_that_goes_while_the_tree_is_read_is_left_out(kafka: TreeSession) -> None:
    """Its node is listed and gone before it is read: its watch was never set, that of the list tells of it."""
    read_children = kafka.children

    def listed(path: str, watch: object = None) -> object:
        names = read_children(path)
        if path == paths.BROKERS:
            kafka.change(Delete("/brokers/ids/2"))
        return names

    kafka.children = listed  # type: ignore[method-assign, assignment]
    assert list(load(kafka).image.brokers) == [1]


def test_watches_are_left_where_the_caller_wants_them(kafka: TreeSession) -> None:
    events: list[WatchEvent] = []
    wanted = {paths.BROKERS, paths.DELETIONS, paths.REASSIGNMENTS, "/brokers/ids/1", paths.topic("orders")}
    at_once(loaded(session_of(kafka), watch_of=lambda path: events.append if path in wanted else None))
    assert set(kafka.watched) == wanted
    kafka.fire(paths.BROKERS, WatchKind.CHILDREN)
    assert events == [WatchEvent(WatchKind.CHILDREN, paths.BROKERS)]


def large_tree(partitions: int, *, waits: bool = False) -> TreeSession:
    """One broker and topics of ten partitions."""
    session = TreeSession(waits=waits)
    session.put("/brokers/ids/1", encode_broker(BrokerNode(endpoints=())))
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    for number in range(partitions // 10):
        name = f"t{number}"
        topic_id = number.to_bytes(16)
        session.put(paths.topic(name), encode_topic(TopicNode(dict.fromkeys(range(10), (1,)), topic_id)))
        for partition in range(10):
            session.put(paths.state(name, partition), state)
    return session


def test_reads_are_sent_ahead_but_not_all_at_once() -> None:
    session = large_tree(1_000, waits=True)
    for awaited in loaded(session_of(session), in_flight=50):
        while awaited is not None and not awaited.done:
            session.answer()
    assert session.waiting_most == 50


def test_a_load_waits_for_few_answers_one_after_the_other(kafka: TreeSession) -> None:
    """Reads that don't depend on an answer are sent together: a round trip may take milliseconds."""
    session = TreeSession(kafka.tree, waits=True)
    trips = 0
    for awaited in loaded(session_of(session)):
        if awaited is not None and not awaited.done:
            trips += 1
            session.answer(len(session.waiting))
    assert trips <= 12


def test_a_large_tree_is_taken_in_slices() -> None:
    """No step takes more than some hundred partitions, so that others get their turns."""
    session = large_tree(4_000)
    sizes, before = [], 0
    for _ in loaded(session_of(session)):
        sizes.append(len(session.reads) - before)
        before = len(session.reads)
    assert len(sizes) > 4_000 / 200
    assert max(sizes) <= 700


def test_a_subtree_is_listed_from_its_leaves(kafka: TreeSession) -> None:
    found = at_once(subtree(session_of(kafka), paths.topic("orders")))
    assert len(found) == 2 + 3 * 2
    kafka.change(*map(Delete, found))
    with pytest.raises(NoNodeError):
        kafka.tree.get(paths.topic("orders"))
    assert at_once(subtree(session_of(kafka), paths.topic("orders"))) == []
    assert at_once(subtree(session_of(kafka), paths.deletion("doomed"))) == [paths.deletion("doomed")]
