"""A task's files: complete, sorted into folders, and with the same bytes however the rows were cut."""

from __future__ import annotations

import errno
import io
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.files import output as output_module
from blumfeld_sink_spark.files import parquet as parquet_module
from blumfeld_sink_spark.files import writer as writer_module
from blumfeld_sink_spark.files.writer import TaskWriter
from blumfeld_sink_spark.records import StagedFile
from blumfeld_sink_spark.tables import tables
from tests.everyday import examples
from tests.plugins.sink_spark.files import tools
from tests.plugins.sink_spark.results import changed

pytestmark = pytest.mark.archive

SYMBOLS = ("ETHUSDT", "BTCUSDT", "1000PEPE")


class FullFile(io.BufferedWriter):
    """A file on a disk that has room for 100 kB."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file.detach())  # type: ignore[attr-defined]

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > 100_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def write(root: Path, batches: list[dict[str, pa.Table]], **options: int) -> tuple[StagedFile, ...]:
    memory = options.pop("memory_bytes", 1 << 30)
    task = TaskWriter(tools.FolderStore(root), tools.settings(**options), "ticks", 4, memory_bytes=memory)
    for batch in batches:
        task.write(batch)
    return task.close()


def read(root: Path, file: StagedFile) -> pa.Table:
    """Reads a file without regard to its name: staged files end in ``.inprogress``."""
    return pq.ParquetFile(root / file.staged).read()


def test_rows_come_back_as_they_went_in(tmp_path: Path) -> None:
    rows = tools.trades(1000)
    (file,) = write(tmp_path, [{"trades": rows}])
    assert read(tmp_path, file).equals(rows.replace_schema_metadata(None))
    assert (file.table, file.date, file.symbol, file.topic, file.partition) == (
        "trades",
        "2024-08-09",
        "BTCUSDT",
        "ticks",
        4,
    )
    assert (file.rows, file.ts_min, file.ts_max) == (1000, tools.MIDNIGHT, tools.MIDNIGHT + 999 * 10**9)


def test_raw_rows_with_headers_and_tombstones_come_back(tmp_path: Path) -> None:
    rows = tools.raw(500)
    (file,) = write(tmp_path, [{"raw": rows}])
    assert read(tmp_path, file).equals(rows)
    assert file.symbol == ""


def test_each_date_and_symbol_has_its_file_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = tools.trades(3000, symbols=SYMBOLS, start=tools.MIDNIGHT - 1500 * 10**9)
    files = write(tmp_path, [{"trades": rows}])
    assert [(file.date, file.symbol) for file in files] == [
        (date, symbol) for date in ("2024-08-08", "2024-08-09") for symbol in sorted(SYMBOLS)
    ]
    for file in files:
        table = read(tmp_path, file)
        assert set(table["symbol"].to_pylist()) == {file.symbol}
        offsets = table["k_offset"].to_pylist()
        assert offsets == sorted(offsets)
        before = max(table["ts_event"].to_pylist()) < tools.MIDNIGHT
        assert before == (file.date == "2024-08-08")
    assert sum(file.rows for file in files) == 3000


def test_a_time_before_the_epoch_has_its_date(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [{"trades": tools.trades(1, start=-1)}])
    assert file.date == "1969-12-31"


@example_settings(max_examples=examples(25), deadline=None)
@given(cuts=st.lists(st.integers(0, 2000), max_size=12), memory=st.sampled_from([0, 40_000, 1 << 30]))
def test_bytes_do_not_depend_on_the_batches_nor_on_what_was_spilled(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], memory: int
) -> None:
    """Row groups have 128 rows, so that cuts fall everywhere in a group."""
    rows = tools.trades(2000, symbols=SYMBOLS, start=tools.MIDNIGHT - 700 * 10**9)
    whole = write(tmp_path_factory.mktemp("whole"), [{"trades": rows}], row_group_rows=128)
    edges = [0, *sorted(cuts), 2000]
    batches = [{"trades": rows.slice(start, end - start)} for start, end in pairwise(edges)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "SPLIT_ROWS", 100)
        cut = write(tmp_path_factory.mktemp("cut"), batches, row_group_rows=128, memory_bytes=memory)
    assert [file.sha256 for file in cut] == [file.sha256 for file in whole]
    assert [file.ts_max for file in cut] == [file.ts_max for file in whole]


@pytest.mark.parametrize("batch_rows", [1, 37, 500])
def test_large_messages_make_small_row_groups_whatever_the_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int
) -> None:
    for module in (parquet_module, output_module):
        monkeypatch.setattr(module, "WIDE_ROW_GROUP_BYTES", 2000)
    monkeypatch.setattr(writer_module, "SPLIT_ROWS", 1)
    rows = tools.raw(100, value_bytes=190)
    (file,) = write(tmp_path, [{"raw": rows.slice(start, batch_rows)} for start in range(0, 100, batch_rows)])
    metadata = pq.ParquetFile(tmp_path / file.staged).metadata
    groups = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
    assert groups == [12, 12, 12, 12, 12, 12, 12, 12, 4]
    assert read(tmp_path, file).equals(rows)


def test_many_symbols_are_held_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "SPLIT_ROWS", 1000)
    symbols = tuple(f"S{number:03d}" for number in range(100))
    store = tools.FolderStore(tmp_path)
    task = TaskWriter(store, tools.settings(), "ticks", 0, memory_bytes=100_000)
    rows = tools.trades(6000, symbols=symbols)
    for start in range(0, 6000, 500):
        task.write({"trades": rows.slice(start, 500)})
        assert sum(output.buffered_bytes for output in task._outputs.values()) <= 100_000
        assert not list(tmp_path.rglob("*.inprogress"))
    files = task.close()
    assert [file.symbol for file in files] == list(symbols)
    assert sum(file.rows for file in files) == 6000
    assert sorted(
        offset for file in files for offset in read(tmp_path, file)["k_offset"].to_pylist()
    ) == list(range(6000))


def test_empty_tables_write_nothing(tmp_path: Path) -> None:
    assert write(tmp_path, [{"trades": tools.trades(0), "raw": tools.raw(0)}, {}]) == ()
    assert not list(tmp_path.iterdir())


def test_an_aborted_task_leaves_nothing(tmp_path: Path) -> None:
    task = TaskWriter(tools.FolderStore(tmp_path), tools.settings(row_group_rows=100), "ticks", 0)
    task.write({"trades": tools.trades(70_000)})
    assert list(tmp_path.rglob("*.inprogress"))
    task.abort()
    assert not list(tmp_path.rglob("*.inprogress"))


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    class FullStore(tools.FolderStore):
        def create(self, path: str) -> BinaryIO:
            return FullFile(super().create(path))

    task = TaskWriter(FullStore(tmp_path), tools.settings(row_group_rows=100), "ticks", 0)
    task.write({"raw": tools.raw(1000, value_bytes=1000)})
    with pytest.raises(OSError, match="No space left"):
        task.close()
    task.abort()
    assert not list(tmp_path.rglob("*.inprogress"))


def test_files_hold_nothing_but_data(tmp_path: Path) -> None:
    """Files contain neither an Arrow schema nor the topic, so the same rows give the same bytes everywhere."""
    (file,) = write(tmp_path, [{"trades": tools.trades(10)}])
    parquet_file = pq.ParquetFile(tmp_path / file.staged)
    assert parquet_file.metadata.metadata is None
    assert b"ticks" not in (tmp_path / file.staged).read_bytes()


def test_columns_are_found_by_their_statistics(tmp_path: Path) -> None:
    (file,) = write(tmp_path, [{"trades": tools.trades(1000)}], row_group_rows=500)
    parquet_file = pq.ParquetFile(tmp_path / file.staged).metadata
    column = parquet_file.row_group(1).column(0)
    assert column.path_in_schema == "ts_event"
    assert column.statistics.min == tools.MIDNIGHT + 500 * 10**9
    assert column.has_offset_index
    assert column.has_column_index


def test_rows_of_another_schema_are_refused(tmp_path: Path) -> None:
    task = TaskWriter(tools.FolderStore(tmp_path), tools.settings(), "ticks", 0)
    with pytest.raises(ArchiveError, match="no table ticks; the archive has agg_trades, bars, bbo"):
        task.write({"ticks": tools.trades(1)})
    with pytest.raises(ArchiveError, match="rows for trades have"):
        task.write({"trades": tools.trades(1).drop(["flags"])})
    bare = pa.Table.from_arrays(
        [pa.nulls(1, field.type) for field in tables()["trades"].schema],
        names=tables()["trades"].schema.names,
    )
    with pytest.raises(ArchiveError, match="nulls in ts_event"):
        task.write({"trades": bare})
    task.abort()


def test_prices_of_other_precision_fit_their_settings(tmp_path: Path) -> None:
    number = pa.decimal128(18, 8)
    rows = tools.trades(10)
    rows = changed(rows, **{name: rows[name].cast(number).combine_chunks() for name in ("price", "size")})
    task = TaskWriter(tools.FolderStore(tmp_path), tools.settings(decimal="18,8"), "ticks", 0)
    task.write({"trades": rows})
    (file,) = task.close()
    assert read(tmp_path, file)["price"].type == number
