"""The ``gaps`` files of a batch. Their rows come from the tasks' summaries and the state of the previous commit."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from blumfeld_sink_spark.files import naming
from blumfeld_sink_spark.files.hashed_file import HashedFile
from blumfeld_sink_spark.files.parquet import open_writer
from blumfeld_sink_spark.files.splitting import split
from blumfeld_sink_spark.quality import stitch
from blumfeld_sink_spark.records import CommitRecord, FileEntry, TaskResult
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.tables import GAPS, tables


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
    """Stitches the summaries to the state and stages the rows of ``gaps``: one file for each date and symbol.

    The same summaries and state give the same bytes.

    :raises StoreError: the store is full; the files staged so far are removed
    """
    state, rows = stitch(state, results, draft.lost)
    found: list[tuple[str, FileEntry]] = []
    staged: list[str] = []
    try:
        for part in split(tables()[GAPS], rows) if rows.num_rows else ():
            staged.append(naming.staged_path(uuid.uuid4().hex))
            path = naming.gaps_path(part.date, part.symbol or "", draft.query, draft.batch)
            found.append((staged[-1], _write(store, staged[-1], path, part, settings)))
    except OSError:
        for path in staged:
            store.delete(path)
        raise
    return Stitched(state, rows.num_rows, tuple(sorted(found, key=lambda one: one[1].path)))


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
