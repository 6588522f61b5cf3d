"""A node that can't be part of the cluster it finds says what it found, and what to do."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from blumfeld.kernel.node import StartError
from blumfeld.spi.completion import Completion
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.plugins.consensus_zk_compat.zk_nodes import ZkNodes

CHROOT = "/blumfeld"


async def write(nodes: ZkNodes, path: str, data: bytes) -> None:
    """Somebody else writes a node of the tree, below the chroot."""
    session = nodes.zookeeper.session(FakeRuntime(loop=nodes.loop), chroot=nodes.chroot, create_chroot=True)
    await session.connect(5_000)
    names = path.split("/")[1:]
    for depth in range(1, len(names)):
        above = "/" + "/".join(names[:depth])
        if await session.exists(above) is None:
            await session.create(above)
    if await session.exists(path) is None:
        await session.create(path, data)
    else:
        await session.set(path, data)
    await session.close()


async def refused(nodes: ZkNodes) -> str:
    with pytest.raises(StartError) as caught:
        await nodes.machine(1).start()
    return str(caught.value)


def run(nodes: ZkNodes, story: Coroutine[Any, Any, None]) -> None:
    nodes.run(story, started=False)


def test_a_cluster_of_another_id_is_refused() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        assert await nodes.machine(1).start()
        await nodes.machine(1).stop()
        own = nodes.zookeeper.tree.get(f"{CHROOT}/cluster/id").data.decode()
        await write(nodes, "/cluster/id", b'{"version":"1","id":"another"}')
        text = await refused(nodes)
        assert "is of cluster another, and this node of" in text
        assert "consensus.options.connect" in text
        assert own.split('"')[-2] in text

    run(nodes, story())


@pytest.mark.parametrize("there", [False, True])
def test_another_chroot_than_before_is_refused(there: bool) -> None:
    """Whether there is nothing at all, or a path without a cluster."""
    nodes = ZkNodes(1)

    async def story() -> None:
        assert await nodes.machine(1).start()
        await nodes.machine(1).stop()
        nodes.chroot = "/blumfelt"
        if there:
            await write(nodes, "/something", b"")
        text = await refused(nodes)
        assert "chroot" in text

    run(nodes, story())


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}', "KRaft"),
        (
            "/migration",
            b'{"version":0,"kraft_controller_id":3000,"kraft_metadata_offset":7,"kraft_controller_epoch":5,'
            b'"kraft_metadata_epoch":5}',
            "migration to KRaft",
        ),
    ],
)
def test_a_cluster_that_belongs_to_kraft_or_is_on_its_way_there_is_refused(
    path: str, data: bytes, said: str
) -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        await write(nodes, "/cluster/id", b'{"version":"1","id":"of-a-kafka"}')
        await write(nodes, path, data)
        text = await refused(nodes)
        assert path in text
        assert said in text

    run(nodes, story())


def test_a_node_of_the_tree_that_cannot_be_read_is_named() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        await write(nodes, "/cluster/id", b'{"version":"1","id":"of-a-kafka"}')
        await write(nodes, "/kafka-acl/Topic/t", b"not json")
        assert "/kafka-acl/Topic/t holds b'not json'; allowed: " in await refused(nodes)

    run(nodes, story())


def test_a_zookeeper_that_does_not_answer_is_named() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        nodes.zookeeper.stop_all()
        text = await refused(nodes)
        assert text.startswith("consensus: ")
        assert "servers answered" in text

    run(nodes, story())


def test_a_node_with_an_id_that_is_alive_waits_for_its_end() -> None:
    nodes = ZkNodes(1)

    async def story() -> None:
        session = nodes.zookeeper.session(FakeRuntime(loop=nodes.loop), chroot=CHROOT, create_chroot=True)
        await session.connect(5_000)
        for path in ("/brokers", "/brokers/ids"):
            await session.create(path)
        at = b'"endpoints":["PLAINTEXT://10.0.9.9:9092"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}'
        form = b'{"version":5,"host":"10.0.9.9","port":9092,"jmx_port":-1,"timestamp":"1",' + at + b"}"
        await session.create("/brokers/ids/1", form, ephemeral=True)
        started: Completion[None] = Completion()

        async def leave() -> None:
            await nodes.pause(10_000)
            assert not started.done
            await session.close()

        left = nodes.loop.create_task(leave())
        assert await nodes.machine(1).start()
        started.complete(None)
        await left
        assert nodes.broker_epoch(1) > 0

    run(nodes, story())


def test_a_topic_without_an_id_gets_one_before_logs_are_looked_at() -> None:
    """Kafka before 2.8 gave none. An image without the topic would have its logs set aside."""
    nodes = ZkNodes(1)

    async def story() -> None:
        await write(nodes, "/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}')
        state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":3,"isr":[1]}'
        await write(nodes, "/brokers/topics/old/partitions/0/state", state)
        assert await nodes.machine(1).start()
        topic = nodes.metadata(1).image.topics["old"]
        assert topic.topic_id != bytes(16)
        await nodes.until(lambda: nodes.leads("old", 1))

    run(nodes, story())
