"""Batches of a segment under compaction, a chunk at a time: headers as plain tuples, CRC checked on demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, NoReturn, TypeAlias

from crc32c import crc32c

from blumfeld.log.cleaning.pass_io import Source
from blumfeld.log.cleaning.records import Keys, walk_keys
from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import (
    CODEC_MASK,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    RecordBatch,
)
from blumfeld.wire.batches.records import DECOMPRESSED_BYTES_MAX
from blumfeld.wire.compression.payload import decompress
from blumfeld.wire.errors import BrokerError

CHUNK_BYTES = 1 << 20
_unpack_header = HEADER.unpack_from

Header: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""Position of the batch in the chunk, then the header's fields in their order."""


class Chunk(NamedTuple):
    """Whole batches that were read together."""

    source: Source
    position: int
    """Position of ``data`` in the segment."""
    data: bytes
    """The bytes. They may continue after the last batch."""
    headers: list[Header]
    size_bytes: int
    """Size of the batches, in bytes."""

    def bad(self, at: int, why: object) -> NoReturn:
        """Report that the batch at ``data[at]`` can't be read.

        :raises OSError: always; the message names the segment and the position
        """
        raise OSError(f"segment {self.source.base_offset:020d}, byte {self.position + at}: {why}")

    def check(self, header: Header) -> None:
        """Check a batch's CRC.

        :raises OSError: the CRC is wrong
        """
        at, length, crc = header[0], header[2], header[5]
        computed = crc32c(memoryview(self.data)[at + CRC_FROM : at + length + LOG_OVERHEAD_BYTES])
        if computed != crc:
            self.bad(at, f"the batch's CRC is {computed:08x}, its header says {crc:08x}")

    def records(self, header: Header) -> tuple[bytes, int, int]:
        """Returns a buffer with the batch's uncompressed records, and their begin and end in it.

        :raises OSError: they can't be decompressed
        """
        at, length, attributes = header[0], header[2], header[6]
        end = at + length + LOG_OVERHEAD_BYTES
        if not attributes & CODEC_MASK or end == at + HEADER_BYTES:
            return self.data, at + HEADER_BYTES, end
        try:
            batch = RecordBatch(memoryview(self.data), at)
            plain = decompress(batch.codec, batch.records_data, DECOMPRESSED_BYTES_MAX)
        except BrokerError as error:
            self.bad(at, error.message or error)
        return plain, 0, len(plain)

    def keys(self, header: Header, plain: tuple[bytes, int, int]) -> Keys:
        """Returns a batch's keys.

        :param plain: the result of :meth:`records`
        :raises OSError: the records break the format
        """
        try:
            return walk_keys(*plain, header[13], header[13] == header[7] + 1)
        except BrokerError as error:
            self.bad(header[0], error.message)

    def control_type(self, header: Header) -> ControlType | None:
        """Returns the type of a control batch's record; ``None`` for an unknown type.

        :raises OSError: the record breaks the format
        """
        try:
            return control_type_of(self.keys(header, self.records(header)).keys[0])
        except BrokerError as error:
            self.bad(header[0], error.message)


def chunks(source: Source, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Yield all batches of a segment.

    :raises OSError: a batch is cut off or of another format, or its offsets are impossible
    """
    position, next_offset, wanted = 0, source.base_offset, chunk_bytes
    while position < source.size_bytes:
        size_bytes = min(wanted, source.size_bytes - position)
        data = source.read(position, size_bytes)
        headers: list[Header] = []
        chunk = Chunk(source, position, data, headers, 0)
        if len(data) < size_bytes:
            chunk.bad(len(data), f"the segment ends here, not after {source.size_bytes} bytes")
        at, wanted = 0, chunk_bytes
        while size_bytes - at >= HEADER_BYTES:
            header: Header = (at, *_unpack_header(data, at))
            base_offset, size, magic, delta = header[1], header[2] + LOG_OVERHEAD_BYTES, header[4], header[7]
            if magic != MAGIC or size < HEADER_BYTES:
                chunk.bad(at, f"a batch of format {magic} and {size} bytes")
            if at + size > size_bytes:
                wanted = max(chunk_bytes, size)
                break
            if base_offset < next_offset or delta < 0 or base_offset + delta >= source.next_offset:
                chunk.bad(at, f"offsets {base_offset}..{base_offset + delta} can't be here")
            next_offset = base_offset + delta + 1
            headers.append(header)
            at += size
        if headers:
            yield chunk._replace(size_bytes=at)
        elif max(wanted, size_bytes + 1) > source.size_bytes - position:
            chunk.bad(0, f"a batch is cut off: {size_bytes} bytes are there")
        position += at
