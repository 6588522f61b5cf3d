"""A cluster migrates from its ZooKeeper to KRaft, phase by phase."""

from __future__ import annotations

import asyncio
import re

import pytest

from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.metadata.brokers.migration import MigrationState
from blumfeld.plugging.errors import ManifestError
from blumfeld.plugging.sections import decode_section
from blumfeld.spi.cluster import TOPIC_RESOURCE, Endpoint
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import BrokerNode, encode_broker
from blumfeld_kit.fakes.inodes import Tree
from tests.plugins.consensus_zk_compat.migration.migrating import Migrating, altering


def test_a_cluster_migrates_to_the_end_and_keeps_its_records() -> None:
    nodes = Migrating()
    written: list[bytes] = []

    async def produce(value: bytes) -> None:
        await nodes.write("orders", value)
        written.append(value)

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        await produce(b"with the ZooKeeper")
        await nodes.start_quorum()
        await nodes.migrated()
        await nodes.check_equal()
        await produce(b"copied")
        assert await nodes.create_at(2, "trades", 2) == 0
        await nodes.check_equal()
        for node_id in (1, 2, 3):
            await nodes.as_kind(node_id, "kraft")
            await nodes.until(lambda: nodes.leader("orders", nodes.alive) > 0)
            await produce(b"behind node %d" % node_id)
            await nodes.check_equal()
        assert nodes.state is MigrationState.MIGRATION
        for node_id in nodes.quorum:
            await nodes.as_kind(node_id, "ended")
        await nodes.until(lambda: nodes.state is MigrationState.POST_MIGRATION)
        await produce(b"ended")
        assert await nodes.values("orders") == written

    nodes.run(story())


def test_a_cluster_goes_back_to_its_zookeeper_while_all_brokers_read_it() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        await nodes.write("orders", b"a")
        await nodes.start_quorum()
        await nodes.migrated()
        assert await nodes.create_at(1, "trades") == 0
        await nodes.write("orders", b"b")
        await nodes.roll_back()
        before = (await nodes.tree()).image.topics
        await nodes.until(lambda: nodes.controller > 0)
        await nodes.create("positions", 1, 3)
        await nodes.write("orders", b"c")
        assert await nodes.values("orders") == [b"a", b"b", b"c"]
        assert {*before, "positions"} == {*(await nodes.tree()).image.topics}

    nodes.run(story())


def test_a_cluster_goes_back_to_its_zookeeper_when_all_brokers_read_the_log() -> None:
    """The brokers are started as they were before, one by one, while the controllers are still there."""
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        await nodes.write("orders", b"a")
        await nodes.start_quorum()
        await nodes.migrated()
        for node_id in (1, 2, 3):
            await nodes.as_kind(node_id, "kraft")
        await nodes.until(lambda: nodes.leader("orders", 1) > 0)
        await nodes.write("orders", b"b")
        assert await nodes.create_at(1, "trades") == 0
        for node_id in (2, 3, 1):
            await nodes.as_kind(node_id, "zookeeper")
            await nodes.until(lambda: nodes.leader("orders", nodes.alive) > 0)
            await nodes.write("orders", b"from node %d" % node_id)
            await nodes.check_equal()
        await nodes.roll_back()
        await nodes.until(lambda: nodes.controller > 0)
        await nodes.write("orders", b"c")
        values = [b"a", b"b", b"from node 2", b"from node 3", b"from node 1", b"c"]
        assert await nodes.values("orders") == values
        assert nodes.leader("trades", 1) > 0

    nodes.run(story())


def test_the_next_leader_of_the_quorum_brings_the_tree_what_the_last_one_did_not_write() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        first = nodes.leader_of_quorum
        # The leader's session is cut off: what it commits from now on stays in the log.
        nodes.sessions[first].cut()
        assert await nodes.create_at(1, "trades") == 0
        nodes.all[first].crash(power_cut=False)
        await nodes.until(lambda: nodes.leader_of_quorum not in (0, first))
        await nodes.until(lambda: nodes.said("the ZooKeeper follows the log") > 1, 90)
        await nodes.check_equal()
        await nodes.until(lambda: nodes.leader("trades", 1) > 0)
        await nodes.write("trades", b"a")

    nodes.run(story())


