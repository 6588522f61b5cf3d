"""The partitions of a large topic, in chunks that consecutive images share. Pure."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView

from blumfeld.spi.cluster import PartitionImage

CHUNK_BITS = 10
CHUNK_PARTITIONS = 1 << CHUNK_BITS
"""Partitions in one chunk. To copy a chunk takes about 5 µs, and so does the table of the chunks of 10⁶ partitions. A
topic of up to one chunk is a plain dict: nothing is faster to read.
"""


class PartitionTable(Mapping[int, PartitionImage]):
    """The partitions of one topic by number.

    A change replaces the table: :meth:`draft` gives a copy that shares all chunks, and the copy replaces the chunks
    that it changes. So one change costs one chunk, however large the topic is. A table is not written to once its step
    has ended.
    """

    __slots__ = ("_chunks", "_count", "_own")

    def __init__(self, partitions: Mapping[int, PartitionImage] = {}) -> None:
        self._chunks: dict[int, dict[int, PartitionImage]] = {}
        self._own: set[int] = set()
        """Chunks that this table has copied or made: no other table has them."""
        self._count = 0
        for number, partition in partitions.items():
            self[number] = partition

    def draft(self) -> PartitionTable:
        """Returns a table with the same content that may be written to."""
        other = PartitionTable()
        other._chunks = self._chunks.copy()
        other._count = self._count
        return other

    def chunks(self) -> list[Mapping[int, PartitionImage]]:
        """The chunks, each with up to ``CHUNK_PARTITIONS`` partitions."""
        return list(self._chunks.values())

    def __setitem__(self, number: int, partition: PartitionImage) -> None:
        """Put a partition. Only the step that made this draft may."""
        at = number >> CHUNK_BITS
        if at not in self._own:
            self._own.add(at)
            self._chunks[at] = self._chunks.get(at, {}).copy()
        chunk = self._chunks[at]
        self._count += number not in chunk
        chunk[number] = partition

    def __getitem__(self, number: int) -> PartitionImage:
        return self._chunks[number >> CHUNK_BITS][number]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for chunk in self._chunks.values():
            yield from chunk

    def values(self) -> ValuesView[PartitionImage]:
        """The partitions, in the order of their numbers' first appearance within each chunk."""
        return _Values(self)

    def items(self) -> ItemsView[int, PartitionImage]:
        """Numbers and partitions, in the order of :meth:`values`."""
        return _Items(self)


class _Values(ValuesView[PartitionImage]):
    """Looks up chunks, not partitions: a third of the time."""

    _mapping: PartitionTable

    def __iter__(self) -> Iterator[PartitionImage]:
        for chunk in self._mapping._chunks.values():
            yield from chunk.values()


class _Items(ItemsView[int, PartitionImage]):
    """Looks up chunks, not partitions."""

    _mapping: PartitionTable

    def __iter__(self) -> Iterator[tuple[int, PartitionImage]]:
        for chunk in self._mapping._chunks.values():
            yield from chunk.items()
