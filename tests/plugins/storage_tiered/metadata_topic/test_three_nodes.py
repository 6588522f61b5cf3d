"""Remote log metadata on three real nodes on simulated machines: leaders elsewhere, elections, dead processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld_storage_tiered.catalog.records import metadata_partition
from blumfeld_storage_tiered.catalog.segment import SegmentState
from blumfeld_storage_tiered.metadata_topic.remote_log_metadata import RemoteLogMetadata
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopicSettings
from tests.everyday import first
from tests.plugins.replication_isr.three_nodes import ThreeNodes
from tests.plugins.storage_tiered.catalog.history import AT, remote_segment, update

COUNT = 3
SETTINGS = MetadataTopicSettings(num_partitions=COUNT)
INDEX = metadata_partition(AT, COUNT)
LOG = [0] * 40_000
FINISHED = SegmentState.COPY_FINISHED
READ_ANEW = (
    "remote log metadata that was read, or was next, is gone from its topic: it is read from the start"
)


class Metadata:
    """The nodes of a cluster, each with its remote log metadata."""

    def __init__(self, seed: int = 1, nodes: int = 3) -> None:
        alone = {"min.insync.replicas": 1, "default.replication.factor": 1} if nodes == 1 else None
        self.nodes = ThreeNodes(seed, nodes=nodes, config=alone)
        self.of: dict[int, RemoteLogMetadata] = {}

    async def start(self, node_id: int) -> RemoteLogMetadata:
        node = self.nodes.machine(node_id).node
        assert node is not None
        view: Any = node.composition.view(None)
        view.single_node = len(self.nodes.machines) == 1  # its manifest names no other node
        metadata = self.of[node_id] = RemoteLogMetadata(view, SETTINGS, "/data/remote-log-metadata")
        metadata.assign(AT)
        await metadata.start()
        return metadata

    async def start_all(self) -> None:
        for node_id in (1, 2, 3):
            await self.start(node_id)
        await self.nodes.until(lambda: all(metadata.is_ready(AT) for metadata in self.of.values()))

    @property
    def leader(self) -> int:
        topic = self.nodes.shared.image.topics[REMOTE_LOG_METADATA_TOPIC]
        return topic.partitions[INDEX].leader

    def finished(self, node_id: int) -> int:
        """The number of finished segments that a node knows."""
        return sum(segment.state is FINISHED for segment in self.of[node_id].catalog(AT))

    async def copy(self, node_id: int, number: int) -> None:
        """Write both records of a copy on a node."""
        segment = remote_segment(LOG, number * 10, number * 10 + 10, number + 1)
        await self.of[node_id].append(segment)
        await self.of[node_id].append(update(segment, FINISHED))


def test_every_node_writes_and_reads_wherever_the_leader_is() -> None:
    cluster = Metadata()

    async def story() -> None:
        await cluster.start_all()
        for number in range(9):
            node_id = number % 3 + 1
            await cluster.copy(node_id, number)
            assert cluster.finished(node_id) == number + 1, "an append that completed is in the catalog"
        await cluster.nodes.until(lambda: [cluster.finished(n) for n in (1, 2, 3)] == [9, 9, 9])

    cluster.nodes.run(story())


def test_appends_outlive_the_leader_of_their_metadata() -> None:
    cluster = Metadata()

    async def story() -> None:
        nodes = cluster.nodes
        await cluster.start_all()
        dead = cluster.leader
        writer, reader = (node_id for node_id in (1, 2, 3) if node_id != dead)
        copies = [asyncio.ensure_future(cluster.copy(writer, number)) for number in range(20)]
        await asyncio.sleep(0.003)
        nodes.machine(dead).crash(power_cut=False)
        await asyncio.gather(*copies)
        await nodes.until(lambda: cluster.finished(reader) == 20)
        assert cluster.leader not in (-1, dead)
        assert await nodes.machine(dead).start()
        await cluster.start(dead)
        await cluster.of[dead].when_ready(AT)
        assert cluster.finished(dead) == 20

    cluster.nodes.run(story())


def test_a_partition_that_is_assigned_is_ready_when_all_that_was_written_before_is_read() -> None:
    cluster = Metadata()

    async def story() -> None:
        await cluster.start(1)
        await asyncio.gather(*(cluster.copy(1, number) for number in range(120)))  # several reads
        for node_id in (2, 3):
            await cluster.start(node_id)
            ready = cluster.of[node_id].when_ready(AT)
            assert not ready.done
            await ready
            assert cluster.finished(node_id) == 120

    cluster.nodes.run(story())


def test_a_leader_that_is_cut_off_learns_what_others_wrote() -> None:
    cluster = Metadata()

    async def story() -> None:
        nodes = cluster.nodes
        await cluster.start_all()
        before = cluster.leader
        other = before % 3 + 1
        nodes.isolate(before)
        lonely: Completion[None] = cluster.of[before].append(remote_segment(LOG, 0, 10, 1))
        await nodes.until(lambda: cluster.leader not in (-1, before))
        await cluster.copy(other, 1)
        assert not lonely.done
        nodes.heal()
        await lonely
        await nodes.until(lambda: cluster.finished(before) == 1)
        for node_id in (1, 2, 3):
            await nodes.until(lambda node_id=node_id: len(cluster.of[node_id].catalog(AT)) == 2)

    cluster.nodes.run(story())


def test_a_node_that_has_read_what_the_next_leader_lacks_reads_from_the_start() -> None:
    """As after an unclean election, when the log has grown over what was lost."""
    cluster = Metadata()

    async def story() -> None:
        await cluster.start_all()
        dead = cluster.leader
        reader = next(node_id for node_id in (1, 2, 3) if node_id != dead)
        await cluster.copy(reader, 1)
        read = cluster.of[reader]._partitions[INDEX]
        assert read.last_batch is not None
        read.last_batch = read.last_batch._replace(crc=1)
        cluster.nodes.machine(dead).crash(power_cut=False)
        await cluster.nodes.until(lambda: bool(cluster.nodes.said(READ_ANEW)))
        assert [node_id for node_id, _ in cluster.nodes.said(READ_ANEW)] == [reader]
        await cluster.of[reader].when_ready(AT)
        assert cluster.finished(reader) == 1

    cluster.nodes.run(story())


def test_copies_are_recorded_on_a_full_disk_and_the_room_for_that_is_taken_again_afterwards() -> None:
    """Only the end of a copy lets a local segment go. So without its record a full disk would stay full for good."""
    cluster = Metadata(nodes=1)

    async def story() -> None:
        disk = cluster.nodes.machine(1).disk
        await cluster.start(1)
        await cluster.of[1].when_ready(AT)
        for number in range(20):
            if number % 10 == 0:
                disk.room = 1 << 30
                await asyncio.sleep(120)
                disk.room = 0
            await asyncio.wait_for(cluster.copy(1, number), 1)
            disk.room = 0  # a producer has taken what was left

    cluster.nodes.run(story())


def test_room_for_records_of_copies_is_not_taken_from_a_disk_that_is_nearly_full() -> None:
    cluster = Metadata()

    async def story() -> None:
        disk = cluster.nodes.machine(1).disk
        disk.room = 10 << 20
        await cluster.start_all()
        await asyncio.sleep(120)
        assert disk.room > 9 << 20

    cluster.nodes.run(story())


def random_life(seed: int) -> None:
    """Copies on all nodes while processes die and links are cut: in the end all catalogs are the same, and have every
    copy that was told to be finished."""
    cluster = Metadata(seed)
    nodes = cluster.nodes
    done: set[int] = set()

    async def copies(node_id: int) -> None:
        for number in range(node_id * 1000, node_id * 1000 + 15):
            await asyncio.sleep(nodes.chance.random())
            if not nodes.machine(node_id).is_running:
                return
            try:
                await asyncio.wait_for(cluster.copy(node_id, number), 60)
            except (Exception, asyncio.CancelledError):
                return  # the process died
            done.add(number)

    async def story() -> None:
        await cluster.start_all()
        writers = [asyncio.ensure_future(copies(node_id)) for node_id in (1, 2, 3)]
        for _ in range(3):
            await asyncio.sleep(nodes.chance.random() * 4)
            victim = nodes.chance.randrange(3) + 1
            if nodes.chance.random() < 0.5:
                await nodes.restart(victim)
                await cluster.start(victim)
            else:
                nodes.isolate(victim)
                await asyncio.sleep(nodes.chance.random() * 5)
                nodes.heal()
        await asyncio.gather(*writers)
        await nodes.until(lambda: len({_facts(cluster.of[node_id]) for node_id in (1, 2, 3)}) == 1)
        known = {
            segment.start_offset // 10 for segment in cluster.of[1].catalog(AT) if segment.state is FINISHED
        }
        assert done <= known
        assert done

    nodes.run(story())


def _facts(metadata: RemoteLogMetadata) -> frozenset[tuple[bytes, SegmentState]]:
    return frozenset((segment.segment_id, segment.state) for segment in metadata.catalog(AT))


@pytest.mark.parametrize("seed", first(2, range(1, 13)))
def test_all_nodes_agree_whatever_dies(seed: int) -> None:
    random_life(seed)
