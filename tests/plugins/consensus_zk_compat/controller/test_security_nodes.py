"""What others write below ``/config`` comes into the controller's image, if a controller decides on it."""

from __future__ import annotations

import pytest

from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import BROKER_RESOURCE
from blumfeld.spi.zookeeper import Create, Set
from blumfeld.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from blumfeld_consensus_zk_compat.tree import paths
from tests.metadata.acl_section import AclSection
from tests.plugins.consensus_zk_compat.controller.cluster import Cluster
from tests.plugins.consensus_zk_compat.tree.test_merging import written
from tests.plugins.consensus_zk_compat.tree.test_writing import alter

KINDS = SectionKinds([AclSection()])
ACL = "/kafka-acl/Topic/t"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(section_kinds=KINDS)
    cluster.begin()
    return cluster


@pytest.mark.parametrize("path", [ACL, paths.config("users/k"), paths.token("t")])
def test_what_no_controller_decides_on_is_not_read(cluster: Cluster, path: str) -> None:
    """100,000 ACLs would need seconds of each take-over. Any node writes them, by the image of its own."""
    node = cluster.controller
    cluster.do(
        *(Create(above) for above in paths.above(path) if cluster.zookeeper.tree.exists(above) is None),
        Create(path, written("User:k")),
    )
    reads: list[str] = []
    get = node.session.get
    node.session.get = lambda read, watch=None: (reads.append(read), get(read, watch))[1]  # type: ignore
    node.candidate.node_changed(path)
    node.candidate.node_changed(paths.config("brokers/1"))
    cluster.advance()
    assert reads == [paths.config("brokers/1")]


def test_a_read_that_the_controllers_next_write_overtakes_takes_nothing_back(cluster: Cluster) -> None:
    node, path = cluster.controller, paths.config("brokers/1")
    epoch = node.candidate.controller
    cluster.ask(alter(BROKER_RESOURCE, "1", log_cleaner_threads="1"), IncrementalAlterConfigsResponse)
    node.session.slow_ms = 20.0
    node.candidate.node_changed(path)
    second = node.ask(alter(BROKER_RESOURCE, "1", log_cleaner_threads="2"))
    cluster.advance(50)
    third = node.ask(alter(BROKER_RESOURCE, "1", log_cleaner_threads="3"))
    cluster.advance(500)
    assert (second.error, third.error) == (None, None)
    assert node.candidate.controller == epoch, "no write had an old version"
    assert node.image.config(BROKER_RESOURCE, "1") == {"log.cleaner.threads": "3"}
    assert b'"3"' in cluster.zookeeper.tree.get(path).data


def test_what_else_a_node_has_by_others_stays_at_the_controllers_next_write(cluster: Cluster) -> None:
    path = paths.config("brokers/1")
    cluster.ask(alter(BROKER_RESOURCE, "1", log_cleaner_threads="1"), IncrementalAlterConfigsResponse)
    cluster.do(Set(path, b'{"version":1,"config":{"log.cleaner.threads":"1","log.retention.ms":"5"}}'))
    cluster.controller.candidate.node_changed(path)
    cluster.advance()
    cluster.ask(alter(BROKER_RESOURCE, "1", log_cleaner_threads="2"), IncrementalAlterConfigsResponse)
    data = cluster.zookeeper.tree.get(path).data
    assert b'"log.retention.ms":"5"' in data
    assert b'"log.cleaner.threads":"2"' in data
