"""Nodes with a ZooKeeper, from the start to the stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from blumfeld.log.checkpoints import decode_properties
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import NodeStat, Operation, Set, Watch
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from blumfeld_consensus_zk_compat.counts import metrics
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_topics import decode_topic
from blumfeld_kit.simulation.machine.host import address_of
from tests.plugins.consensus_zk_compat.zk_nodes import SESSION_TIMEOUT_MS, ZkNodes


def test_a_node_starts_leads_and_serves_a_topic() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        await nodes.create("orders")
        assert nodes.leads("orders", 1)
        answer = await nodes.shown(1)
        assert answer.controller_id == 1
        assert [b.node_id for b in answer.brokers] == [1]
        (topic,) = answer.topics
        assert (topic.name, topic.partitions[0].leader_id) == ("orders", 1)
        assert await nodes.produce("orders", [b"a", b"b"]) == 0
        assert await nodes.fetch("orders") == [b"a", b"b"]

    nodes.run(story())


def test_a_node_that_starts_again_has_its_records_and_leads_in_a_new_epoch() -> None:
    """Also at once after a kill: its former process's session is waited for."""
    nodes = ZkNodes(1)

    async def story() -> None:
        await nodes.create("orders")
        assert await nodes.produce("orders", [b"a"]) == 0
        before = nodes.metadata(1).image.topics["orders"].partitions[0].leader_epoch
        nodes.machine(1).crash(power_cut=False)
        assert await nodes.machine(1).start()
        await nodes.until(lambda: nodes.leads("orders", 1))
        assert nodes.metadata(1).image.topics["orders"].partitions[0].leader_epoch > before
        assert await nodes.produce("orders", [b"b"]) == 0
        assert await nodes.fetch("orders") == [b"a", b"b"]
        await nodes.machine(1).stop()
        assert await nodes.machine(1).start()
        await nodes.until(lambda: nodes.leads("orders", 1))
        assert await nodes.fetch("orders") == [b"a", b"b"]

    nodes.run(story())


def test_a_directory_of_kafka_with_the_same_zookeeper_is_taken_over_and_may_go_back() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        await nodes.create("orders")
        assert await nodes.produce("orders", [b"a"]) == 0
        own = nodes.machine(1).node
        assert own is not None
        cluster_id = own.composition.cluster_id
        await nodes.machine(1).stop()
        file = nodes.machine(1).disk.tree.file("/data/meta.properties")
        by_kafka = f"#\nbroker.id=1\nversion=0\ncluster.id={cluster_id}\n".encode()
        file.truncate(0)
        file.write(by_kafka, 0)
        assert await nodes.machine(1).start()
        await nodes.until(lambda: nodes.leads("orders", 1))
        assert await nodes.fetch("orders") == [b"a"]
        written = nodes.machine(1).disk.tree.file("/data/meta.properties").read(1_000, 0)
        assert decode_properties(written, "").items() >= decode_properties(by_kafka, "").items()
        await nodes.machine(1).stop()
        assert await nodes.machine(1).start(), "it has a directory id now"

    nodes.run(story())


def test_three_nodes_replicate_and_outlive_their_controller() -> None:
    nodes = ZkNodes(3)

    async def story() -> None:
        await nodes.create("orders", partitions=3, replicas=3)
        for index in range(3):
            assert await nodes.produce("orders", [b"%d" % index], index=index) == 0
        first = nodes.controller
        nodes.machine(first).crash(power_cut=False)
        await nodes.until(lambda: nodes.controller not in (0, first))
        alive = nodes.alive
        await nodes.until(
            lambda: all(nodes.leader("orders", alive, index) not in (-1, first) for index in range(3))
        )
        for index in range(3):
            leader = nodes.leader("orders", alive, index)
            await nodes.until(lambda at=index, on=leader: nodes.leads("orders", on, at))  # type: ignore[misc]
            assert await nodes.produce("orders", [b"x"], index=index) == 0
            assert await nodes.fetch("orders", index=index) == [b"%d" % index, b"x"]
        assert await nodes.machine(first).start()
        image = nodes.metadata(alive).image
        await nodes.until(lambda: all(len(p.isr) == 3 for p in image.topics["orders"].partitions.values()))

    nodes.run(story())


def test_a_command_elsewhere_than_at_the_controller_is_refused_and_the_controller_named() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        other = 3 - nodes.controller
        assert (await nodes.shown(other)).controller_id == nodes.controller
        client = await nodes.connect(other)
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        answer = await client.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5, CreateTopicsResponse
        )
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER

    nodes.run(story())


