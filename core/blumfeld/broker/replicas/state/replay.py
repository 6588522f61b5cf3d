"""Reads all written batches of a partition for a replay on the loop. Cold bytes are waited for, as a fetch does."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError, PartitionLog
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches

READ_BYTES = 256 * 1024
"""Bytes of one read, unless a batch is larger. Replaying them takes about ten slices of the loop's time."""


def written_batches(log: PartitionLog) -> Iterator[RecordBatch | Completion[LogRead]]:
    """Yields every batch that is written when the iteration begins, in order.

    When it yields a completion, the caller must wait for it before it asks for the next item. Compaction may run
    meanwhile. If the log is truncated meanwhile, the iteration ends there.

    :raises OSError: the log can't be read
    :raises BrokerError: CORRUPT_MESSAGE and the like: the bytes are no batch
    """
    offset, end_offset = log.log_start_offset, log.written_end_offset
    while offset < end_offset:
        try:
            read = log.read(offset, READ_BYTES, min(end_offset, log.written_end_offset), True)
            if isinstance(read, Completion):
                try:
                    yield read
                except GeneratorExit:  # the caller gave up: the read must still give back its file regions
                    read.when_done(_let_go)
                    raise
                read = read.result()
        except OffsetOutOfRangeError:
            if offset >= log.log_start_offset:
                return
            offset = log.log_start_offset
            continue
        if not read.parts:
            return
        before = offset
        for batch in split_batches(_bytes_of(read), allow_partial=True):
            yield batch
            offset = batch.next_offset
        if offset == before:
            raise OSError(errno.EIO, f"the batch with offset {offset} is cut off")


def _let_go(read: Completion[LogRead]) -> None:
    if read.error is None:
        release(read.result().parts)


def _bytes_of(read: LogRead) -> memoryview:
    try:
        return memoryview(join(read.parts))
    finally:
        release(read.parts)
