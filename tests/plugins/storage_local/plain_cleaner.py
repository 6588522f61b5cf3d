"""A cleaner of a few lines, for tests of those who drive one: whole batches fall out, by their first record's key."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from blumfeld.log.cleaning.cleaner_pass import BatchSpan, OpenTarget, Source
from blumfeld.spi.compaction import CompactionRequest, CompactionResult
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import records


def clean(
    sources: Sequence[Source], request: CompactionRequest, open_target: OpenTarget
) -> Generator[int, None, CompactionResult]:
    """As :func:`blumfeld.log.cleaning.cleaner_pass.clean`, as far as these tests go."""
    found: list[tuple[Source, list[RecordBatch]]] = []
    newest: dict[bytes | None, int] = {}
    for source in sources:
        data = bytes(source.read(0, source.size_bytes))
        batches = [RecordBatch(memoryview(bytes(b.data))) for b in split_batches(memoryview(data))]
        found.append((source, batches))
        newest.update((_key(batch), batch.base_offset) for batch in batches)
        yield len(data)
    groups: list[list[tuple[Source, list[RecordBatch]]]] = []
    size = 0
    for source, batches in found:
        if not groups or size + source.size_bytes > request.segment_bytes:
            groups.append([])
            size = 0
        groups[-1].append((source, batches))
        size += source.size_bytes
    kept_bytes = 0
    for group in groups:
        target = open_target(group[0][0].base_offset, [source.base_offset for source, _ in group])
        for _, batches in group:
            kept = [batch for batch in batches if newest[_key(batch)] == batch.base_offset]
            spans = [BatchSpan(batch.last_offset, batch.size_bytes, batch.max_timestamp) for batch in kept]
            target.append([batch.data for batch in kept], spans)
            kept_bytes += sum(batch.size_bytes for batch in kept)
            yield sum(batch.size_bytes for batch in kept)
        target.finish((), group[-1][0].modified_ms)
    size_bytes = sum(source.size_bytes for source in sources)
    return CompactionResult(
        cleaned_end_offset=request.end_offset,
        bytes_read=size_bytes,
        bytes_before=size_bytes,
        bytes_after=kept_bytes,
        records_read=0,
        records_kept=0,
        keys=len(newest),
        segments_before=len(sources),
        segments_after=len(groups),
    )


def _key(batch: RecordBatch) -> bytes | None:
    return next(iter(records(batch))).key
