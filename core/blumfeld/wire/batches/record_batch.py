"""Record batch v2 (magic 2): a view of the 61-byte header over the received bytes.

The broker treats a batch as opaque (docs/design.md, rule 4). It reads this header, checks the CRC, and
patches offset and leader epoch in place, which the CRC does not cover. :mod:`blumfeld.wire.batches.records`
decodes records,
:mod:`blumfeld.wire.batches.builder` builds batches.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crc32c import crc32c

from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import CorruptBatch, InvalidRecord

MAGIC = 2
HEADER_BYTES = 61
"""Size of the header; a batch without records is exactly this long."""
RECORD_BYTES_MIN = 7
"""Size of the smallest record, before compression: one byte for each of its length, attributes, timestamp delta, offset
delta, key length, value length and number of headers."""
LOG_OVERHEAD_BYTES = 12
"""Size of ``baseOffset`` and ``batchLength``, which ``batchLength`` does not include."""
CRC_FROM = 21
"""The CRC-32C covers the batch from its attributes to its end."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER = struct.Struct(">qiibIhiqqqhii")
_place = struct.Struct(">qii").pack_into
_unpack_header = HEADER.unpack_from
_I64 = struct.Struct(">q")
_U32 = struct.Struct(">I")
_CODECS = tuple(Codec)
_MAGIC_AT = 16
_OLD_MAGICS = (0, 1)
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35


class TruncatedBatch(CorruptBatch):
    """The data end inside of the batch: normal at the end of a fetch answer or of a log after a crash."""


