"""Looks into every node while a run goes on: leaders by epoch, and the disks that have what was acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.cluster import ClusterImage, PartitionImage
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, OFFSETS_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.cluster.excuses import Excuses
from blumfeld_kit.simulation.cluster.log_model import check_log_state
from blumfeld_kit.simulation.cluster.replica_checks import (
    History,
    check_isr,
    is_held_to,
    metadata_log,
)
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.swarm.world import Following, Membership, World
from blumfeld_kit.simulation.zookeeper.tree_oracle import Image, TreeOracle

LOOK_S = 0.04
"""A machine that lost its power is up again after 0.1 s at the earliest."""
TREE_LOOK_S = 0.08
"""The same with a ZooKeeper: the tree's own oracle sees each write, and looks are a sixth of a run's work."""
IMAGE_LOOKS = 10
"""Looks from one comparison of all images to the next."""


def metadata_of(machine: Machine) -> ClusterMetadata | None:
    """Return the metadata of the machine's node, once it is made."""
    if not machine.is_running or machine.node is None:
        return None
    return machine.node.composition.metadata


def hosted(machine: Machine, partition: TopicPartition) -> Partition | None:
    """Return the machine's replica of a partition; ``None`` while it has none."""
    broker: Any = None if machine.node is None or not machine.is_serving else machine.node.broker
    replica: Partition | None = (
        None if broker is None else broker.partitions.find(partition.topic, partition.partition)
    )
    return replica


def _decided(image: Image | None, partition: TopicPartition) -> PartitionImage | None:
    """Return a partition as an image shows it."""
    topic = None if image is None else image.topics.get(partition.topic)
    return None if topic is None else topic.partitions[partition.partition]


