"""Looks into every node while a run goes on: leaders by epoch, and the disks that have what was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.cluster import ClusterImage, PartitionImage
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld.testing.simulation.clients.oracle import ViolationError
from blumfeld.testing.simulation.cluster.ledger import ClusterLedger
from blumfeld.testing.simulation.machine.host import Machine
from blumfeld.testing.simulation.swarm.world import World

LOOK_S = 0.04
"""A machine that lost its power is up again after 0.1 s at the earliest."""


def metadata_of(machine: Machine) -> ClusterMetadata | None:
    """Return the metadata of the machine's node, once it is made."""
    if not machine.is_running or machine.node is None:
        return None
    composition: Any = getattr(machine.node, "composition", None)
    return None if composition is None else composition.metadata


def hosted(machine: Machine, partition: TopicPartition) -> Partition | None:
    """Return the machine's replica of a partition; ``None`` while it has none."""
    broker: Any = None if machine.node is None or not machine.is_serving else machine.node.broker
    found: Partition | None = (
        None if broker is None else broker.partitions.find(partition.topic, partition.partition)
    )
    return found


class Watch:
    """The part of the oracle that needs no client.

    A replica's disk *has* the acknowledged records if the replica is in the ISR, or among the eligible leader
    replicas, and its machine has not lost its power, or its disk, since it came in. While one such disk is there,
    nothing acknowledged may be lost. With acks=all and without a flush for each message Kafka promises no more.
    """

    def __init__(self, world: World, ledger: ClusterLedger) -> None:
        self._world = world
        self._ledger = ledger
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """(topic id, partition, leader epoch) → node that led."""
        self._cuts = [0] * len(world.machines)
        self._tainted: dict[int, int] = {}
        """Node that lost its cache → the newest broker epoch that it had then."""
        self._last: dict[TopicPartition, tuple[int, ...]] = {}
        """Replicas that had everything when the ISR and the eligible leader replicas were last not empty."""
        self._epochs: dict[int, int] = {}
        """Node → the newest broker epoch that was seen."""
        self._applied = -1
        self.looks = 0

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def newest_image(self) -> ClusterImage | None:
        """Return the image of the running node that has applied most."""
        metadata = self._newest()
        return None if metadata is None else metadata.image

    def _newest(self) -> ClusterMetadata | None:
        known = [found for one in self._world.machines if (found := metadata_of(one)) is not None]
        return max(known, key=lambda one: one.applied_offset) if known else None

    def look(self) -> None:
        """Compare all nodes once. :raises ViolationError: a promise was broken"""
        self.looks += 1
        for nth, machine in enumerate(self._world.machines):
            self._check_leaders(nth + 1, machine)
        metadata = self._newest()
        image = None if metadata is None else metadata.image
        self._note_cuts(image)
        # A node that starts replays old metadata.
        if metadata is not None and image is not None and metadata.applied_offset >= self._applied:
            self._applied = metadata.applied_offset
            self._excuse(image)

    def _check_leaders(self, node_id: int, machine: Machine) -> None:
        for partition in replicas_of(machine):
            if partition.leader is None:
                continue
            at = (partition.topic_id, partition.partition.partition, partition.leader_epoch)
            before = self._leaders.setdefault(at, node_id)
            if before != node_id:
                raise ViolationError(
                    f"{partition.partition}: {node_id} and {before} both led in epoch {partition.leader_epoch}"
                )

    def _note_cuts(self, image: ClusterImage | None) -> None:
        for node_id, broker in ({} if image is None else image.brokers).items():
            self._epochs[node_id] = max(broker.epoch, self._epochs.get(node_id, -1))
        for nth, machine in enumerate(self._world.machines):
            lost = machine.power_cuts
            if lost != self._cuts[nth] or (nth + 1 in self._tainted and not machine.is_running):
                self._cuts[nth] = lost
                self._tainted[nth + 1] = self._epochs.get(nth + 1, -1)

    def _excuse(self, image: ClusterImage) -> None:
        now_s = self._world.loop.time()
        whole = {
            node_id
            for node_id, broker in image.brokers.items()
            if node_id not in self._tainted or broker.epoch > self._tainted[node_id]
        }
        for partition, found in self._watched(image):
            having = (*found.isr, *found.eligible_leader_replicas) or self._last.get(partition, ())
            self._last[partition] = having
            if whole.isdisjoint(having):
                if partition.topic == OFFSETS_TOPIC:
                    self._ledger.excuse_offsets(now_s)
                else:
                    self._ledger.partitions[partition].excuse(now_s)
                self._ledger.counts["excuses"] += 1

    def _watched(self, image: ClusterImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for partition in self._ledger.partitions:
            topic = image.topics.get(partition.topic)
            if topic is not None:
                yield partition, topic.partitions[partition.partition]
        offsets = image.topics.get(OFFSETS_TOPIC)
        if offsets is not None:
            for number, found in offsets.partitions.items():
                yield TopicPartition(OFFSETS_TOPIC, number), found


def replicas_of(machine: Machine) -> Iterator[Partition]:
    """Yield every replica that the machine's broker hosts."""
    broker: Any = None if machine.node is None or not machine.is_serving else machine.node.broker
    if broker is not None:
        yield from broker.partitions