class UnsupportedMagic(InvalidRecord):
    """A message set of format 0 or 1 (see :mod:`blumfeld.wire.batches.legacy`). INVALID_RECORD on the wire."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"record format {magic} where only format {MAGIC} may stand")
        self.magic = magic


class RecordBatch:
    """The header of the batch that starts at ``data[offset]``, and the view of exactly its bytes.

    Nothing is copied: ``data`` keeps the buffer alive. Only length and magic have been checked.
    :meth:`verify_crc` checks the CRC; nothing here checks the records.

    :raises TruncatedBatch: ``data`` ends before the batch does
    :raises CorruptBatch: an impossible length, or a format that never existed
    :raises UnsupportedMagic: format 0 or 1
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "data",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "record_count",
        "size_bytes",
    )

    data: memoryview
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size_bytes: int
    """Size of the whole batch, header included: ``batch_length + 12``."""

    def __init__(self, data: memoryview, offset: int = 0) -> None:
        try:
            (
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            ) = _unpack_header(data, offset)
        except struct.error:
            raise _unreadable(data, offset) from None
        self.size_bytes = size = self.batch_length + 12
        # A partition's data mostly are one batch. To look twice costs less than a view that isn't needed.
        self.data = batch = data if not offset and len(data) == size else data[offset : offset + size]
        if self.magic != MAGIC or size < HEADER_BYTES or len(batch) != size:
            raise _unreadable(data, offset)

    @classmethod
    def peek(cls, header: memoryview) -> RecordBatch:
        """Returns the header alone, for a walk over a file that does not read the records.

        ``header`` has at least 61 bytes. The result's ``data`` is the header only, so its CRC and records
        can't be read.

        :raises CorruptBatch: as the constructor; fewer than 61 bytes are TruncatedBatch
        """
        batch = cls.__new__(cls)
        if len(header) < HEADER_BYTES:
            raise _unreadable(header, 0)
        fields = HEADER.unpack_from(header)
        for name, value in zip(_FIELDS, fields, strict=True):
            setattr(batch, name, value)
        batch.size_bytes = batch.batch_length + LOG_OVERHEAD_BYTES
        batch.data = header[:HEADER_BYTES]
        if batch.magic != MAGIC or batch.size_bytes < HEADER_BYTES:
            raise _unreadable(header, 0)
        return batch

    def copies(self, count: int) -> list[RecordBatch]:
        """Returns equal batches with bytes of their own, writable, each for half the cost of reading it anew.

        Their bytes lie in one piece of memory, which stays as long as any of them.
        """
        size = self.size_bytes
        memory = memoryview(bytearray(self.data) * count)
        header = tuple([getattr(self, name) for name in _FIELDS])
        made = []
        for at in range(0, size * count, size):
            batch = RecordBatch.__new__(RecordBatch)
            (
                batch.base_offset,
                batch.batch_length,
                batch.partition_leader_epoch,
                batch.magic,
                batch.crc,
                batch.attributes,
                batch.last_offset_delta,
                batch.base_timestamp,
                batch.max_timestamp,
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                batch.record_count,
            ) = header
            batch.size_bytes = size
            batch.data = memory[at : at + size]
            made.append(batch)
        return made

    def verify_crc(self) -> None:
        """Check the CRC-32C, without a copy.

        :raises CorruptBatch: it differs from the header's
        """
        computed = crc32c(self.data[CRC_FROM:])
        if computed != self.crc:
            raise CorruptBatch(f"the batch's CRC is {computed:08x}, its header says {self.crc:08x}")

    def assign_offset(self, base_offset: int, leader_epoch: int) -> None:
        """Patch offset and leader epoch into the bytes and into this view; the CRC stays valid.

        :raises TypeError: ``data`` is read-only
        """
        _place(self.data, 0, base_offset, self.batch_length, leader_epoch)
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch

    def set_log_append_time(self, timestamp_ms: int) -> None:
        """Set the broker's time for every record, in the bytes and in this view, and renew the CRC.

        :raises TypeError: ``data`` is read-only
        """
        set_log_append_time(self.data, timestamp_ms)
        self.attributes |= LOG_APPEND_TIME_BIT
        self.max_timestamp = timestamp_ms
        (self.crc,) = _U32.unpack_from(self.data, _CRC_AT)

    @property
    def records_data(self) -> memoryview:
        """The data after the header: the records, in the batch's codec."""
        return self.data[HEADER_BYTES:]

    @property
    def last_offset(self) -> int:
        """Offset of the last record, even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; -1 without a sequence. 0 follows 2**31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        """Compression of the records.

        :raises InvalidRecord: the three bits name no codec
        """
        bits = self.attributes & CODEC_MASK
        if bits >= len(_CODECS):
            raise InvalidRecord(f"no codec has the number {bits}")
        return _CODECS[bits]

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, or the marker that ends one."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record (see :mod:`blumfeld.wire.batches.control_records`)."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's time is ``max_timestamp``, whatever its delta says."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which this batch's tombstones or marker may be dropped; ``None`` before its first pass."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    def __repr__(self) -> str:
        return (
            f"RecordBatch(offsets={self.base_offset}..{self.last_offset}, records={self.record_count}, "
            f"epoch={self.partition_leader_epoch}, attributes={self.attributes:#x}, bytes={self.size_bytes})"
        )


_FIELDS = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def _unreadable(data: memoryview, offset: int) -> CorruptBatch | UnsupportedMagic:
    there = len(data) - offset
    if there > _MAGIC_AT and data[offset + _MAGIC_AT] != MAGIC:
        magic = data[offset + _MAGIC_AT]
        if magic in _OLD_MAGICS:
            return UnsupportedMagic(magic)
        return CorruptBatch(f"record format {magic - 256 if magic > 127 else magic} is none")
    if there < LOG_OVERHEAD_BYTES:
        return TruncatedBatch(f"{there} bytes are too few for a batch")
    length = int.from_bytes(data[offset + 8 : offset + 12], "big", signed=True)
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        return CorruptBatch(f"a batch length of {length}, where the header alone takes 49")
    return TruncatedBatch(f"{there} of the batch's {length + LOG_OVERHEAD_BYTES} bytes are there")


def split_batches(data: memoryview, *, allow_partial: bool = False) -> Iterator[RecordBatch]:
    """Yield the adjacent batches in ``data``.

    :param allow_partial: stop without an error before a batch that is cut off, as in fetched data
    :raises TruncatedBatch: the last batch is cut off, and ``allow_partial`` is false
    :raises CorruptBatch, UnsupportedMagic: as :class:`RecordBatch`
    """
    offset, end = 0, len(data)
    while offset < end:
        try:
            batch = RecordBatch(data, offset)
        except TruncatedBatch:
            if allow_partial:
                return
            raise
        offset += batch.size_bytes
        yield batch


def assign_offset(data: memoryview, base_offset: int, leader_epoch: int) -> None:
    """Patch offset and leader epoch into the batch at the start of ``data``; the CRC stays valid.

    :raises TypeError: ``data`` is read-only
    """
    _I64.pack_into(data, 0, base_offset)
    data[12:16] = leader_epoch.to_bytes(4, "big", signed=True)


def set_log_append_time(data: memoryview, timestamp_ms: int) -> None:
    """Set the LogAppendTime bit and the maximum timestamp of the one batch in ``data``, and renew its CRC.

    :param data: exactly the batch
    :raises TypeError: ``data`` is read-only
    """
    data[_ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME_BIT
    _I64.pack_into(data, _MAX_TIMESTAMP_AT, timestamp_ms)
    _U32.pack_into(data, _CRC_AT, crc32c(data[CRC_FROM:]))
