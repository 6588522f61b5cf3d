"""Apache Kafka 3.9.2 takes over a tree that our controller has written, and says of it what our image says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.spi.scheduler import Lane
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from blumfeld.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from blumfeld.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.loading import Loaded, loaded
from blumfeld_consensus_zk_compat.zookeeper import Access, open_session
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from campaigns.raw_connection import RawConnection
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.consensus_zk_compat.tree.test_writing import (
    acl,
    alter,
    create,
    credential,
    quota,
    reassign,
)
from tests.plugins.consensus_zk_compat.tree.tree_cluster import TreeCluster, in_tree
from tests.plugins.consensus_zk_compat.zookeeper.real_servers import zookeeper_address

__all__ = ["zookeeper_address"]
pytestmark = pytest.mark.slow

ANY = 1
"""The number that stands for every value in a filter of ACLs."""
FROM_A_TOPIC, FROM_A_BROKER, FROM_ALL_BROKERS = 1, 2, 3
"""Sources of a configuration key in DescribeConfigs."""
DEADLINE_S = 60.0


def written() -> TreeCluster:
    """A cluster with some of everything. Broker 2 is gone."""
    cluster = TreeCluster(1, 2)
    cluster.do(create("orders", [[1, 2], [1, 2], [2, 1]], retention_ms="1000"))
    cluster.do(create("many", [[1]] * 12))
    cluster.do(create("doomed", [[1, 2]]))
    cluster.do(alter(TOPIC_RESOURCE, "orders", retention_ms="2000", cleanup_policy="compact"))
    cluster.do(alter(BROKER_RESOURCE, "", log_retention_ms="777"))
    cluster.do(alter(BROKER_RESOURCE, "1", log_cleaner_threads="2"))
    more = CreatePartitionsTopic(name="orders", count=4, assignments=None)
    cluster.do(CreatePartitionsRequest(topics=[more]))
    cluster.place([acl(1, "orders"), acl(2, "orders"), acl(3, "ord", 4)])
    cluster.place([quota("producer_byte_rate", 1024.0, user="alice"), credential(1, "alice")])
    cluster.place([quota("request_percentage", 12345678.5, user=None)])
    cluster.place([quota("consumer_byte_rate", 7.0, user="a/b", client_id="c*+ é")])
    cluster.place([quota("connection_creation_rate", 3.0, ip="127.0.0.9")])
    cluster.do(reassign("many", p3=[2, 1]))
    cluster.go(2)
    cluster.do(DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")]))
    return cluster


class Kafka:
    """Kafka on the tree, and a session beside it."""

    def __init__(self, runtime: RealTimeRuntime, session: ZooKeeper, connection: RawConnection) -> None:
        self._runtime = runtime
        self._session = session
        self.ask = connection.ask

    def load(self) -> Loaded:
        """The tree as it is now."""

        async def read() -> Loaded:
            return await self._runtime.scheduler.completed(Lane.METADATA, loaded(self._session))

        return self._runtime.run(read())


@pytest.fixture(scope="module")
def cluster() -> TreeCluster:
    return written()


@pytest.fixture(scope="module")
def kafka(
    cluster: TreeCluster, zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kafka]:
    """A ZooKeeper with the tree, and Kafka as its broker 1 and controller."""
    runtime = RealTimeRuntime()
    chroot = f"/written{time.time_ns()}"
    access = Access(servers=zookeeper_address, chroot=chroot, create_chroot=True, session_timeout_ms=10_000)
    session = open_session(runtime, access)

    async def write() -> None:
        await session.connect(20_000)
        for path in dict.fromkeys(part for at in paths.PERSISTENT for part in (*paths.above(at), at)):
            await session.create(path)
        await session.create(paths.CONTROLLER_EPOCH, b"1")
        for multi in cluster.session.multis:
            # The tree of the test has written its epoch anew with each controller.
            await session.multi(multi[1:])

    runtime.run(write())
    folder: Path = tmp_path_factory.mktemp("kafka")
    settings = (
        f"zookeeper.connect={zookeeper_address}{chroot}",
        "broker.id=1",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS",
        "auto.leader.rebalance.enable=false",
    )
    with kafka_on(peer_script(), folder, *settings, version="3.9.2") as address, RawConnection(address) as at:
        yield Kafka(runtime, session, at)
    runtime.run(session.close())
    runtime.end()


def test_kafka_leads_the_topics_as_they_were_written(cluster: TreeCluster, kafka: Kafka) -> None:
    """With their ids, and none of the one that is being deleted."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        topics = kafka.ask(MetadataRequest(topics=None), 12, MetadataResponse).topics
        led = all(at.leader_id == 1 for topic in topics for at in topic.partitions)
        if (topics and led) or time.monotonic() > deadline_s:
            break
        time.sleep(0.2)
    assert {
        topic.name: (topic.topic_id, {at.partition_index: at.replica_nodes for at in topic.partitions})
        for topic in topics
    } == {
        name: (topic.topic_id, {n: list(at.replicas) for n, at in topic.partitions.items()})
        for name, topic in cluster.image.topics.items()
    }