def test_the_last_controller_stops_when_the_tree_has_everything_also_between_two_sessions() -> None:
    """The way back begins behind it: what the tree lacks then is lost."""
    nodes = Migrating(quorum=1)

    async def story() -> None:
        await nodes.begin()
        nodes.sessions[4].cut()
        assert await nodes.create_at(1, "trades") == 0
        await nodes.until(lambda: nodes.said("the migration waits"))
        await nodes.all[4].stop()
        assert "trades" in (await nodes.tree()).image.topics

    nodes.run(story())


def test_a_controller_of_the_zookeeper_that_wakes_up_late_writes_nothing() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        former = nodes.controller
        nodes.sessions[former].pause()
        await nodes.start_quorum()
        await nodes.migrated()
        before = nodes.metadata(former).counts.fenced_writes
        term = nodes.metadata(former)._candidate.term  # type: ignore[union-attr]
        assert term is not None, "it believes that it is the controller"
        asked = nodes.metadata(former)._own(
            CreateTopicsRequest(topics=[CreatableTopic(name="late", num_partitions=1, replication_factor=3)]),
            20_000,
            wait_image=False,
        )
        nodes.sessions[former].resume()
        await nodes.until(lambda: asked.done)
        assert asked.error is not None
        assert nodes.metadata(former).counts.fenced_writes > before
        assert "late" not in (await nodes.tree()).image.topics
        await nodes.check_equal()

    nodes.run(story())


def test_a_topic_that_is_deleted_leaves_the_tree_and_the_brokers_that_read_it() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin(2)
        await nodes.as_kind(1, "kraft")
        request = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000)
        answer = await nodes.ask(2, request, 5, DeleteTopicsResponse)
        assert answer.responses[0].error_code == 0
        await nodes.until(lambda: not any(nodes.hosts("orders", node_id, 1) for node_id in (1, 2, 3)))
        await nodes.check_equal()
        assert await nodes.create_at(3, "orders", 1) == 0
        await nodes.until(lambda: all(nodes.leader("orders", node_id) > 0 for node_id in (1, 2, 3)))
        await nodes.write("orders", b"of the second one")
        assert await nodes.values("orders") == [b"of the second one"]
        await nodes.check_equal()

    nodes.run(story())


def test_a_configuration_is_changed_in_the_log_and_read_from_the_tree() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        assert await nodes.alter(1, "orders", "retention.ms", "1000") == 0
        await nodes.start_quorum()
        await nodes.migrated()
        assert await nodes.alter(2, "orders", "retention.ms", "2000") == 0
        key = (TOPIC_RESOURCE, "orders")
        await nodes.until(
            lambda: all(nodes.image(n).configs.get(key) == {"retention.ms": "2000"} for n in (1, 2, 3))
        )
        await nodes.check_equal()

    nodes.run(story())


def test_a_broker_that_takes_part_in_no_migration_holds_the_first_claim_up() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        await nodes.as_kind(2, "unready")
        await nodes.start_quorum()
        await nodes.until(lambda: nodes.said("the migration waits"))
        await nodes.pause(5_000)
        reasons = [values["reason"] for _, event, values in nodes.events if event == "the migration waits"]
        assert reasons == ["brokers [2] run without metadata_migration_enable, or are no Blumfeld"]
        assert nodes.controller, "the ZooKeeper's controller is at work"
        assert nodes.state is MigrationState.NONE
        await nodes.as_kind(2, "zookeeper")
        await nodes.migrated()
        await nodes.check_equal()

    nodes.run(story())


def test_a_broker_of_the_quorum_waits_for_the_copy_of_the_tree() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        await nodes.as_kind(2, "unready")
        await nodes.start_quorum()
        await nodes.machine(3).stop()
        nodes.machine(3)._plan = nodes._plan_of(3, "kraft")
        start = asyncio.ensure_future(nodes.machine(3).start())
        await nodes.pause(8_000)
        assert not start.done()
        await nodes.as_kind(2, "zookeeper")
        assert await start
        await nodes.migrated()
        await nodes.write("orders", b"a")
        await nodes.check_equal()

    nodes.run(story())