def test_what_a_node_itself_needs_comes_from_the_controller() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        client = await nodes.connect(3 - nodes.controller)
        answer = await client.ask(InitProducerIdRequest(transactional_id=None), 4, InitProducerIdResponse)
        assert (answer.error_code, answer.producer_id >= 0) == (0, True)

    nodes.run(story())


def test_any_node_changes_configurations_and_every_node_hears_of_it() -> None:
    nodes = ZkNodes(3)

    async def story() -> None:
        await nodes.create("orders", replicas=3)
        other = nodes.controller % 3 + 1
        await _alter_retention(nodes, other, "5000")
        assert nodes.metadata(other).image.config(2, "orders") == {"retention.ms": "5000"}
        for node_id in (1, 2, 3):
            await nodes.until(lambda at=node_id: nodes.metadata(at).image.config(2, "orders"))  # type: ignore[misc]
        await _alter_retention(nodes, other, None)
        for node_id in (1, 2, 3):
            await nodes.until(lambda at=node_id: not nodes.metadata(at).image.config(2, "orders"))  # type: ignore[misc]

    nodes.run(story())


def test_a_configuration_that_is_written_while_a_controller_loads_the_tree_is_in_its_image() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        first = nodes.controller
        heir = 3 - first
        session = nodes.sessions[heir]
        exists = session.exists
        loads: Completion[None] = Completion()
        goes_on: Completion[None] = Completion()

        def held_exists(path: str, watch: Watch | None = None) -> Completion[NodeStat | None]:
            """Hold the load where it has read all configurations."""
            stat = exists(path, watch)
            if path != paths.ACL_CHANGES or loads.done:
                return stat
            loads.complete(None)
            held: Completion[NodeStat | None] = Completion()
            goes_on.when_done(lambda _: held.complete(stat.result()))
            return held

        session.exists = held_exists  # type: ignore[method-assign]
        await nodes.machine(first).stop()
        await loads
        await _alter_retention(nodes, heir, "5000")
        await nodes.pause(1_000)
        goes_on.complete(None)
        await nodes.until(lambda: nodes.controller == heir)
        await nodes.until(
            lambda: nodes.metadata(heir).controller_image.config(2, "orders") == {"retention.ms": "5000"}
        )

    nodes.run(story())


def test_acls_and_credentials_that_anybody_writes_reach_every_node() -> None:
    """Not the controller: it decides on none of them."""
    nodes = ZkNodes(3)
    acl = b'{"acls":[{"principal":"User:a","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
    scram = b'{"version":1,"config":{"SCRAM-SHA-256":"salt=c2FsdA==,stored_key=YQ==,server_key=YQ==,iterations=4096"}}'

    async def story() -> None:
        await nodes.until(lambda: nodes.controller > 0)
        await nodes.pause(1_000)
        tool = nodes.sessions[2]
        for path in ("/kafka-acl", "/kafka-acl/Topic", paths.ACL_CHANGES):
            await tool.create(path)
        await tool.create("/kafka-acl/Topic/t", acl)
        await tool.create(f"{paths.ACL_CHANGES}/acl_changes_", b"TOPIC:t", sequential=True)
        await tool.create(paths.config("users/u"), scram)
        change = b'{"version":2,"entity_path":"users/u"}'
        await tool.create(f"{paths.CONFIG_CHANGES}/config_change_", change, sequential=True)
        await nodes.pause(500)
        images: list[Any] = [nodes.metadata(node_id).image for node_id in (1, 2, 3)]
        assert [len(image.kept) for image in images] == [2, 2, 2]
        assert images[0].kept == images[1].kept == images[2].kept
        controller: Any = nodes.metadata(nodes.controller).controller_image
        assert not controller.kept

    nodes.run(story())


def test_nodes_start_and_take_over_beside_a_configuration_that_cannot_be_read() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        first = nodes.controller
        await nodes.sessions[first].set(paths.config("topics/orders"), b"not json")
        await nodes.machine(first).stop()
        await nodes.until(lambda: nodes.controller == 3 - first)
        assert await nodes.machine(first).start()
        assert await nodes.produce("orders", [b"a"]) == 0
        for node_id in (1, 2):
            shown = {metric.name: metric.read() for metric in metrics(nodes.metadata(node_id).counts)}
            assert shown["blumfeld_zookeeper_unreadable_nodes"] == 1
            said = [
                v for at, e, v in nodes.events if at == node_id and e.startswith("a node of the tree can't")
            ]
            assert len(said) == 1
            assert "/config/topics/orders holds b'not json'" in said[0]["error"]
        mended = b'{"version":1,"config":{"retention.ms":"5"}}'
        await nodes.sessions[first].set(paths.config("topics/orders"), mended)
        for node_id in (1, 2):
            await nodes.until(lambda at=node_id: nodes.metadata(at).image.config(2, "orders"))  # type: ignore[misc]
        controller = nodes.metadata(3 - first)
        await nodes.until(lambda: controller.controller_image.config(2, "orders") == {"retention.ms": "5"})

    nodes.run(story())