class Watch:
    """The part of the oracle that needs no client.

    A replica *has* the acknowledged records while it is in the ISR, or among the eligible leader replicas, and its
    process has not ended uncleanly since it came in. While there is one, and also without one while the last leader's
    machine kept its power, nothing acknowledged may be lost (KIP-966). See :class:`Excuses`.
    """

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        self._leaders: dict[tuple[bytes, int, int], int] = {}
        """(topic id, partition, leader epoch) → node that led."""
        self._processes: dict[tuple[bytes, int, int], int] = {}
        """The same → number of the process that led (ADR 0019)."""
        self._ends = [(0, 0)] * len(world.machines)
        """Kills and power cuts of each machine, as of the last look."""
        self._ran = [True] * len(world.machines)
        """Whether each machine's process was there at the last look."""
        self._tree = None if world.coordination is None else world.coordination.oracle
        self._excuses = Excuses(has_eligible=self._tree is None)
        self._applied = -1
        self._histories: dict[TopicPartition, History] = {}
        self._metadata_history = History(CLUSTER_METADATA_TOPIC)
        self._excused: dict[TopicPartition, None] = {}
        """Partitions that are excused now."""
        self._floors: dict[TopicPartition, int] = {}
        """Leader epoch at the end of the last excuse. What earlier epochs call committed counts no more."""
        self._led: dict[tuple[TopicPartition, int], float] = {}
        """(partition, leader epoch) → when its leader was first seen."""
        self._isr_since_begin: dict[tuple[TopicPartition, int], set[int]] = {}
        """Members of each leader epoch's ISR that never left it."""
        self._controller = (-1, -1)
        self._failure: ViolationError | None = None
        self.looks = 0

    async def run(self) -> None:
        """Look for ever."""
        while self._failure is None:
            self.look()
            await asyncio.sleep(LOOK_S if self._tree is None else TREE_LOOK_S)
        raise self._failure

    def look_now(self) -> None:
        """Look between two rounds, from anywhere. The next round raises what was found."""
        if self._failure is None:
            try:
                self.look()
            except ViolationError as error:
                self._failure = error

    def newest_image(self) -> Image | None:
        """Return the image of the running node that has applied most; with a ZooKeeper, that of the tree."""
        if self._tree is not None:
            return self._tree.image
        metadata = self._newest()
        return None if metadata is None else metadata.image

    def _newest(self) -> ClusterMetadata | None:
        known = [
            metadata for machine in self._world.machines if (metadata := metadata_of(machine)) is not None
        ]
        return max(known, key=lambda candidate: candidate.applied_offset) if known else None

    def look(self) -> None:
        """Compare all nodes once. :raises ViolationError: a promise was broken"""
        self.looks += 1
        for nth, machine in enumerate(self._world.machines):
            self._check_leaders(nth + 1, machine)
        image, applied = self._known()
        self._note_ends(image)
        self._note_coordinators(image)
        self._note_fenced()
        now_excused = dict.fromkeys(self._excuses.excused())
        self._excuse_starts()
        # A node that starts replays old metadata.
        if image is not None and applied >= self._applied:
            self._applied = applied
            for partition, partition_image in self._watched(image):
                self._excuses.placed(partition, partition_image, self._joined(partition, partition_image))
        # Also what was excused before this image: an election that was due may be done in it.
        self._excuse(now_excused | dict.fromkeys(self._excuses.excused()))
        self._check_committed()
        if self.looks % IMAGE_LOOKS == 0:
            self.check_images()
        self._tell_moments()

    def _known(self) -> tuple[Image | None, int]:
        """Return the newest image, and a number that grows with what it shows."""
        if self._tree is not None:
            if self._tree.failure is not None:
                raise self._tree.failure
            return self._tree.image, self._tree.zxid
        metadata = self._newest()
        return (None, -1) if metadata is None else (metadata.image, metadata.applied_offset)

    def _joined(self, at: TopicPartition, image: PartitionImage) -> list[int] | None:
        """Return the members of an ISR whose present process was registered when the ISR was written. With a log all
        are: the registration of a process takes it out of each ISR."""
        if self._tree is None:
            return None
        written = self._tree.written(at.topic, at.partition, image.partition_epoch)
        return [] if written is None else [one for one in image.isr if self._registered_before(one, written)]

    def _registered_before(self, node_id: int, zxid: int) -> bool:
        assert self._tree is not None
        return self._tree.czxids.get(node_id, zxid) < zxid

    def check_images(self) -> None:
        """Check that nodes that have applied the same records show the same cluster, whether they read the records or
        a snapshot of them.

        :raises ViolationError: they don't
        """
        known: dict[int, tuple[Machine, Any]] = {}
        for machine in self._world.machines:
            metadata = metadata_of(machine)
            if metadata is None or metadata.applied_offset < 0:
                continue
            image: Any = metadata.image
            other, first = known.setdefault(metadata.applied_offset, (machine, image))
            if first is not image and first.offset == image.offset and first != image:
                raise ViolationError(
                    f"the metadata: {machine.address} and {other.address} show different clusters at {image.offset}"
                )

    def check_has_compared(self) -> None:
        """Count the batches of all logs that were compared.

        :raises ViolationError: none of the metadata log, or of the topics: such a run says nothing about them
        """
        compared = {"batches": sum(history.compared for history in self._histories.values())}
        if self._tree is None:
            compared["metadata batches"] = self._metadata_history.compared
        for name, count in compared.items():
            self._oracle.counts[f"{name} compared"] = count
            if not count:
                raise ViolationError(f"the oracle has compared no {name} in the whole run")

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
            process = self._processes.setdefault(at, machine.incarnations)
            if self._tree is not None and process != machine.incarnations:
                raise ViolationError(
                    f"{partition.partition}: two processes of node {node_id} led in epoch {partition.leader_epoch}"
                )

    def _note_coordinators(self, image: Image | None) -> None:
        """Note which brokers lead a partition of the offsets topic in an epoch that is over."""
        topic = None if image is None else image.topics.get(OFFSETS_TOPIC)
        for number, partition in () if topic is None else topic.partitions.items():
            for machine in self._world.machines:
                replica = hosted(machine, TopicPartition(OFFSETS_TOPIC, number))
                if (
                    replica is not None
                    and replica.leader is not None
                    and replica.leader_epoch < partition.leader_epoch
                ):
                    self._oracle.behind_s[machine.address] = self._world.loop.time()

    def _note_fenced(self) -> None:
        for machine in self._world.machines:
            metadata = metadata_of(machine)
            if metadata is not None and _leaves_out_one(metadata.image, self._tree):
                self._oracle.fenced_s = self._world.loop.time()
                return

    def _note_ends(self, image: Image | None) -> None:
        for node_id, broker in ({} if image is None else image.brokers).items():
            self._excuses.registered(node_id, broker.epoch)
        for nth, machine in enumerate(self._world.machines):
            before, self._ends[nth] = self._ends[nth], (machine.kills, machine.power_cuts)
            if before != self._ends[nth]:
                self._excuses.ended(nth + 1, cache_lost=machine.power_cuts > before[1])
            elif self._tree is not None and self._ran[nth] and not machine.is_running:
                # In order. A tree doesn't say how a process ended: one that was still in an ISR, as there was no
                # controller to ask, is taken for one that died.
                self._excuses.ended(nth + 1, cache_lost=False)
            elif not machine.is_running:
                self._excuses.still_down(nth + 1)
            self._ran[nth] = machine.is_running

    def _excuse_starts(self) -> None:
        for partition in self._excuses.start_excused():
            if partition in self._oracle.partitions:
                self._oracle.partitions[partition].excuse_start(self._world.loop.time())

    def _excuse(self, excused: Mapping[TopicPartition, None]) -> None:
        now_s = self._world.loop.time()
        for partition in [place for place in self._excused if place not in excused]:
            del self._excused[partition]
            floor = self._floors[partition] = self._newest_epoch(partition)
            if partition in self._oracle.partitions:
                self._oracle.partitions[partition].floor_epoch = floor
        for partition in excused:
            if partition not in self._excused:
                self._excused[partition] = None
                self._oracle.counts["excuses"] += 1
            self._oracle.excuse(partition, now_s)
            if partition in self._histories:
                self._histories[partition].forget()

    def _newest_epoch(self, partition: TopicPartition) -> int:
        decided = _decided(self.newest_image(), partition)
        return -1 if decided is None else decided.leader_epoch

    def follow_metadata(self, take: Callable[[int, bytes], None]) -> None:
        """Call ``take`` with the base offset and the bytes of each batch of metadata, once it is committed."""
        self._metadata_history.on_batch = take

    def check_metadata(self, machine: Machine) -> None:
        """Compare a machine's metadata log with those of the others. :raises ViolationError: they differ"""
        found_log = metadata_log(metadata_of(machine))
        if found_log is not None:
            self._metadata_history.check(machine, *found_log)

    def _check_committed(self) -> None:
        newest = self.newest_image()
        known: dict[int, ClusterImage] = {}
        for nth, machine in enumerate(self._world.machines, 1):
            metadata = metadata_of(machine)
            if metadata is not None:
                known[nth] = metadata.image
            self.check_metadata(machine)
        for at, history in self._histories.items():
            if at in self._excused:
                continue
            replicas = {
                nth: hosted_replica
                for nth, machine in enumerate(self._world.machines, 1)
                if (hosted_replica := hosted(machine, at)) is not None and hosted_replica.closed is None
            }
            floor = self._floors.get(at, -1)
            counting = dict(replicas) if floor < 0 else dict[int, Partition]()
            for node_id, replica in replicas.items():
                leader = replica.leader
                if leader is None or replica.leader_epoch < floor:
                    continue
                self._tell_leader(at, node_id, replica)
                image = known.get(node_id)
                decided = _decided(newest, at)
                has = {
                    other_id: replicas[other_id]
                    for other_id in replicas
                    if self._has_all(image, replica, other_id) and is_held_to(replica, decided, other_id)
                }
                check_isr(replica, decided, has)
                if decided is None or decided.leader_epoch <= replica.leader_epoch:
                    # Behind a later leader a member may have cut what was never committed.
                    self._check_joined(at, replica, has)
                # Behind an excuse a follower may call records committed that the new leader doesn't have. It is right
                # again when it is in sync.
                counting |= {
                    other_id: replicas[other_id]
                    for other_id in leader.isr
                    if other_id in replicas and replicas[other_id].leader_epoch == replica.leader_epoch
                }
            for node_id, replica in counting.items():
                deleted_end = self._oracle.partitions[at].deleted if at in self._oracle.partitions else 0
                history.check(
                    self._world.machines[node_id - 1], replica.log, replica.high_watermark, deleted_end
                )

    def _check_joined(self, at: TopicPartition, replica: Partition, has: dict[int, Partition]) -> None:
        """Check that a member that came in during a leader epoch has the log up to where the epoch began: below that,
        its log may still be of another history (KIP-497)."""
        assert replica.leader is not None
        isr = replica.leader.isr
        key = (at, replica.leader_epoch)
        since_begin = self._isr_since_begin[key] = self._isr_since_begin.get(key, set(isr)) & set(isr)
        for node_id in isr:
            member = has.get(node_id)
            if node_id in since_begin or member is None:
                continue
            if member.log.written_end_offset < replica.leader_start_offset:
                raise ViolationError(
                    f"{at}: node {node_id} is in the ISR of epoch {replica.leader_epoch}, which began at "
                    f"{replica.leader_start_offset}, and ends at {member.log.written_end_offset}"
                )

    def _has_all(self, image: Image | None, replica: Partition, node_id: int) -> bool:
        """Whether a leader's view of a member counts: the member kept its cache, or the leader knows the process that
        came after.

        :param image: the cluster as the leader knows it
        """
        if self._tree is not None:  # no image of a node has the epochs of other brokers
            leader: Any = replica.leader
            at = replica.partition
            written = self._tree.written(at.topic, at.partition, leader.rules.partition_epoch)
            epoch = self._tree.czxids.get(node_id)
            return epoch is not None and written is not None and self._excuses.came_after(node_id, epoch)
        broker = None if image is None else image.brokers.get(node_id)
        return broker is not None and self._excuses.came_after(node_id, broker.epoch)

    # Moments at which a fault hits most

    def _tell_leader(self, at: TopicPartition, node_id: int, replica: Partition) -> None:
        if (at, replica.leader_epoch) not in self._led:
            self._led[at, replica.leader_epoch] = self._world.loop.time()
            self._oracle.counts["leaders elected"] += 1
            machine = self._world.machines[node_id - 1]
            self._world.moment(machine)
            check_log_state(machine, replica)

    def leaders_changed(self, at: TopicPartition, within_s: float) -> bool:
        """Whether the leader changed so short a time ago, or a node still leads in an earlier epoch: it hasn't heard of
        its successor, and answers by what it knew."""
        newest = self._newest_epoch(at)
        since_s = self._led.get((at, newest), self._world.loop.time())
        replicas = [hosted(machine, at) for machine in self._world.machines]
        return self._world.loop.time() - since_s < within_s or any(
            replica is not None and replica.leader is not None and replica.leader_epoch < newest
            for replica in replicas
        )

    def _tell_moments(self) -> None:
        known = self.controller()
        if known is not None and known != self._controller:
            self._controller = known
            self._oracle.counts["controllers elected"] += 1
            self._world.moment(self._world.machines[known[1] - 1])

    def controller(self) -> tuple[int, int] | None:
        """Return (epoch, node id) of the newest controller that any node knows; with a ZooKeeper, that of the tree."""
        if self._tree is not None:
            return self._tree.controller
        known = [
            (metadata.controller.epoch, metadata.controller.node_id)
            for machine in self._world.machines
            if (metadata := metadata_of(machine)) is not None and metadata.controller is not None
        ]
        return max(known, default=None)

    def followers(self) -> list[Following]:
        """Return the unfenced followers of each watched partition that the controller itself doesn't lead."""
        controller, image = self.controller(), self.newest_image()
        if controller is None or image is None:
            return []
        machines, followings = self._world.machines, list[Following]()
        for at, partition in self._watched(image):
            if partition.leader in (-1, controller[1]):
                continue
            leader = machines[partition.leader - 1]
            led: Any = hosted(leader, at)
            if led is None or led.leader is None:
                continue
            proposed_ids = led.leader.rules.proposed or ()
            for node_id in partition.replicas:
                broker, follower = image.brokers.get(node_id), machines[node_id - 1]
                if node_id == partition.leader or broker is None or broker.fenced or not follower.is_serving:
                    continue
                out = Membership.ASKED if node_id in proposed_ids else Membership.OUT
                membership = Membership.IN if node_id in led.leader.isr else out
                followings.append(Following(leader, follower, machines[controller[1] - 1], membership))
        return followings

    def important(self) -> list[Machine]:
        """Return the controller's machine, and the leader's of each watched partition: coordinators, too."""
        nodes = [] if (controller := self.controller()) is None else [controller[1]]
        image = self.newest_image()
        watched = [] if image is None else [partition_image for _, partition_image in self._watched(image)]
        nodes += [partition_image.leader for partition_image in watched if partition_image.leader > 0]
        return [self._world.machines[node_id - 1] for node_id in nodes]

    def _watched(self, image: Image) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        for partition in self._oracle.partitions:
            if partition not in self._histories:
                self._histories[partition] = History(str(partition))
            topic = image.topics.get(partition.topic)
            if topic is not None:
                yield partition, topic.partitions[partition.partition]
        offsets = image.topics.get(OFFSETS_TOPIC)
        if offsets is not None and TopicPartition(OFFSETS_TOPIC, 0) not in self._oracle.partitions:
            for number, partition_image in offsets.partitions.items():
                yield TopicPartition(OFFSETS_TOPIC, number), partition_image


def _leaves_out_one(image: Image, tree: TreeOracle | None) -> bool:
    """Whether an image shows a broker as fenced, or a broker of a tree not at all."""
    brokers = image.brokers
    if tree is not None and len(brokers) < tree.brokers_seen:
        return True
    return any(broker.fenced for broker in brokers.values())


def replicas_of(machine: Machine) -> Iterator[Partition]:
    """Yield every replica that the machine's broker hosts."""
    broker: Any = None if machine.node is None or not machine.is_serving else machine.node.broker
    if broker is not None:
        yield from broker.partitions
