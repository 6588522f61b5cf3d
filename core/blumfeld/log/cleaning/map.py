"""First half of a cleaner pass: the offset map over the dirty part (Kafka's ``Cleaner``)."""

from __future__ import annotations

from array import array
from collections.abc import Generator, Sequence

from blumfeld.log.cleaning.batches import Chunk, Header, chunks
from blumfeld.log.cleaning.offset_map import OffsetMap
from blumfeld.log.cleaning.pass_io import Source
from blumfeld.log.cleaning.transactions import CleanedTransactions
from blumfeld.spi.compaction import CompactionRequest
from blumfeld.wire.batches.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT

MARKS_BYTES = 8 << 20
"""Size of a window of marks: one byte for each offset. Every window costs one walk over the map."""
SLOTS_PER_RECORD_MAX = 16
"""Number of map slots that can be walked in the time that reading, hashing and looking up one record's key takes."""


class DirtyPart:
    """Result of the first half: what the map knows about [``first_offset``, ``latest_offset``]."""

    __slots__ = (
        "_looked_at",
        "_marks",
        "_marks_from",
        "_marks_to",
        "first_offset",
        "latest_offset",
        "map",
        "records",
        "special",
    )

    def __init__(self, offset_map: OffsetMap, first_offset: int) -> None:
        self.map = offset_map
        self.first_offset = first_offset
        self.latest_offset = first_offset - 1
        """Last mapped offset. The pass ends here."""
        self.records = 0
        """Number of mapped records."""
        self.special = array("q")
        """Base offsets of batches with a tombstone or a record without a key. Their records must be examined
        one by one.
        """
        self._looked_at = 0
        self._marks = bytearray()
        self._marks_from = self._marks_to = 0

    @property
    def has_marks(self) -> bool:
        """Whether :meth:`marks` costs less than another look-up of each key. It doesn't if there are few
        records, or if their offsets are far apart, as in a compacted log without a checkpoint.
        """
        windows = (self.latest_offset - self.first_offset) // MARKS_BYTES + 1
        return windows * self.map.slots <= SLOTS_PER_RECORD_MAX * self.records

    def holds(self, base_offset: int, last_offset: int) -> bool:
        """Whether the whole batch lies in the mapped part."""
        return base_offset >= self.first_offset and last_offset <= self.latest_offset

    def is_special(self, base_offset: int) -> bool:
        """Whether the batch stands in ``special``. Calls must come in offset order."""
        at, special = self._looked_at, self.special
        while at < len(special) and special[at] < base_offset:
            at += 1
        self._looked_at = at
        return at < len(special) and special[at] == base_offset

    def marks(self, base_offset: int, last_offset: int) -> tuple[bytearray, int, int]:
        """Returns marks for a batch of the mapped part: one byte for each offset, 1 where the record is the
        last of its key.

        :return: the bytes, and the begin and end of the batch's part in them
        """
        if base_offset < self._marks_from or last_offset >= self._marks_to:
            self._marks_from = base_offset
            self._marks_to = min(max(base_offset + MARKS_BYTES, last_offset + 1), self.latest_offset + 1)
            self._marks = self.map.mark(self._marks_from, self._marks_to)
        return self._marks, base_offset - self._marks_from, last_offset + 1 - self._marks_from


def map_dirty_part(sources: Sequence[Source], request: CompactionRequest) -> Generator[int, None, DirtyPart]:
    """Map the keys of all records from ``first_dirty_offset`` on, until the map is full or the end is reached.

    Records of aborted transactions and control records are not mapped. Yields the bytes read after each
    chunk.

    :raises OSError: a batch can't be read
    """
    first_offset, end_offset = request.first_dirty_offset, request.end_offset
    part = DirtyPart(OffsetMap(request.map_bytes, request.map_load_factor), first_offset)
    transactions = CleanedTransactions(request.aborted, first_offset)
    for source in sources:
        if source.next_offset <= first_offset:
            continue
        for chunk in chunks(source):
            room = all(_map_batch(part, transactions, chunk, header) for header in chunk.headers)
            yield chunk.size_bytes
            if not room:
                return part
        part.latest_offset = source.next_offset - 1
    part.latest_offset = max(end_offset - 1, part.latest_offset)
    return part


def _map_batch(part: DirtyPart, transactions: CleanedTransactions, chunk: Chunk, header: Header) -> bool:
    """Map a batch's keys. Returns whether all of them fitted."""
    _, base_offset, _, _, _, _, attributes, delta, _, _, producer_id, _, _, count = header
    last_offset = base_offset + delta
    if last_offset < part.first_offset:
        return True
    chunk.check(header)
    if attributes & CONTROL_BIT:
        kind = chunk.control_type(header) if count else None
        transactions.frees_marker(producer_id, last_offset, kind, not count)
    elif count and not (
        attributes & TRANSACTIONAL_BIT and transactions.drops_data(producer_id, base_offset, last_offset)
    ):
        return _map_records(part, chunk, header)
    part.latest_offset = last_offset
    return True


def _map_records(part: DirtyPart, chunk: Chunk, header: Header) -> bool:
    base_offset, delta, count = header[1], header[7], header[13]
    walked = chunk.keys(header, chunk.records(header))
    keys: Sequence[bytes] = walked.keys
    offsets: Sequence[int] = range(base_offset, base_offset + count)
    if count != delta + 1:
        offsets = [base_offset + offset for offset in walked.deltas]
    if walked.without_key or walked.tombstones:
        part.special.append(base_offset)
    if walked.without_key or base_offset < part.first_offset:
        without = frozenset(walked.without_key)
        mapped = [i for i, offset in enumerate(offsets) if offset >= part.first_offset and i not in without]
        keys, offsets = [keys[i] for i in mapped], [offsets[i] for i in mapped]
    put = part.map.put_many(keys, offsets)
    part.records += put
    if put < len(keys):
        if put:
            part.latest_offset = offsets[put - 1]
        return False
    part.latest_offset = base_offset + delta
    return True
