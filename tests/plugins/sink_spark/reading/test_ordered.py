"""Rows of many files in one order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark.reading.committed import Committed
from blumfeld_sink_spark.reading.ordered import ordered
from blumfeld_sink_spark.records import FileEntry
from blumfeld_sink_spark.stores.opening import open_store

KEYS = st.lists(st.lists(st.integers(-5, 40), max_size=12), min_size=1, max_size=5)


def files_of(root: Path, keys: list[list[int]]) -> tuple[Committed, list[FileEntry]]:
    """Writes a file for each list, with the file's and the row's index beside the key."""
    entries = []
    for place, values in enumerate(keys):
        path = f"trades/{place}.parquet"
        (root / path).parent.mkdir(exist_ok=True, parents=True)
        columns = {
            "key": pa.array(values, pa.int64()),
            "file": [place] * len(values),
            "row": range(len(values)),
        }
        pq.write_table(
            pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()}), root / path
        )
        entries.append(
            FileEntry(
                path=path, table="trades", date="", rows=len(values), bytes=0, sha256="", ts_min=0, ts_max=0
            )
        )
    return Committed(open_store(str(root)), []), entries


@settings(max_examples=25, deadline=None)
@given(keys=KEYS, batch_rows=st.integers(1, 5))
def test_every_row_once_by_key_then_by_file_then_by_row(
    tmp_path_factory: pytest.TempPathFactory, keys: list[list[int]], batch_rows: int
) -> None:
    """The order holds for any order, overlap and cut of the files."""
    archive, entries = files_of(tmp_path_factory.mktemp("files"), keys)
    chunks = list(ordered(archive, entries, ["key", "file", "row"], "key", batch_rows))
    found = [tuple(row.values()) for chunk in chunks for row in chunk.to_pylist()]
    wanted = sorted((key, file, row) for file, values in enumerate(keys) for row, key in enumerate(values))
    assert found == wanted


def test_files_are_opened_when_their_first_key_comes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, entries = files_of(tmp_path, [[10 * nth + row for row in range(10)] for nth in range(6)])
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
