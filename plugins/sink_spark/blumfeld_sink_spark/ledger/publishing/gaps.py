"""The ``gaps`` files of a batch. Their rows come from the tasks' summaries and the state of the previous commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.book.checksums import CHECKED
from blumfeld_sink_spark.files import file_names
from blumfeld_sink_spark.files.hashed_file import HashedFile
from blumfeld_sink_spark.files.parquet import open_writer, opened
from blumfeld_sink_spark.files.parts import split
from blumfeld_sink_spark.quality import stitch
from blumfeld_sink_spark.quality.books import COLUMNS
from blumfeld_sink_spark.records import CommitRecord, FileEntry, StagedFile, TaskResult
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import BOOK_DELTAS, GAPS, tables


@attrs.frozen
class Stitched:
    """The query's state after a batch, and the batch's rows of ``gaps``."""

    state: dict[str, Any]
    rows: int
    files: tuple[tuple[str, FileEntry], ...]
    """(staged path, entry with the final path), sorted by final path."""


def stage(
    store: ArchiveStore,
    draft: CommitRecord,
    state: dict[str, Any],
    results: Sequence[TaskResult],
    settings: ArchiveSettings,
) -> Stitched:
    """Stitches the summaries to the state and stages the rows of ``gaps``: one file for each date and symbol. Reads the
    staged books of venues with checksums.

    The same summaries and state give the same bytes.

    :raises StoreError: the store is full; the files staged so far are removed
    """
    state, rows = stitch(state, results, draft.lost, lambda result: _books(store, result))
    gap_files: list[tuple[str, FileEntry]] = []
    staged: list[str] = []
    try:
        for part in split(tables()[GAPS], rows) if rows.num_rows else ():
            staged.append(file_names.staged_path(uuid.uuid4().hex))
            path = file_names.gaps_path(part.date, part.symbol or "", draft.query, draft.batch)
            gap_files.append((staged[-1], _write(store, staged[-1], path, part, settings)))
    except OSError:
        for path in staged:
            store.delete(path)
        raise
    return Stitched(state, rows.num_rows, tuple(sorted(gap_files, key=lambda pair: pair[1].path)))


def _write(store: ArchiveStore, staged: str, path: str, part: Any, settings: ArchiveSettings) -> FileEntry:
    file = HashedFile(store.create(staged))
    try:
        rows: pa.Table = part.rows.combine_chunks()
        writer = open_writer(file, tables()[GAPS], settings.compression)
        writer.write_table(rows)
        writer.close()
    finally:
        file.close()
    bounds = pc.min_max(rows["ts_event"])
    return FileEntry(
        path=path,
        table=GAPS,
        date=part.date,
        symbol=part.symbol or "",
        rows=rows.num_rows,
        bytes=file.bytes,
        sha256=file.sha256,
        ts_min=bounds["min"].as_py(),
        ts_max=bounds["max"].as_py(),
    )


def _books(store: ArchiveStore, result: TaskResult) -> Iterator[tuple[str, str, Iterator[pa.Table]]]:
    """Yields venue, symbol and rows of each staged book whose venue sends checksums.

    A decoder of a venue has its name.
    """
    for venue in sorted(set(CHECKED) & result.decoders.keys()):
        staged: dict[str, list[StagedFile]] = {}
        for file in sorted(result.files, key=lambda file: file.date):
            if file.table == BOOK_DELTAS:
                staged.setdefault(file.symbol, []).append(file)
        for symbol in sorted(staged):
            yield venue, symbol, _messages(store, staged[symbol], venue)


def _messages(store: ArchiveStore, files: Sequence[StagedFile], venue: str) -> Iterator[pa.Table]:
    """Yields a venue's rows in whole messages, in the order of the offsets."""
    held = None
    for rows in _groups(store, files):
        rows = rows.filter(pc.equal(rows["venue"], venue))
        rows = rows if held is None else pa.concat_tables([held, rows])
        if not rows.num_rows:
            continue
        count = int(np.searchsorted(rows["k_offset"].to_numpy(), rows["k_offset"][-1].as_py()))
        held = rows.slice(count)  # the last message may go on in the next row group
        yield rows.slice(0, count)
    if held is not None:
        yield held


def _groups(store: ArchiveStore, files: Sequence[StagedFile]) -> Iterator[pa.Table]:
    """Yields the row groups of one file. Those of several, of both sides of a midnight, are one table by offset."""
    if len(files) > 1:
        parts = [rows for file in files for rows in _groups(store, [file])]
        yield pa.concat_tables(parts).sort_by("k_offset")
        return
    source = store.open_input(files[0].staged)
    try:
        file = opened(source)
        for group in range(file.metadata.num_row_groups):
            yield file.read_row_group(group, columns=list(COLUMNS))
    finally:
        source.close()