def test_a_quorum_with_a_cluster_of_its_own_takes_no_other() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        for node_id in nodes.quorum:
            nodes.all[node_id]._plan = nodes._plan_of(node_id, "ended")
        await nodes.start_quorum()
        await nodes.as_kind(3, "kraft")
        assert await nodes.create_at(3, "own", 1, 1) == 0
        for node_id in nodes.quorum:
            await nodes.as_kind(node_id, "controller")
        await nodes.until(lambda: nodes.said("the migration waits"))
        (reason,) = {values["reason"] for _, event, values in nodes.events if event == "the migration waits"}
        assert reason.startswith("the quorum has a cluster of its own")
        assert nodes.controller

    nodes.run(story())


def test_a_broker_that_reads_the_tree_is_replaced_as_leader_when_it_dies_and_comes_back() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        await nodes.write("orders", b"a")
        leader = nodes.leader("orders", 1)
        epoch = nodes.log_image.topics["orders"].partitions[0].leader_epoch
        nodes.machine(leader).crash(power_cut=False)
        await nodes.until(lambda: nodes.leader("orders", nodes.alive) not in (-1, leader))
        await nodes.write("orders", b"b")
        assert await nodes.machine(leader).start()
        await nodes.until(lambda: leader in nodes.log_image.topics["orders"].partitions[0].isr)
        await nodes.write("orders", b"c")
        assert nodes.log_image.topics["orders"].partitions[0].leader_epoch > epoch
        assert await nodes.values("orders") == [b"a", b"b", b"c"]
        await nodes.check_equal()

    nodes.run(story())


def test_controllers_that_come_back_after_a_rollback_leave_the_tree_alone() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        await nodes.roll_back()
        await nodes.create("trades", 1, 3)
        await nodes.start_quorum()
        await nodes.until(lambda: nodes.said("the migration waits"))
        await nodes.pause(5_000)
        assert nodes.controller
        assert "trades" in (await nodes.tree()).image.topics
        await nodes.write("trades", b"a")

    nodes.run(story())


def test_a_controller_without_a_migration_ends_none_while_a_broker_reads_the_tree() -> None:
    nodes = Migrating(quorum=1)

    async def story() -> None:
        await nodes.begin()
        for node_id in (1, 2):
            await nodes.as_kind(node_id, "kraft")
        await nodes.as_kind(4, "ended")
        await nodes.pause(2_000)
        assert nodes.state is MigrationState.MIGRATION
        (brokers,) = [
            values["brokers"] for _, event, values in nodes.events if event.startswith("brokers still")
        ]
        assert brokers == [3]
        await nodes.as_kind(4, "controller")
        await nodes.until(lambda: nodes.said("the ZooKeeper follows the log") > 1, 90)
        await nodes.write("orders", b"a")

    nodes.run(story())


def test_a_broker_that_reads_the_tree_names_itself_as_controller_while_the_quorum_has_the_cluster() -> None:
    """Clients can't reach the quorum: any broker passes their commands on."""
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        assert [(await nodes.shown(node_id)).controller_id for node_id in (1, 2, 3)] == [1, 2, 3]

    nodes.run(story())


def test_a_node_that_has_not_seen_the_claim_writes_no_configuration() -> None:
    """The tree is read once for the copy: what was written behind that would be missing in the log."""
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        node = nodes.metadata(1)
        altered = node._written_here(altering("orders", "retention.ms", "1000"), 10_000, None)
        await nodes.until(lambda: altered.done)
        assert isinstance(altered.error, BrokerError)
        assert altered.error.code is ErrorCode.NOT_CONTROLLER
        assert not (await nodes.tree()).image.configs

    nodes.run(story())


