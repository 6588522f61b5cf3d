"""A partition's memory of one producer, and the bytes of a ``.snapshot`` file (``ProducerStateManager``). Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec
from crc32c import crc32c

from blumfeld.wire.batches.record_batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequence numbers go on with 0 past 2**31-1."""

_VERSION = 1
_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6
HEADER_BYTES = _HEADER.size
ENTRY_BYTES = _ENTRY.size


class CorruptSnapshot(ValueError):  # noqa: N818 - the noun says what it is
    """A producer snapshot that can't be read: delete it, try an older one, else replay the log."""


class WrittenBatch(msgspec.Struct, frozen=True, gc=False):
    """One batch of a producer, as far as a retry of it must be known."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset less base offset."""
    timestamp_ms: int
    """The batch's highest."""

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """The sequence number of its first record; -1 if it has none."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class ProducerEntry(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A producer as a partition knows it. Never changed, always replaced: so undoing is keeping the old one."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[WrittenBatch, ...] = ()
    """The last ones of this epoch, oldest first: five at most."""
    last_timestamp_ms: int = NO_TIMESTAMP
    """The highest of its last batch, or the marker's: what :meth:`ProducerState.expire` goes by, as Kafka does."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Of the last transaction marker."""
    txn_first_offset: int = NO_OFFSET
    """Where its open transaction began here; -1: none is open."""

    @property
    def last_sequence(self) -> int:
        """Of its last batch in this epoch, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of its last batch in this epoch, or -1."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of ``<offset>.snapshot``, entries in the order given; of each only the last batch."""
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
    """Read a snapshot, of ours or of Kafka's, in the file's order.

    :raises CorruptSnapshot: cut off, another version, a wrong CRC or a wrong number of entries
    """
    if len(data) < HEADER_BYTES:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version}, where only 1 is known")
    found = crc32c(memoryview(data)[_CRC_END:])
    if found != crc:
        raise CorruptSnapshot(f"the CRC is {found:08x}, the header says {crc:08x}")
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
