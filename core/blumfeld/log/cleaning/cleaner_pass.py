"""One cleaner pass: select the records of the sealed segments that stay, and write the segments that hold them
(Kafka's ``Cleaner``).

Pure: bytes come from a :class:`Source` and go to a :class:`Target`; the driver opens both, throttles, and
swaps the files. A pass depends only on its arguments, so a pass that a crash cut off is simply started
again. Its two halves are :mod:`blumfeld.log.cleaning.map` and :mod:`blumfeld.log.cleaning.filter`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from blumfeld.log.cleaning.batches import chunks
from blumfeld.log.cleaning.filter import BatchFilter
from blumfeld.log.cleaning.map import map_dirty_part
from blumfeld.log.cleaning.pass_io import BatchSpan, Buffer, OpenTarget, Source, Target
from blumfeld.log.segments.index import RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES
from blumfeld.spi.compaction import CompactionRequest, CompactionResult

__all__ = ["BatchSpan", "Buffer", "OpenTarget", "Source", "Target", "clean", "group_sources"]


def clean(
    sources: Sequence[Source], request: CompactionRequest, open_target: OpenTarget
) -> Generator[int, None, CompactionResult]:
    """Run a cleaner pass. Yields the bytes read and written since the last yield, at least every MiB or so.

    Each target replaces one or more adjacent sources. Sources that the pass does not reach, because the map
    is full before them, get no target and stay.

    :param sources: the log's sealed segments from the first on, all below ``request.end_offset``
    :return: the result; ``seconds`` is 0, because a caller with a clock fills it in
    :raises OSError: a batch is cut off, damaged, or of an old format (the message names segment and
        position); or a source or target failed
    """
    sources = [source for source in sources if source.base_offset < request.end_offset]
    mapping = map_dirty_part(sources, request)
    bytes_read = 0
    while True:
        try:
            step = next(mapping)
        except StopIteration as stop:
            part = stop.value
            break
        bytes_read += step
        yield step
    cleaned_end_offset = part.latest_offset + 1
    reached = [source for source in sources if source.base_offset < cleaned_end_offset]
    filter_ = BatchFilter(part, request, reached[0].base_offset if reached else 0)
    bytes_after = 0
    groups = group_sources(reached, request)
    for group in groups:
        target = open_target(group[0].base_offset, [source.base_offset for source in group])
        for source in group:
            for chunk in chunks(source):
                buffers, spans = filter_.filter(chunk)
                if spans:
                    target.append(buffers, spans)
                written = sum(span.size_bytes for span in spans)
                bytes_read += chunk.size_bytes
                bytes_after += written
                yield chunk.size_bytes + written
        target.finish(filter_.transactions.take_still_aborted(), group[-1].modified_ms)
    return CompactionResult(
        cleaned_end_offset=cleaned_end_offset,
        bytes_read=bytes_read,
        bytes_before=sum(source.size_bytes for source in reached),
        bytes_after=bytes_after,
        records_read=filter_.records_read,
        records_kept=filter_.records_kept,
        keys=len(part.map),
        segments_before=len(reached),
        segments_after=len(groups),
        invalid_records=filter_.invalid_records,
    )


def group_sources(sources: Sequence[Source], request: CompactionRequest) -> list[list[Source]]:
    """Group adjacent sources that fit into one segment by their present sizes, index sizes and offsets.

    The number of index entries is bounded by the bytes: one in every ``index_interval_bytes``, and one more
    for each source.
    """
    entries_max = request.segment_index_bytes // TIME_ENTRY_BYTES - 1
    interval_bytes = max(request.index_interval_bytes, 1)
    groups: list[list[Source]] = []
    size_bytes = 0
    for source in sources:
        group = groups[-1] if groups else []
        total_bytes = size_bytes + source.size_bytes
        if (
            group
            and total_bytes <= request.segment_bytes
            and total_bytes // interval_bytes + len(group) + 1 <= entries_max
            and source.next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            group.append(source)
            size_bytes = total_bytes
        else:
            groups.append([source])
            size_bytes = source.size_bytes
    return groups
