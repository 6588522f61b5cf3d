"""Broker → partitions: which partitions a broker leads, in which ISRs it is, and where it is eligible to lead (Kafka's
``BrokersToIsrs`` and ``BrokersToElrs``). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from blumfeld.metadata.image.partition_table import CHUNK_BITS
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Steps

NO_LEADER = -1
ANY_BROKER = -1
"""Stands for any broker in a set that doesn't tell brokers apart."""
Chunk: TypeAlias = bytes
"""Topic id, and in the last four bytes the number of a chunk of its partitions.

Bytes, and no tuple: the garbage collector doesn't look into a dict of bytes and numbers. With tuples, a pass over a
copy of 100,000 topics held the loop for 70 ms.
"""
Masks: TypeAlias = dict[Chunk, int]
"""Chunk → one bit for each of its partitions. A set of partitions takes a hundredth of a set of their numbers."""
_NUMBER_MASK = (1 << CHUNK_BITS) - 1


class Sweep(msgspec.Struct, frozen=True):
    """A way through the partitions of these chunks, and how far it has come. New chunks are not on the way."""

    chunks: Sequence[Chunk]
    at: int = 0
    bit: int = 0


class PartitionIndex:
    """The index of one image, kept by replay."""

    __slots__ = ("_eligible", "_in_sync", "_led", "_not_preferred", "count")

    def __init__(self) -> None:
        self.count = 0
        """All partitions."""
        self._led: dict[int, Masks] = {}
        self._in_sync: dict[int, Masks] = {}
        self._eligible: dict[int, Masks] = {}
        self._not_preferred: dict[int, Masks] = {}

    def copied(self, large: int) -> Steps[PartitionIndex]:
        """The steps to an independent index with the same content. A set of ``large`` chunks or more ends a step. The
        index must not change between them.
        """
        other = PartitionIndex()
        other.count = self.count
        for masks_of, copies in zip(self._all(), other._all(), strict=True):
            for broker, masks in masks_of.items():
                copies[broker] = masks.copy()
                if len(masks) >= large:
                    yield None
        return other

    def tables(self) -> list[Masks]:
        """Returns the sets, for a caller that empties an index which nothing reads any more."""
        return [masks for masks_of in self._all() for masks in masks_of.values()]

    def _all(self) -> tuple[dict[int, Masks], ...]:
        return self._led, self._in_sync, self._eligible, self._not_preferred

    def led(self, broker_id: int) -> Mapping[Chunk, int]:
        """Returns the partitions that the broker leads. Broker -1 has those without a leader."""
        return self._led.get(broker_id, {})

    def in_sync(self, broker_id: int) -> Mapping[Chunk, int]:
        """Returns the partitions that have the broker in their ISR and would change without it.

        A partition without a leader whose only ISR member is the broker is left out: the last ISR stays, because it is
        the only record of which replicas have every committed record.
        """
        return self._in_sync.get(broker_id, {})

    def members(self) -> list[int]:
        """Returns the brokers that lead a partition, or would change one by leaving its ISR."""
        return sorted((self._led.keys() | self._in_sync.keys()) - {NO_LEADER})

    def eligible(self, broker_id: int) -> Mapping[Chunk, int]:
        """Returns the partitions that have the broker in their ELR (KIP-966), and those that :meth:`in_sync` leaves
        out: the broker is the only ISR member of a partition without a leader. No partition is in both sets.
        """
        return self._eligible.get(broker_id, {})

    def with_elr(self) -> Mapping[Chunk, int]:
        """Returns the partitions with an ELR or a last known leader."""
        return self._eligible.get(ANY_BROKER, {})

    def not_preferred(self) -> Mapping[Chunk, int]:
        """Returns the partitions that their first replica doesn't lead."""
        return self._not_preferred.get(ANY_BROKER, {})

    def put(self, topic_id: bytes, old: PartitionImage | None, new: PartitionImage) -> None:
        """Note that ``new`` took the place of ``old``."""
        if old is None:
            self.count += 1
        elif (
            old.leader == new.leader
            and old.replicas == new.replicas
            and old.isr == new.isr
            and old.eligible_leader_replicas == new.eligible_leader_replicas
            and old.last_known_elr == new.last_known_elr
        ):
            return
        key, bit = _chunk(topic_id, new.partition >> CHUNK_BITS), 1 << (new.partition & _NUMBER_MASK)
        if old is None:  # without the comparisons below: a start has millions of these
            _set(self._led, new.leader, key, bit)
            for masks_of, brokers in (
                (self._in_sync, _members(new)),
                (self._eligible, _eligible(new)),
                (self._not_preferred, _displaced(new)),
            ):
                for broker in brokers:
                    _set(masks_of, broker, key, bit)
            return
        if old.leader != new.leader:
            _clear(self._led, old.leader, key, bit)
            _set(self._led, new.leader, key, bit)
        _move(self._in_sync, key, bit, _members(old), _members(new))
        _move(self._eligible, key, bit, _eligible(old), _eligible(new))
        _move(self._not_preferred, key, bit, _displaced(old), _displaced(new))

    def remove_topic(self, topic_id: bytes, partitions: Mapping[int, PartitionImage]) -> None:
        """Forget all partitions of a topic."""
        self.count -= len(partitions)
        for key in {_chunk(topic_id, number >> CHUNK_BITS): None for number in partitions}:
            for masks_of in self._all():
                for broker in [b for b, masks in masks_of.items() if masks.pop(key, 0) and not masks]:
                    del masks_of[broker]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionIndex):
            return NotImplemented
        return (self.count, self._all()) == (other.count, other._all())

    __hash__ = None  # type: ignore[assignment]