def test_a_reassignment_is_listed_by_no_broker_that_reads_the_tree() -> None:
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        request = ListPartitionReassignmentsRequest(topics=None)
        answer = await nodes.ask(1, request, 0, ListPartitionReassignmentsResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION

    nodes.run(story())


def test_a_cluster_that_went_back_migrates_again_with_controllers_that_were_formatted_anew() -> None:
    """A broker may still have the log of the quorum that was: another quorum's has the same epochs and offsets."""
    nodes = Migrating(quorum=1)

    async def story() -> None:
        await nodes.begin()
        for node_id in (1, 2):
            await nodes.as_kind(node_id, "kraft")
            await nodes.write("orders", b"node %d reads the log" % node_id)
        for node_id in (1, 2):
            await nodes.as_kind(node_id, "zookeeper")
            await nodes.write("orders", b"node %d reads the tree" % node_id)
        await nodes.roll_back()
        await nodes.until(lambda: nodes.controller > 0)
        nodes.all[4].disk.tree = Tree()
        await nodes.start_quorum()
        await nodes.until(lambda: nodes.said("the ZooKeeper follows the log") > 1, 90)
        for node_id in (1, 2, 3):
            await nodes.as_kind(node_id, "kraft")
            await nodes.write("orders", b"again %d" % node_id)
        await nodes.check_equal()
        assert len(await nodes.values("orders")) == 7

    nodes.run(story())


def test_no_producer_id_is_given_twice_on_either_side_of_the_copy() -> None:
    nodes = Migrating(quorum=1)
    given: list[int] = []

    async def give() -> None:
        for node_id in (1, 2, 3):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await nodes.ask(node_id, request, 4, InitProducerIdResponse)
            assert answer.error_code == 0
            given.append(answer.producer_id)

    async def story() -> None:
        await nodes.create("orders", 1, 3)
        await give()
        await nodes.start_quorum()
        await nodes.migrated()
        for node_id in (1, 2):  # a process forgets the rest of its block
            await nodes.as_kind(node_id, "zookeeper")
        await give()
        for node_id in (1, 2, 3):
            await nodes.as_kind(node_id, "kraft")
        await give()
        await nodes.check_equal()
        assert len(set(given)) == len(given) == 9

    nodes.run(story())


@pytest.mark.parametrize(
    ("roles", "plugin", "found"),
    [
        (
            ("broker", "controller"),
            "consensus_zk_compat",
            "migration: found a migration in a node with the roles",
        ),
        (("controller",), "consensus_kraft", "migration.plugin"),
    ],
)
def test_a_migration_is_for_controllers_alone_and_leads_from_one_consensus_to_another(
    roles: tuple[str, ...], plugin: str, found: str
) -> None:
    raw = {
        "node": {"id": 1, "roles": roles},
        "network": {
            "listeners": [
                {"name": "PLAINTEXT", "bind": "127.0.0.1:9092"},
                {"name": "CONTROLLER", "kind": "controller", "bind": "127.0.0.1:9093"},
            ][2 - len(roles) :]
        },
        "migration": {"plugin": plugin, "options": {"connect": "zk:2181"}},
    }
    with pytest.raises(ManifestError, match=re.escape(found)):
        make_plan(decode_section(raw, Manifest, "test"), "test")


def test_a_broker_that_comes_later_and_takes_no_part_is_not_registered() -> None:
    """Apache Kafka's, for one: nodes of this build don't start then."""
    nodes = Migrating(quorum=1)

    async def story() -> None:
        await nodes.begin()
        async with nodes.tree_session() as session:
            await session.create(
                paths.broker(9), encode_broker(BrokerNode(endpoints=(Endpoint("PLAINTEXT", "kafka", 9092),)))
            )
            await nodes.until(
                lambda: nodes.said("a broker takes no part in the migration, and is not registered")
            )
            await nodes.pause(1_000)
        assert sorted(nodes.log_image.brokers) == [1, 2, 3]

    nodes.run(story())


def test_a_broker_goes_back_to_the_tree_after_the_quorum_has_another_leader_and_no_broker_read_it() -> None:
    """The new leader found no broker in the tree that would name the listener of brokers."""
    nodes = Migrating()

    async def story() -> None:
        await nodes.begin()
        for node_id in (1, 2, 3):
            await nodes.as_kind(node_id, "kraft")
        followed = nodes.said("the ZooKeeper follows the log")
        nodes.all[nodes.leader_of_quorum].crash(power_cut=False)
        await nodes.until(lambda: nodes.said("the ZooKeeper follows the log") > followed, 90)
        await nodes.as_kind(1, "zookeeper")
        await nodes.until(lambda: nodes.hosts("orders", 1))
        await nodes.check_equal()

    nodes.run(story())
