"""What others write into the nodes of ``/config`` and of ACLs comes into the controller's image."""

from __future__ import annotations

import pytest

from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import BROKER_RESOURCE
from blumfeld.spi.zookeeper import Create, Delete, Set
from blumfeld.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from blumfeld_consensus_zk_compat.tree import paths
from tests.metadata.acl_section import AclSection
from tests.plugins.consensus_zk_compat.controller.cluster import Cluster
from tests.plugins.consensus_zk_compat.tree.test_merging import written
from tests.plugins.consensus_zk_compat.tree.test_writing import alter

KINDS = SectionKinds([AclSection()])
PATH = "/kafka-acl/Topic/t"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(section_kinds=KINDS)
    cluster.begin()
    return cluster


def test_acls_are_in_the_controllers_image(cluster: Cluster) -> None:
    def principals() -> list[str]:
        return sorted(entry.principal for entry in cluster.controller.image.section("acls").values())

    cluster.do(*(Create(above) for above in paths.above(PATH)), Create(PATH, written("User:k")))
    cluster.controller.candidate.node_changed(PATH)
    cluster.advance()
    assert principals() == ["User:k"]
    cluster.do(Delete(PATH), Create(PATH, written("User:l")))
    cluster.controller.candidate.node_changed(PATH)
    cluster.advance()
    assert principals() == ["User:l"], "its version may be the one before"


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