def test_a_configuration_that_cannot_be_read_is_not_altered_and_its_node_is_named() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        await nodes.create("orders")
        await nodes.sessions[1].set(paths.config("topics/orders"), b"not json")
        answer = await _alter(nodes, 1, "5000")
        assert answer.responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert paths.config("topics/orders") in (answer.responses[0].error_message or "")

    nodes.run(story())


def test_every_node_shows_a_replica_on_a_lost_disk_offline_until_its_broker_comes_again() -> None:
    nodes = ZkNodes(3)

    async def offline(node_id: int) -> list[int]:
        (topic,) = (await nodes.shown(node_id)).topics
        return topic.partitions[0].offline_replicas

    async def story() -> None:
        await nodes.create("orders", replicas=3)
        candidate = nodes.metadata(nodes.controller)._candidate
        assert candidate is not None
        assert candidate.term is not None
        follower = next(at for at in (1, 2, 3) if at not in (nodes.controller, nodes.leader("orders", 1)))
        candidate.term.active.replicas_failed(follower, [TopicPartition("orders", 0)])
        await nodes.pause(500)
        assert [await offline(at) for at in (1, 2, 3)] == [[follower]] * 3
        nodes.machine(follower).crash(power_cut=False)
        assert await nodes.machine(follower).start()
        await nodes.pause(500)
        assert [await offline(at) for at in (1, 2, 3)] == [[]] * 3

    nodes.run(story())


def test_a_deleted_topic_is_gone_everywhere_and_may_be_created_again() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        assert await nodes.produce("orders", [b"old"]) == 0
        client = await nodes.connect(nodes.controller)
        request = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000)
        assert (await client.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code == 0
        for node_id in (1, 2):
            await nodes.until(lambda at=node_id: "orders" not in nodes.metadata(at).image.topics)  # type: ignore[misc]
        topics = nodes.zookeeper.tree.children(f"{nodes.chroot}/brokers/topics")
        await nodes.until(
            lambda: "orders" not in nodes.zookeeper.tree.children(f"{nodes.chroot}/brokers/topics")
        )
        assert topics is not None
        await nodes.create("orders", replicas=2)
        assert await nodes.produce("orders", [b"new"]) == 0
        assert await nodes.fetch("orders") == [b"new"]

    nodes.run(story())


def logs_on(nodes: ZkNodes, node_id: int) -> list[str]:
    """The directories of a topic's logs on a machine's disk, also those that are set aside or being deleted."""
    names = nodes.machine(node_id).disk.tree.directory("/data").entries
    return sorted(name for name in names if name.startswith("orders-"))


def test_a_topic_that_was_deleted_while_its_node_was_down_goes_from_its_disk_too() -> None:
    """As in Kafka 3.9: the deletion waits for the node, and its log is no stray."""
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        assert await nodes.produce("orders", [b"old"]) == 0
        down = 3 - nodes.controller
        await nodes.machine(down).stop()
        client = await nodes.connect(nodes.controller)
        request = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=2_000)
        await client.ask(request, 5, DeleteTopicsResponse)
        await nodes.pause(2_000)
        assert logs_on(nodes, down) == ["orders-0"]
        assert await nodes.machine(down).start()
        await nodes.until(lambda: not logs_on(nodes, down), seconds=120)
        await nodes.until(lambda: not nodes.zookeeper.tree.children(f"{nodes.chroot}{paths.TOPICS}"))
        await nodes.create("orders", replicas=2)
        assert await nodes.produce("orders", [b"new"]) == 0
        assert await nodes.fetch("orders") == [b"new"]

    nodes.run(story())