@pytest.mark.parametrize(
    ("kind", "name", "source", "expected"),
    [
        (TOPIC_RESOURCE, "orders", FROM_A_TOPIC, {"retention.ms": "2000", "cleanup.policy": "compact"}),
        (BROKER_RESOURCE, "1", FROM_A_BROKER, {"log.cleaner.threads": "2"}),
        (BROKER_RESOURCE, "1", FROM_ALL_BROKERS, {"log.retention.ms": "777"}),
    ],
)
def test_kafka_has_the_configurations(
    kafka: Kafka, kind: int, name: str, source: int, expected: dict[str, str]
) -> None:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked])
    (result,) = kafka.ask(request, 4, DescribeConfigsResponse).results
    assert {at.name: at.value for at in result.configs if at.config_source == source} == expected


def test_kafka_has_acls_quotas_and_credentials(kafka: Kafka) -> None:
    everything = DescribeAclsRequest(
        resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY
    )
    everything.resource_name_filter = everything.principal_filter = everything.host_filter = None
    resources = kafka.ask(everything, 3, DescribeAclsResponse).resources
    assert {
        (at.resource_name, at.pattern_type, entry.principal) for at in resources for entry in at.acls
    } == {("orders", 3, "User:1"), ("orders", 3, "User:2"), ("ord", 4, "User:3")}
    quotas = kafka.ask(DescribeClientQuotasRequest(), 1, DescribeClientQuotasResponse).entries or []
    assert {
        (tuple(sorted((part.entity_type, part.entity_name) for part in at.entity)), value.key, value.value)
        for at in quotas
        for value in at.values
    } == {
        ((("user", "alice"),), "producer_byte_rate", 1024.0),
        ((("user", None),), "request_percentage", 12345678.5),
        ((("client-id", "c*+ é"), ("user", "a/b")), "consumer_byte_rate", 7.0),
        ((("ip", "127.0.0.9"),), "connection_creation_rate", 3.0),
    }
    asked = DescribeUserScramCredentialsRequest(users=None)
    users = kafka.ask(asked, 0, DescribeUserScramCredentialsResponse).results
    assert [(at.user, [c.mechanism for c in at.credential_infos]) for at in users] == [("alice", [1])]


def test_the_tree_that_kafka_leads_is_loaded_as_the_same_cluster(cluster: TreeCluster, kafka: Kafka) -> None:
    """Kafka is its controller by then. It has not finished the deletion: broker 2 is gone."""
    read = kafka.load()
    assert read.controller is not None
    assert read.controller.broker_id == 1
    assert read.controller_epoch == 2
    assert [topic.name for topic in read.marked] == ["doomed"]
    theirs, ours = in_tree(read.image), in_tree(cluster.image)
    for part in ("configs", "kept", "acls", "producer ids", "features"):
        assert theirs[part] == ours[part], part
    assert {
        name: {n: (at.replicas, at.adding_replicas) for n, at in partitions.items()}
        for name, (_, partitions) in theirs["topics"].items()
    } == {
        name: {n: (at.replicas, at.adding_replicas) for n, at in partitions.items()}
        for name, (_, partitions) in ours["topics"].items()
    }
