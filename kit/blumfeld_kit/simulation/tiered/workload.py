"""The workload ``tiered``: the workload ``cluster`` with tiered topics, and a store that fails for a while."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from math import inf
from typing import Any

from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.tiering import TieredLog, tiered
from blumfeld.wire.primitives import uuid_text
from blumfeld_kit.fakes.object_store import SimulatedBucket
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.clients.reads import Values, read_all
from blumfeld_kit.simulation.clients.routes import Routes
from blumfeld_kit.simulation.cluster.reader import ClusterReader
from blumfeld_kit.simulation.cluster.watch import hosted
from blumfeld_kit.simulation.cluster.workload import CONFIG, REPLICAS, Cluster
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.faults import FaultClass
from blumfeld_kit.simulation.swarm.shape import Shape
from blumfeld_kit.simulation.swarm.world import World
from blumfeld_kit.simulation.tiered.stores import NAME, URL, stores_of

METADATA_PARTITIONS = 2
AGAIN_CHANCE = 0.1
"""Probability that a late reader begins anew where the log begins."""


class LateReader(ClusterReader):
    """A reader that begins anew where the log begins, now and then: what it reads lies in the store."""

    async def _fetch(self, partition: TopicPartition) -> None:
        if self._routes.random.random() < AGAIN_CHANCE:
            self.positions[partition] = self._oracle.partitions[partition].deleted
        await super()._fetch(partition)


class Tiered(Cluster):
    """A cluster with tiered topics. A sealed segment leaves the disks soon after it was copied.

    No disk is lost: an elected leader with an empty disk takes the metadata of the store with it (KIP-966), and then an
    operator must restore it. Followers that begin in the store come by reassignments.
    """

    survives = Cluster.survives - {FaultClass.LOST_DISK} | {FaultClass.STORE}
    topics: Mapping[str, int] = {"work": 2}
    topic_config: Mapping[str, str] = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": "4000",
        "local.retention.bytes": "1",
        "retention.ms": "-1",
        "file.delete.delay.ms": "100",
    }
    config: Mapping[str, Any] = {
        **CONFIG,
        "log.initial.task.delay.ms": 500,
        "log.retention.check.interval.ms": 1_000,
        "remote.log.manager.task.interval.ms": 700,
        "remote.log.manager.task.retry.backoff.max.ms": 3_000,
    }

    def __init__(self) -> None:
        super().__init__()
        self.bucket = SimulatedBucket()

    def storage_of(self, shape: Shape) -> tuple[Mapping[str, Any], Sequence[EntryPoint]]:
        """As ``Cluster.storage_of``: the shape's storage is the one inside."""
        topic = {"num_partitions": METADATA_PARTITIONS, "replication_factor": min(REPLICAS, shape.nodes)}
        sweep = {"interval_ms": 5_000, "orphan_grace_ms": 10_000, "copy_grace_ms": 20_000}
        options = {"store": URL, "local": shape.storage, "metadata_topic": topic, "sweep": sweep}
        sections = {
            "plugins": {"stores": [NAME]},
            "storage": {"plugin": "storage_tiered", "options": options},
        }
        return sections, (stores_of(self.bucket),)

    async def prepare(self, world: World) -> None:
        """Create the topics, and let the store fail where a seed says so."""
        world.bucket = self.bucket
        await super().prepare(world)

    def clients(self, world: World, until_s: float) -> Sequence[Coroutine[Any, Any, None]]:
        """As ``Cluster.clients``, with a late reader."""
        routes = self._routes(world, "late", world.client_address(0))
        late = LateReader(routes, self.oracle, list(self.oracle.partitions), "late")
        return [*super().clients(world, until_s), late.run(until_s)]

    def trouble(self, world: World) -> str | None:
        """As ``Cluster.trouble``; and all that is sealed must be copied, and no object be left that nobody knows."""
        trouble = super().trouble(world)
        if trouble is not None or not self._is_over:
            return trouble
        for at, _, log in self._led(world):
            sealed_end = log.segments()[-1].base_offset
            if log.copied_end_offset < sealed_end:
                return f"{at}: copied up to {log.copied_end_offset}, and sealed up to {sealed_end}"
        return self._orphan(world)

    @property
    def _is_over(self) -> bool:
        """Whether the clients have ended."""
        return self._until_s < inf and self._loop.time() > self._until_s

    def _led(self, world: World) -> Iterator[tuple[TopicPartition, Machine, TieredLog]]:
        image = self._watch.newest_image()
        assert image is not None
        for at in self.oracle.partitions:
            machine = world.machines[image.topics[at.topic].partitions[at.partition].leader - 1]
            replica = hosted(machine, at)
            log = None if replica is None else tiered(replica.log)
            if log is not None:
                yield at, machine, log

    def _orphan(self, world: World) -> str | None:
        """Return a sentence about an object that no node has a record of, or ``None``: each object has one.

        Objects of deleted topics don't count. Their last leaders delete them, and a leader may be down.
        """
        image = self._watch.newest_image()
        assert image is not None
        known, topics = (
            set[str](),
            {uuid_text(image.topics[at.topic].topic_id) for at in self.oracle.partitions},
        )
        for machine in world.machines:
            known |= {uuid_text(segment.segment_id) for segment in _segments(machine)}
        for key in self.bucket.keys():  # noqa: SIM118 - a bucket is no dict
            is_segment = any(topic in key for topic in topics) and not key.startswith("blumfeld-")
            if is_segment and not any(segment in key for segment in known):
                return f"no record speaks of {key}"
        return None

    async def contents(
        self, world: World, at: TopicPartition, start_offset: int, local: Values
    ) -> tuple[Values, int]:
        """Read the whole partition as a client does."""
        [start] = [log.log_start_offset for place, _, log in self._led(world) if place == at]
        routes: Routes = self._routes(world, "whole", world.client_address(0))
        values = await read_all(routes, self.oracle, at, start_offset=start)
        routes.close()
        there = dict(values)
        if any(there.get(offset) != value for offset, value in local):
            raise ViolationError(f"{at}: a client reads something else than what lies on the leader's disk")
        return values, start

    async def check(self, world: World) -> None:
        """As ``Cluster.check``, and count what a run must meet to say much."""
        counts = self.oracle.counts
        for _, _, log in self._led(world):
            counts["remote records"] += log.local_log_start_offset - log.log_start_offset
        counts["objects at the end"] += len(self.bucket.keys())
        counts["requests to the store"] += self.bucket.requests
        await super().check(world)


def _segments(machine: Machine) -> Iterator[Any]:
    """Yield the segments that a node's catalogs have."""
    assert machine.node is not None
    storage: Any = machine.node.composition.storage
    for metadata in storage._tiering.metadata._partitions.values():
        for catalog in metadata.catalogs.values():
            yield from catalog