def test_a_log_of_a_topic_that_nobody_has_any_more_gives_way_to_a_new_topic_of_its_name() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        assert await nodes.produce("orders", [b"old"]) == 0
        down = 3 - nodes.controller
        await nodes.machine(down).stop()
        tool = nodes.sessions[nodes.controller]
        for path in paths_of("orders"):
            await tool.delete(path)
        await nodes.pause(10_000)  # the controller reads the tree again
        assert await nodes.machine(down).start()
        await nodes.pause(5_000)
        assert logs_on(nodes, down) == ["orders-0"], "no order to delete it came"
        await nodes.create("orders", replicas=2)
        await nodes.until(lambda: nodes.leads("orders", nodes.leader("orders", down)))
        assert await nodes.produce("orders", [b"new"]) == 0
        assert await nodes.fetch("orders") == [b"new"]
        await nodes.until(lambda: len(logs_on(nodes, down)) == 2)
        (new, stray) = logs_on(nodes, down)
        assert (new, stray.endswith("-stray")) == ("orders-0", True)

    nodes.run(story())


def test_a_log_gives_way_whose_topic_was_deleted_before_the_first_order_for_it_came() -> None:
    """The tree that the node read had the topic. No order to delete the replica came, and the next topic's did."""
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        down = 3 - nodes.controller
        await nodes.machine(down).stop()
        silent = nodes.sessions[nodes.controller]
        silent.cut()
        assert await nodes.machine(down).start()
        for path in paths_of("orders"):
            await nodes.sessions[down].delete(path)
        await nodes.until(lambda: nodes.controller == down)
        silent.heal()
        await nodes.until(lambda: len(nodes.metadata(down).controller_image.brokers) == 2)
        await nodes.create("orders", replicas=2)
        await nodes.until(lambda: nodes.hosts("orders", down))
        (new, stray) = logs_on(nodes, down)
        assert (new, stray.endswith("-stray")) == ("orders-0", True)

    nodes.run(story())


def paths_of(topic: str) -> list[str]:
    """A topic's tree, each node after those below it."""
    tree = (paths.state(topic, 0), paths.partition(topic, 0), paths.partitions(topic), paths.topic(topic))
    return [*tree, paths.config(f"topics/{topic}")]


def test_a_reassigned_replica_is_deleted_where_it_was() -> None:
    nodes = ZkNodes(3)

    async def story() -> None:
        await nodes.create("orders", replicas=1)
        assert await nodes.produce("orders", [b"a"]) == 0
        old = nodes.leader("orders", 1)
        new = old % 3 + 1
        client = await nodes.connect(nodes.controller)
        nodes.network.cut(address_of(new), address_of(old))  # until it is listed, nothing is copied
        partition = ReassignablePartition(partition_index=0, replicas=[new])
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="orders", partitions=[partition])]
        )
        answer = await client.ask(request, 0, AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code == 0
        listing = ListPartitionReassignmentsRequest(topics=None)
        (topic,) = (await client.ask(listing, 0, ListPartitionReassignmentsResponse)).topics
        assert (topic.name, topic.partitions[0].adding_replicas) == ("orders", [new])
        nodes.network.heal(address_of(new), address_of(old))
        await nodes.until(lambda: nodes.leader("orders", 1) == new and nodes.leads("orders", new))
        assert await nodes.fetch("orders") == [b"a"]
        await nodes.until(lambda: not nodes.hosts("orders", old))

    nodes.run(story())


def test_a_replica_that_a_controller_moved_away_and_died_is_deleted_where_it_was() -> None:
    """The tree has the end of the reassignment, and the controller doesn't hear of that and gives up."""
    nodes = ZkNodes(3)
    topic = f"{nodes.chroot}/brokers/topics/orders"

    def deciding(session_id: int, operations: Sequence[Operation]) -> None:
        ends = [each for each in operations if isinstance(each, Set) and each.path == topic]
        if ends and not decode_topic(topic, ends[0].data).adding:
            nodes.zookeeper.deciding = lambda *_: None
            next(each for each in nodes.sessions.values() if each.session_id == session_id).lose_answers()

    async def story() -> None:
        await nodes.create("orders", replicas=1)
        assert await nodes.produce("orders", [b"a"]) == 0
        old, first = nodes.leader("orders", 1), nodes.metadata(1).controller
        new = old % 3 + 1
        nodes.zookeeper.deciding = deciding
        client = await nodes.connect(nodes.controller)
        partition = ReassignablePartition(partition_index=0, replicas=[new])
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="orders", partitions=[partition])]
        )
        client.send(request, 0)
        await nodes.until(lambda: nodes.metadata(1).controller not in (None, first))
        await nodes.until(lambda: nodes.leads("orders", new))
        await nodes.until(lambda: not nodes.hosts("orders", old))
        assert await nodes.fetch("orders") == [b"a"]

    nodes.run(story())


