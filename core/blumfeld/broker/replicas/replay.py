"""All that is written in a partition, for who replays it on the loop: bytes that are not in memory are waited for, as a
fetch waits for them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead, PartitionLog
from blumfeld.wire.record_batch import RecordBatch, split_batches

READ_BYTES = 256 * 1024
"""Read at once, unless a batch is larger: some ten slices of a load."""


def written_batches(log: PartitionLog) -> Iterator[RecordBatch | Completion[LogRead]]:
    """Every batch that is written when it begins, in order. Where a completion stands, the next is to be asked for when
    it is done. Compaction may go on meanwhile; if the log is cut, it ends there.

    :raises OSError: it can't be read
    :raises BrokerError: CORRUPT_MESSAGE and the like: what stands there is no batch
    """
    offset, end_offset = log.log_start_offset, log.written_end_offset
    while offset < end_offset:
        try:
            found = log.read(offset, READ_BYTES, min(end_offset, log.written_end_offset), True)
            if isinstance(found, Completion):
                try:
                    yield found
                except GeneratorExit:  # nobody waits for it any more
                    found.when_done(_let_go)
                    raise
                found = found.result()
        except LookupError:
            if offset >= log.log_start_offset:
                return
            offset = log.log_start_offset
            continue
        if not found.parts:
            return
        before = offset
        for batch in split_batches(_bytes_of(found), allow_partial=True):
            yield batch
            offset = batch.next_offset
        if offset == before:
            raise OSError(errno.EIO, f"the batch with offset {offset} is cut off")


def _let_go(found: Completion[LogRead]) -> None:
    if found.error is None:
        release(found.result().parts)


def _bytes_of(read: LogRead) -> memoryview:
    try:
        return memoryview(join(read.parts))
    finally:
        release(read.parts)