def _chunk(topic_id: bytes, number: int) -> Chunk:
    return topic_id + number.to_bytes(4)


def _members(partition: PartitionImage) -> tuple[int, ...]:
    return () if partition.leader == NO_LEADER and len(partition.isr) < 2 else partition.isr


def _eligible(partition: PartitionImage) -> tuple[int, ...]:
    elr = partition.eligible_leader_replicas
    if not elr and not partition.last_known_elr:
        return partition.isr if partition.leader == NO_LEADER and len(partition.isr) == 1 else ()
    members = _members(partition)  # a foreign log may have a replica in both
    last = () if members else partition.isr
    return (ANY_BROKER, *last, *(broker for broker in elr if broker not in members and broker not in last))


def _displaced(partition: PartitionImage) -> tuple[int, ...]:
    return () if partition.leader in partition.replicas[:1] else (ANY_BROKER,)


def _move(
    masks_of: dict[int, Masks], key: Chunk, bit: int, before: Sequence[int], after: Sequence[int]
) -> None:
    for broker in before:
        if broker not in after:
            _clear(masks_of, broker, key, bit)
    for broker in after:
        if broker not in before:
            _set(masks_of, broker, key, bit)


def _set(masks_of: dict[int, Masks], broker: int, key: Chunk, bit: int) -> None:
    masks = masks_of.get(broker)
    if masks is None:
        masks = masks_of[broker] = {}
    masks[key] = masks.get(key, 0) | bit


def _clear(masks_of: dict[int, Masks], broker: int, key: Chunk, bit: int) -> None:
    masks = masks_of.get(broker, {})
    left = masks.get(key, 0) & ~bit
    if left:
        masks[key] = left
        return
    masks.pop(key, None)  # an ISR in a foreign log may name a broker twice
    if not masks and broker in masks_of:
        del masks_of[broker]


def all_of(masks: Mapping[Chunk, int]) -> Sweep:
    """Returns the way through all partitions of a set."""
    return Sweep(tuple(masks))


def along(masks: Mapping[Chunk, int], sweep: Sweep) -> Iterator[tuple[bytes, int, Sweep]]:
    """Yield topic id and number of each partition that is still ahead of a sweep, and the sweep behind it.

    :param masks: the set as it is now
    """
    bit = sweep.bit
    for at in range(sweep.at, len(sweep.chunks)):
        key = sweep.chunks[at]
        topic_id, chunk = key[:-4], int.from_bytes(key[-4:])
        mask = masks.get(key, 0) >> bit << bit
        while mask:
            lowest = mask & -mask
            mask ^= lowest
            number = lowest.bit_length() - 1
            yield topic_id, chunk << CHUNK_BITS | number, Sweep(sweep.chunks, at, number + 1)
        bit = 0
