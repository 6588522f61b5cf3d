"""Partitions that may have lost records, by the faults of the machines of their replicas. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.storage import TopicPartition

RECOVERED = 0
"""``leader_recovery_state`` behind an election that lost nothing."""


class Ended(NamedTuple):
    """An unclean end of a node's process."""

    broker_epoch: int
    """The newest epoch that the node had then."""
    cache_lost: bool
    """Its machine lost its power, or its disk, at any such end."""


class _Replicas:
    """One partition, as far as the excuse needs it."""

    def __init__(self) -> None:
        self.having: tuple[int, ...] = ()
        """Replicas with every committed record: ISR and eligible leader replicas, when they were last not empty."""
        self.partition_epoch = -1
        self.leader = -1
        """The last leader."""
        self.unclean: dict[int, bool] = {}
        """Node whose process ended uncleanly since it came in → whether its cache was lost."""

    @property
    def may_have_lost(self) -> bool:
        """Whether the controller may come to elect a leader that lost its cache.

        It can't tell a killed process from a machine that lost its power. So a replica whose process ended uncleanly
        leaves ISR and ELR when it comes back, and once none is left the last leader is elected (KIP-966).
        """
        return self.everyone_ended and self.unclean.get(self.leader, False)

    @property
    def everyone_ended(self) -> bool:
        """Whether the process of each replica with all records ended uncleanly since it came in."""
        return bool(self.having) and all(node_id in self.unclean for node_id in self.having)


class Excuses:
    """The excuses of all partitions.

    :param min_insync: ``min.insync.replicas`` of each
    :param has_eligible: there are eligible leader replicas (KIP-966). Without, the last member of an ISR stays in it,
        also when its process ended uncleanly, and is elected
    """

    def __init__(self, min_insync: int = 2, *, has_eligible: bool = True) -> None:
        self._min_insync = min_insync
        self._has_eligible = has_eligible
        self.epochs: dict[int, int] = {}
        """Node → the newest broker epoch that was seen."""
        self._ended: dict[int, Ended] = {}
        self._partitions: dict[TopicPartition, _Replicas] = {}

    def registered(self, node_id: int, broker_epoch: int) -> None:
        """Take note of a broker epoch."""
        self.epochs[node_id] = max(broker_epoch, self.epochs.get(node_id, -1))

    def ended(self, node_id: int, *, cache_lost: bool) -> None:
        """A process ended uncleanly."""
        before = self._ended.get(node_id)
        lost = cache_lost or (before is not None and before.cache_lost)
        self._ended[node_id] = Ended(self.epochs.get(node_id, -1), lost)
        for replicas in self._partitions.values():
            replicas.unclean[node_id] = cache_lost or replicas.unclean.get(node_id, False)

    def still_down(self, node_id: int) -> None:
        """A process that ended uncleanly is not running yet. What is known of its epochs may still grow."""
        if node_id in self._ended:
            self._ended[node_id] = Ended(self.epochs.get(node_id, -1), self._ended[node_id].cache_lost)

    def came_after(self, node_id: int, broker_epoch: int) -> bool:
        """Whether this epoch is of a process after the last one that may have lost its cache."""
        ended = self._ended.get(node_id)
        return ended is None or not ended.cache_lost or broker_epoch > ended.broker_epoch

    def placed(
        self, partition: TopicPartition, image: PartitionImage, joined: Sequence[int] | None = None
    ) -> None:
        """Take note of a partition in the newest image.

        :param joined: members of the ISR whose present process was registered when the ISR was written; ``None``: all
        """
        replicas = self._partitions.setdefault(partition, _Replicas())
        replicas.having = self._having(replicas, image)
        replicas.partition_epoch = image.partition_epoch
        if image.leader >= 0:
            replicas.leader = image.leader
        elif image.last_known_elr:
            replicas.leader = image.last_known_elr[0]  # it may have led between two looks only
        for node_id in image.isr if joined is None else joined:
            ended = self._ended.get(node_id)
            if ended is not None and self.epochs.get(node_id, -1) > ended.broker_epoch:
                replicas.unclean.pop(node_id, None)  # it has come in again, so it has everything

    def _having(self, replicas: _Replicas, image: PartitionImage) -> tuple[int, ...]:
        """Return the replicas that have every committed record.

        The controller's list of eligible replicas isn't believed alone: it may have forgotten one. A replica that
        leaves an ISR which is too small from then on has everything: nothing is committed without the minimum. A change
        that no look has seen may have taken a replica out before, so then the controller's word counts.
        """
        if image.partition_epoch == replicas.partition_epoch:
            return replicas.having
        eligible_ids = (*image.isr, *image.eligible_leader_replicas)
        if not self._has_eligible:
            return eligible_ids or replicas.having
        each_seen = image.partition_epoch == replicas.partition_epoch + 1
        if each_seen and len(image.isr) < self._min_insync and image.leader_recovery_state == RECOVERED:
            stay = (
                replica_id
                for replica_id in replicas.having
                if replica_id in image.replicas and replica_id not in eligible_ids
            )
            return (*eligible_ids, *stay)
        return eligible_ids or replicas.having

    def _may_have_lost(self, replicas: _Replicas) -> bool:
        if self._has_eligible:
            return replicas.may_have_lost
        return replicas.everyone_ended and any(replicas.unclean[node_id] for node_id in replicas.having)

    def start_excused(self) -> list[TopicPartition]:
        """Return the partitions whose log may start earlier than an answer to DeleteRecords said. A log's start is
        written to its checkpoint once in a while, as in Kafka, so a kill of the whole ISR forgets it.
        """
        return [partition for partition, replicas in self._partitions.items() if replicas.everyone_ended]

    def excused(self) -> list[TopicPartition]:
        """Return the partitions that may lose records now."""
        return [
            partition for partition, replicas in self._partitions.items() if self._may_have_lost(replicas)
        ]
