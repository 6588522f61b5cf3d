"""Second half of a cleaner pass: each batch stays unchanged, is rewritten, or goes (Kafka's ``Cleaner``).

Where the mapped part is large, a record stays if its offset is marked. No key is then read or hashed again,
and a batch that stays or goes as a whole is not even decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from blumfeld.log.cleaning.batches import Chunk, Header
from blumfeld.log.cleaning.map import DirtyPart
from blumfeld.log.cleaning.pass_io import BatchSpan, Buffer
from blumfeld.log.cleaning.records import keep_records, shift_timestamps, walk_deltas
from blumfeld.log.cleaning.transactions import CleanedTransactions
from blumfeld.spi.compaction import CompactionRequest
from blumfeld.wire.batches.builder import build_empty_batch
from blumfeld.wire.batches.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    RecordBatch,
)
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import compress
from blumfeld.wire.errors import BrokerError

_U32 = struct.Struct(">I")
_CRC_AT = 17
Plain = tuple[bytes, int, int]


class BatchFilter:
    """Filters the batches of a log. They must come in offset order, starting with the log's first."""

    __slots__ = (
        "_has_marks",
        "_now_ms",
        "_part",
        "_request",
        "invalid_records",
        "records_kept",
        "records_read",
        "transactions",
    )

    def __init__(self, part: DirtyPart, request: CompactionRequest, from_offset: int) -> None:
        self._part = part
        self._has_marks = part.has_marks
        self._request = request
        self._now_ms = request.now_ms
        self.transactions = CleanedTransactions(request.aborted, from_offset)
        self.records_read = 0
        self.records_kept = 0
        self.invalid_records = 0

    def filter(self, chunk: Chunk) -> tuple[list[Buffer], list[BatchSpan]]:
        """Returns the data of a chunk that stays. Adjacent unchanged batches share one buffer.

        :raises OSError: a batch can't be read
        """
        view = memoryview(chunk.data)
        buffers: list[Buffer] = []
        spans: list[BatchSpan] = []
        run_from = run_to = 0
        for header in chunk.headers:
            at, end = header[0], header[0] + header[2] + LOG_OVERHEAD_BYTES
            left = self._batch(chunk, header)
            if left is None:
                if at != run_to and run_to > run_from:
                    buffers.append(view[run_from:run_to])
                if at != run_to:
                    run_from = at
                run_to = end
                spans.append(
                    BatchSpan(header[1] + header[7], end - at, header[9] if header[13] else NO_TIMESTAMP)
                )
                self.records_kept += header[13]
            elif left:
                if run_to > run_from:
                    buffers.append(view[run_from:run_to])
                run_from = run_to = end
                buffers.append(left)
                count = int.from_bytes(left[57:61], "big")
                max_ms = int.from_bytes(left[35:43], "big", signed=True) if count else NO_TIMESTAMP
                spans.append(BatchSpan(header[1] + header[7], len(left), max_ms))
                self.records_kept += count
        if run_to > run_from:
            buffers.append(view[run_from:run_to])
        return buffers, spans

    def _batch(self, chunk: Chunk, header: Header) -> bytes | bytearray | None:
        """Returns the rest of a batch: ``b""`` if nothing stays, ``None`` if the batch is unchanged."""
        attributes, count = header[6], header[13]
        base_offset, last_offset, producer_id = header[1], header[1] + header[7], header[10]
        part = self._part
        if last_offset < part.first_offset or base_offset > part.latest_offset:
            chunk.check(header)  # the first half of the pass checked the others
        self.records_read += count
        if attributes & CONTROL_BIT:
            return self._control(chunk, header)
        if attributes & TRANSACTIONAL_BIT and self.transactions.drops_data(
            producer_id, base_offset, last_offset
        ):
            return self._emptied(chunk, header)
        if not count:
            return self._emptied(chunk, header)
        if base_offset > part.latest_offset:
            return None
        if self._has_marks and part.holds(base_offset, last_offset) and not part.is_special(base_offset):
            return self._marked(chunk, header)
        return self._looked_up(chunk, header)

    def _marked(self, chunk: Chunk, header: Header) -> bytes | bytearray | None:
        """Filter a batch of the mapped part that has no tombstones, by marks."""
        base_offset, delta, count = header[1], header[7], header[13]
        marks, start, stop = self._part.marks(base_offset, base_offset + delta)
        kept = marks.count(1, start, stop)
        if kept == count:
            return None
        if not kept:
            return self._emptied(chunk, header)
        plain = chunk.records(header)
        keep: Sequence[int] = marks[start:stop]
        if count != delta + 1:
            try:
                keep = [keep[offset] for offset in walk_deltas(*plain, count)]
            except (BrokerError, IndexError) as error:
                chunk.bad(header[0], error)
        return self._rewritten(chunk, header, plain, keep, None)

    def _looked_up(self, chunk: Chunk, header: Header) -> bytes | bytearray | None:
        """Filter a batch by key look-ups: one before the mapped part, across one of its ends, or with tombstones."""
        base_offset, count = header[1], header[13]
        horizon_ms = header[8] if header[6] & DELETE_HORIZON_BIT else None
        plain = chunk.records(header)
        walked = chunk.keys(header, plain)
        newest = self._part.map.get_many(walked.keys)
        if not walked.without_key and not walked.tombstones and max(newest) <= base_offset:
            return None
        latest = self._part.latest_offset
        offsets = [base_offset + delta for delta in walked.deltas]
        keep = [offset >= last or offset > latest for offset, last in zip(offsets, newest, strict=True)]
        for index in walked.without_key:
            if offsets[index] <= latest:
                keep[index] = False
                self.invalid_records += 1
        if horizon_ms is not None and horizon_ms <= self._now_ms:
            for index in walked.tombstones:
                keep[index] = offsets[index] > latest
        stamp = horizon_ms is None and any(keep[index] for index in walked.tombstones)
        kept = sum(keep)
        if not kept:
            return self._emptied(chunk, header)
        if kept == count and not stamp:
            return None
        return self._rewritten(chunk, header, plain, keep, self._horizon_ms() if stamp else None)

    def _control(self, chunk: Chunk, header: Header) -> bytes | bytearray | None:
        """Filter a control batch: a marker goes when its transaction has no data left and its delete horizon
        is past.
        """
        count = header[13]
        kind = chunk.control_type(header) if count else None
        free = self.transactions.frees_marker(header[10], header[1] + header[7], kind, not count)
        if not count:
            return self._emptied(chunk, header)
        if not free:
            return None
        if not header[6] & DELETE_HORIZON_BIT:
            return self._rewritten(chunk, header, chunk.records(header), (1,) * count, self._horizon_ms())
        return self._emptied(chunk, header) if header[8] <= self._now_ms else None

    def _horizon_ms(self) -> int:
        return self._now_ms + self._request.delete_retention_ms

    def _emptied(self, chunk: Chunk, header: Header) -> bytes | bytearray | None:
        """Filter a batch without records. Its header stays if it ends the cleaned part, or is the last one of
        a known producer: no other batch holds these offsets and sequences.
        """
        _, base_offset, _, _, _, _, attributes, delta, _, _, producer_id, epoch, _, count = header
        last_offset = base_offset + delta
        stays = last_offset + 1 == self._request.end_offset
        known = self._request.producers.get(producer_id) if producer_id >= 0 else None
        if known is not None and not stays:
            if known.last_data_offset >= 0:
                stays = last_offset == known.last_data_offset
            else:
                stays = bool(attributes & CONTROL_BIT) and epoch == known.producer_epoch
        if not stays:
            return b""
        return build_empty_batch(RecordBatch(memoryview(chunk.data), header[0])) if count else None

    def _rewritten(
        self, chunk: Chunk, header: Header, plain: Plain, keep: Sequence[int], horizon_ms: int | None
    ) -> bytearray:
        """Returns the batch with the records that stay; offsets, producer, epoch and codec are unchanged.

        Records are copied byte for byte, so the base timestamp stays too, unless a delete horizon takes its
        place.
        """
        at, base_offset, _, leader_epoch, _, _, attributes, delta, base_ms, max_ms, *producer, count = header
        codec = Codec(attributes & CODEC_MASK)
        try:
            body, count, max_delta = keep_records(*plain, count, keep)
            if not attributes & LOG_APPEND_TIME_BIT:
                max_ms = base_ms + max_delta
            if horizon_ms is not None:
                body = shift_timestamps(body, count, base_ms - horizon_ms)
                base_ms = horizon_ms
                attributes |= DELETE_HORIZON_BIT
        except BrokerError as error:
            chunk.bad(at, error.message)
        payload = body if codec is Codec.NONE else compress(codec, body)
        out = bytearray(HEADER_BYTES)
        length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
        fields = (attributes, delta, base_ms, max_ms, *producer, count)
        HEADER.pack_into(out, 0, base_offset, length, leader_epoch, MAGIC, 0, *fields)
        out += payload
        _U32.pack_into(out, _CRC_AT, crc32c(memoryview(out)[CRC_FROM:]))
        return out