def test_an_expired_session_is_followed_by_another_registration() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        await nodes.until(lambda: nodes.controller > 0)
        other = 3 - nodes.controller
        epoch = nodes.broker_epoch(other)
        first = nodes.sessions[other]
        said = len(nodes.events)
        first.cut()
        await nodes.pause(SESSION_TIMEOUT_MS * 3)
        first.heal()
        await nodes.until(lambda: nodes.broker_epoch(other) > epoch)
        assert [event for node_id, event, _ in nodes.events[said:] if node_id == other] == [
            "no ZooKeeper server is reached; produce and fetch go on",
            "the ZooKeeper session is over; another one is begun",
            "ZooKeeper session begun",
            "this process is registered anew",
        ]
        image = nodes.metadata(nodes.controller).image
        await nodes.until(lambda: len(image.topics["orders"].partitions[0].isr) == 2)
        assert await nodes.produce("orders", [b"a"]) == 0
        shown = {metric.name: metric.read() for metric in metrics(nodes.metadata(other).counts)}
        assert shown["blumfeld_zookeeper_sessions_expired_total"] == 1

    nodes.run(story())


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_node_without_a_session_hears_of_a_deletion_when_it_comes_back(replicas: int) -> None:
    """Its own replica keeps the topic in the tree, marked. Without a replica of its own the tree has nothing left."""
    nodes = ZkNodes(3)

    async def story() -> None:
        await nodes.create("orders", replicas=replicas)
        held = {nodes.controller} | ({nodes.leader("orders", 1)} if replicas == 1 else set())
        away = next(node_id for node_id in (1, 2, 3) if node_id not in held)
        nodes.sessions[away].cut()
        await nodes.until(lambda: nodes.zookeeper.tree.exists(f"{nodes.chroot}/brokers/ids/{away}") is None)
        client = await nodes.connect(nodes.controller)
        request = DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000)
        assert (await client.ask(request, 5, DeleteTopicsResponse)).responses[0].error_code == 0
        await nodes.pause(1_000)
        there = "orders" in nodes.zookeeper.tree.children(f"{nodes.chroot}/brokers/topics")
        assert there is (replicas == 3)
        assert "orders" in nodes.metadata(away).image.topics
        nodes.sessions[away].heal()
        await nodes.until(lambda: "orders" not in nodes.metadata(away).image.topics)
        await nodes.until(lambda: not nodes.hosts("orders", away))

    nodes.run(story())


def test_produce_and_fetch_go_on_without_a_zookeeper() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        assert await nodes.produce("orders", [b"a"]) == 0
        nodes.zookeeper.stop_all()
        await nodes.pause(60_000)
        assert await nodes.produce("orders", [b"b"]) == 0
        assert await nodes.fetch("orders") == [b"a", b"b"]
        nodes.zookeeper.start_all()
        await nodes.create("trades", replicas=2)

    nodes.run(story())


def test_the_leader_that_leaves_hands_over_first() -> None:
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", replicas=2)
        leaving = nodes.leader("orders", 1)
        staying = 3 - leaving
        await nodes.machine(leaving).stop()
        assert nodes.leads("orders", staying)
        assert await nodes.produce("orders", [b"a"], node_id=staying) == 0

    nodes.run(story())


def test_a_node_that_says_that_it_is_ready_has_taken_its_first_pushes() -> None:
    """A client that connects after the ready line must not be sent on."""
    nodes = ZkNodes(2)

    async def story() -> None:
        await nodes.create("orders", partitions=8, replicas=2)
        await nodes.until(lambda: nodes.controller > 0)
        other = 3 - nodes.controller
        await nodes.machine(other).stop()
        assert await nodes.machine(other).start()
        assert all(nodes.hosts("orders", other, index) for index in range(8))

    nodes.run(story())


async def _alter_retention(nodes: ZkNodes, node_id: int, value: str | None) -> None:
    """Have a node set ``retention.ms`` of the topic ``orders``, or delete it (``None``)."""
    assert (await _alter(nodes, node_id, value)).responses[0].error_code == 0


async def _alter(nodes: ZkNodes, node_id: int, value: str | None) -> IncrementalAlterConfigsResponse:
    client = await nodes.connect(node_id)
    config = AlterableConfig(name="retention.ms", config_operation=0 if value else 1, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name="orders", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = await client.ask(request, 1, IncrementalAlterConfigsResponse)
    client.close()
    return answer
