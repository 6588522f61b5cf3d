"""Rows of many files in one order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.reading.committed_files import Committed
from blumfeld_sink_spark.reading.ordered_rows import ordered
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.stores.roots import open_store
from tests.everyday import examples

ROW = st.tuples(st.integers(-2, 9), st.integers(0, 1), st.integers(0, 5))
"""Key, partition and offset."""
FILES = st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=5)


def files_of(root: Path, files: list[list[tuple[int, int, int]]]) -> tuple[Committed, list[FileEntry]]:
    """Writes a file for each list, with the file's and the row's index beside the key and the lineage."""
    entries = []
    for place, rows in enumerate(files):
        path = f"trades/{place}.parquet"
        (root / path).parent.mkdir(exist_ok=True, parents=True)
        names = ("key", "k_partition", "k_offset", "file", "row")
        columns = [(*row, place, nth) for nth, row in enumerate(rows)]
        table = {name: pa.array([row[at] for row in columns], pa.int64()) for at, name in enumerate(names)}
        pq.write_table(pa.table(table), root / path)
        entries.append(
            FileEntry(
                path=path, table="trades", date="", rows=len(rows), bytes=0, sha256="", ts_min=0, ts_max=0
            )
        )
    return Committed(open_store(str(root)), []), entries


@settings(max_examples=examples(40), deadline=None)
@given(files=FILES, batch_rows=st.integers(1, 5))
def test_every_row_once_by_key_then_in_the_logs_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[int, int, int]]], batch_rows: int
) -> None:
    archive, entries = files_of(tmp_path_factory.mktemp("files"), files)
    chunks = list(ordered(archive, entries, ["key", "file", "row"], "key", batch_rows))
    merged_rows = [tuple(row.values()) for chunk in chunks for row in chunk.to_pylist()]
    wanted = sorted((*row, file, nth) for file, rows in enumerate(files) for nth, row in enumerate(rows))
    assert merged_rows == [(key, file, nth) for key, _, _, file, nth in wanted]


def test_files_are_opened_when_their_first_key_comes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, entries = files_of(
        tmp_path, [[(10 * nth + row, 0, row) for row in range(10)] for nth in range(6)]
    )
    held: list[str] = []
    most = 0
    original = Committed.open_file

    def opened(self: Committed, entry: FileEntry) -> object:
        source = original(self, entry)
        held.append(entry.path)
        return source

    monkeypatch.setattr(Committed, "open_file", opened)
    for nth, _ in enumerate(ordered(archive, entries, ["key"], "key", 5)):
        most = max(most, len(held) - 6 - nth)  # six looks at footers come first
    assert len(held) == 12
    assert most <= 2
