"""One producer's state in a partition, and the bytes of a ``.snapshot`` file (``ProducerStateManager``). Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec
from crc32c import crc32c

from blumfeld.wire.batches.record_batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
SEQUENCE_MASK = 0x7FFFFFFF
"""Mask for sequence numbers: 0 follows 2**31-1."""

_VERSION = 1
_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6
HEADER_BYTES = _HEADER.size
ENTRY_BYTES = _ENTRY.size


class CorruptSnapshot(ValueError):  # noqa: N818 - the noun says what it is
    """A producer snapshot that can't be read. Delete it, and try an older one or replay the log."""


class WrittenBatch(msgspec.Struct, frozen=True, gc=False):
    """A producer's written batch: the data that is needed to recognise a retry."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset − base offset."""
    timestamp_ms: int
    """Highest timestamp of the batch."""

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record; -1 if it has none."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class ProducerEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One producer's state in a partition. It is immutable, so keeping the old entry is enough to undo a change."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[WrittenBatch, ...] = ()
    """The last batches of this epoch, oldest first; at most five."""
    last_timestamp_ms: int = NO_TIMESTAMP
    """Highest timestamp of the last batch, or the marker's. :meth:`ProducerState.expire` looks at it, as Kafka
    does.
    """
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Coordinator epoch of the last transaction marker."""
    txn_first_offset: int = NO_OFFSET
    """Offset at which the open transaction began in this partition; -1 if none is open."""

    @property
    def last_sequence(self) -> int:
        """Last sequence number in this epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Last offset in this epoch, or -1."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Returns the bytes of ``<offset>.snapshot``, entries in the given order, each with its last batch only."""
    body = [_encode_entry(entry) for entry in entries]
    data = bytearray(_HEADER.pack(_VERSION, 0, len(body)))
    data += b"".join(body)
    struct.pack_into(">I", data, 2, crc32c(memoryview(data)[_CRC_END:]))
    return bytes(data)


def _encode_entry(entry: ProducerEntry) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_offset,
        entry.batches[-1].offset_delta if entry.batches else 0,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        entry.txn_first_offset,
    )


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Decode a snapshot, Kafka's or ours, in the file's order.

    :raises CorruptSnapshot: cut off, another version, a wrong CRC or a wrong number of entries
    """
    if len(data) < HEADER_BYTES:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"unknown version {version} of a producer snapshot: only 1 is allowed")
    computed = crc32c(memoryview(data)[_CRC_END:])
    if computed != crc:
        raise CorruptSnapshot(f"the CRC is {computed:08x}, the header says {crc:08x}")
    if len(data) != HEADER_BYTES + count * ENTRY_BYTES:
        raise CorruptSnapshot(f"{len(data)} bytes can't hold {count} entries")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[HEADER_BYTES:])]


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator_epoch, txn_first = fields
    batches = (WrittenBatch(last_sequence, last_offset, delta, timestamp_ms),) if last_offset >= 0 else ()
    return ProducerEntry(
        producer_id=producer_id,
        epoch=epoch,
        batches=batches,
        last_timestamp_ms=timestamp_ms,
        coordinator_epoch=coordinator_epoch,
        txn_first_offset=txn_first,
    )
