"""Compaction: every reader sees the same rows in fewer files at every moment, wherever it is cut short."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.compaction import compaction as compaction_module
from blumfeld_sink_spark.compaction import merge as merging_module
from blumfeld_sink_spark.compaction import swap as swap_module
from blumfeld_sink_spark.compaction.compaction import Compaction, Done
from blumfeld_sink_spark.compaction.exchange import can_exchange, exchange
from blumfeld_sink_spark.compaction.groups import LARGE, OPEN, Files
from blumfeld_sink_spark.compaction.merge import merge
from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.ledger.checking.verify import verify
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.upkeep.vacuum import vacuum
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import COMPACTION
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.stores.local import LocalStore
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.compaction.archives import add_batch, archive
from tests.plugins.sink_spark.files import tools
from tests.plugins.sink_spark.results import changed, commit

pytestmark = pytest.mark.archive

DAY = "2024-08-09"
ROWS = 600


class CrashError(BaseException):
    """Stands for the death of the process: nothing happens after it, not even tidying up."""


def compaction(store: ArchiveStore, **options: Any) -> Compaction:
    return Compaction(store, Ledger(store), now_ms=lambda: 7, **options)


def compact(store: ArchiveStore, before: str = "2024-08-10", **options: Any) -> list[Done]:
    compactor = compaction(store, **options)
    compactor.recover()
    return list(compactor.run(compactor.groups(before=before)))


def by_glob(root: Path, table: str) -> list[dict[str, Any]]:
    """Returns the rows that a reader of the files sees, sorted by lineage."""
    rows = [
        row
        for path in sorted(root.glob(f"{table}/**/*.parquet"))
        for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["k_partition"], row["k_offset"], repr(row)))


def live_paths(store: ArchiveStore) -> list[str]:
    ledger = Ledger(store).load()
    return [
        entry.path
        for entry in Files.of(record for query in ledger.queries() for record in ledger.records(query)).live
    ]


def data_files(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root))
        for path in root.rglob("*.parquet")
        if not str(path.relative_to(root)).startswith("_")
    )


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns syncs off. A dead process loses no unsynced bytes; only a power cut does."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "archive"))


@pytest.fixture(params=["folders", "files"])
def way(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two ways to replace files, on the same file system."""
    if request.param == "folders" and not can_exchange(tmp_path):
        pytest.skip("this file system can't exchange folders")
    if request.param == "files":
        monkeypatch.setattr(compaction_module, "can_exchange", lambda folder: False)
    return str(request.param)


def test_small_files_become_one_sorted_file(store: LocalStore, way: str) -> None:
    archive(store)
    root = Path(store.root)
    before = {table: by_glob(root, table) for table in ("trades", "raw")}
    assert len(before["trades"]) == len(before["raw"]) == ROWS
    done = compact(store)
    assert [(outcome.group.table, outcome.group.symbol, outcome.files) for outcome in done] == [
        ("raw", "", 1),
        ("trades", "BTCUSDT", 1),
        ("trades", "ETH/USDT", 1),
    ]
    assert {table: by_glob(root, table) for table in before} == before
    assert data_files(root) == [
        f"raw/date={DAY}/ticks+all+00000000000000000000-00000000000000000300.c1.parquet",
        *(
            f"trades/date={DAY}/{symbol}/ticks+all+00000000000000000000-00000000000000000300.c1.parquet"
            for symbol in ("BTCUSDT", "ETH%2FUSDT")
        ),
    ]
    for path in data_files(root):
        rows = pq.ParquetFile(root / path).read().to_pylist()
        time = "ts_recv" if path.startswith("raw") else "ts_event"
        keys = [(row[time], row["k_partition"], row["k_offset"]) for row in rows]
        assert keys == sorted(keys)  # within a time the log's order, never that of the ids
    assert live_paths(store) == data_files(root)
    assert not list((root / "_compact").rglob("*"))
    assert compact(store) == []


def test_late_rows_join_what_was_compacted(store: LocalStore, way: str) -> None:
    archive(store)
    compact(store)
    add_batch(store, "ticks", 3)
    rows = by_glob(Path(store.root), "trades")
    done = compact(store)
    assert {outcome.group.generation for outcome in done} == {2}
    assert by_glob(Path(store.root), "trades") == rows
    assert len(data_files(Path(store.root))) == 3


@pytest.mark.parametrize("sort_rows", [merging_module.SORT_ROWS, 1, 70, 150])
def test_the_same_files_are_merged_to_the_same_bytes_however_many_rows_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sort_rows: int
) -> None:
    """The merge emits a row as soon as no row of the same or an earlier time is still unread."""
    hashes = []
    for name in ("one", "other"):
        store = LocalStore(str(tmp_path / name))
        archive(store)
        compact(store)
        hashes.append(
            [entry.sha256 for record in Ledger(store).load().records(COMPACTION) for entry in record.files]
        )
        monkeypatch.setattr(merging_module, "SORT_ROWS", sort_rows)
    assert hashes[0] == hashes[1]


def test_topics_stay_apart(store: LocalStore, way: str) -> None:
    archive(store, topics=("ticks", "more"))
    rows = by_glob(Path(store.root), "trades")
    done = compact(store)
    assert [outcome.group.topic for outcome in done] == ["more", "ticks"] + 2 * ["more", "ticks"]
    assert by_glob(Path(store.root), "trades") == rows
    assert live_paths(store) == data_files(Path(store.root))


def test_open_dates_and_large_files_are_left_alone(store: LocalStore) -> None:
    archive(store)
    assert compaction(store).groups(before=DAY) == []
    assert compaction(store).left_alone(before=DAY) == {OPEN: 18}
    assert compaction(store, target_bytes=1000).groups(before="2024-08-10") == []
    assert compaction(store, target_bytes=1000).left_alone(before="2024-08-10", table="raw") == {LARGE: 6}
    assert [group.table for group in compaction(store).groups(before="2024-08-10", table="raw")] == ["raw"]


def test_a_large_group_becomes_several_files(store: LocalStore, way: str) -> None:
    archive(store)
    rows = by_glob(Path(store.root), "raw")
    size = sum(entry.stat().st_size for entry in Path(store.root, "raw").rglob("*.parquet"))
    done = compact(store, target_bytes=size // 2)
    assert [outcome.files for outcome in done if outcome.group.table == "raw"] == [2]
    assert by_glob(Path(store.root), "raw") == rows
    parts = [path for path in data_files(Path(store.root)) if path.startswith("raw")]
    assert [path[-15:] for path in parts] == [".c1-001.parquet", ".c1-002.parquet"]
    first, second = (pq.ParquetFile(Path(store.root, path)).read()["ts_recv"].to_pylist() for path in parts)
    assert first[-1] <= second[0]


def test_rows_of_one_message_stay_in_their_order(store: LocalStore) -> None:
    """All levels of a message have the same time and ids. Only their order tells them apart."""
    rows = tools.book_deltas(300, levels=100)
    settings = tools.settings(row_group_rows=70)
    commit(store, settings, 0, (OffsetRange("ticks", 0, 0, 2), {"book_deltas": rows.slice(0, 200)}))
    commit(store, settings, 1, (OffsetRange("ticks", 0, 2, 3), {"book_deltas": rows.slice(200)}))
    compact(store)
    (path,) = data_files(Path(store.root))
    assert pq.ParquetFile(Path(store.root, path)).read().to_pylist() == rows.to_pylist()


def test_a_damaged_file_is_told_and_nothing_is_changed(store: LocalStore) -> None:
    archive(store)
    damaged = Path(store.root, data_files(Path(store.root))[0])
    data = bytearray(damaged.read_bytes())
    data[10] ^= 1
    damaged.write_bytes(bytes(data))
    files = data_files(Path(store.root))
    with pytest.raises(ArchiveError, match="isn't what its commit record says"):
        compact(store)
    assert data_files(Path(store.root)) == files
    assert not list(Path(store.root, "_compact").rglob("*"))


def test_a_merge_that_loses_a_row_is_caught(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(store)
    files = data_files(Path(store.root))

    def lossy(inputs: Any, create: Any, path_of: Any, **options: Any) -> Any:
        first, *others = inputs.pieces
        inputs.rows(first)
        inputs.pieces = others
        return merge(inputs, create, path_of, **options)

    monkeypatch.setattr(compaction_module, "merge", lossy)
    with pytest.raises(ArchiveError, match=r"200 rows became \d+. Nothing was changed|rows became"):
        compact(store)
    assert data_files(Path(store.root)) == files


def test_files_of_another_price_type_stay(store: LocalStore) -> None:
    archive(store, batches=2)
    rows = tools.trades(10)
    narrow = {name: rows[name].cast(pa.decimal128(38, 9)).combine_chunks() for name in ("price", "size")}
    written = (OffsetRange("ticks", 0, 200, 210), {"trades": changed(rows, **narrow)})
    commit(store, tools.settings(decimal="38,9"), 2, written)
    done = {(outcome.group.table, outcome.group.symbol): outcome for outcome in compact(store)}
    assert "prices have another type" in done["trades", "BTCUSDT"].skipped
    assert done["trades", "ETH/USDT"].files == 1


def test_an_object_store_is_compacted_too() -> None:
    store = open_store("memory://")
    archive(store)
    done = compact(store)
    assert [outcome.files for outcome in done] == [1, 1, 1]
    assert [path for path in store.list("") if path.endswith(".parquet")] == live_paths(store)


@contextmanager
def crash_at(number: int, *, after: bool) -> Iterator[list[str]]:
    """The process dies at change ``number`` to the disk, before or just after it. Nothing that it tries later happens.

    Yields the list of changes.
    """
    done: list[str] = []

    def guarded(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            done.append(name)
            if len(done) > number or (len(done) == number and not after):
                raise CrashError(name)
            result = act(*args, **options)
            if len(done) == number and after:
                raise CrashError(name)
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("link", "unlink", "replace", "rmdir", "mkdir", "fsync"):
            patch.setattr(os, name, guarded(name, getattr(os, name)))
        patch.setattr(swap_module, "exchange", guarded("exchange", exchange))
        yield done


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_whatever_is_cut_short_readers_see_each_row_and_a_second_run_ends_it(
    tmp_path_factory: pytest.TempPathFactory, way: str, stride: int
) -> None:
    """The process dies before and after each change to the disk (the everyday suite tries every seventh).

    With exchanged folders a reader by glob always sees each row once. With replaced files it may see rows twice, and
    none is missing.
    """
    template = tmp_path_factory.mktemp("template") / "archive"
    archive(LocalStore(str(template)), batches=2)
    rows = by_glob(template, "trades")
    points = 0
    for after in (False, True):
        for number in range(1 + 3 * after, 1000, stride):
            root = tmp_path_factory.mktemp("crash") / "archive"
            shutil.copytree(template, root)
            store = LocalStore(str(root))
            if crash(store, number, after=after):
                break
            points += 1
            seen = by_glob(root, "trades")
            if way == "files":
                seen = [row for row, before in zip(seen, [None, *seen], strict=False) if row != before]
            assert seen == rows, (number, after)
            compact(store)
            assert by_glob(root, "trades") == rows, (number, after)
            assert live_paths(store) == data_files(root), (number, after)
            assert not list((root / "_compact").rglob("*")), (number, after)
    assert points * stride > 60


def crash(store: LocalStore, number: int, *, after: bool) -> bool:
    """Compacts one group and dies in it; a file beside the group stays. Returns whether the compaction ended before."""
    with crash_at(number, after=after):
        try:
            compactor = compaction(store)
            groups = compactor.groups(before="2024-08-10", table="trades")[:1]
            compactor.recover()
            list(compactor.run(groups))
        except CrashError:
            return False
    return True


def cut_short(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies when readers see the new files and there is no record yet."""

    def dying(self: Ledger, record: Any) -> bool:
        raise CrashError

    archive(store)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", dying)
        with pytest.raises(CrashError):
            compact(store)


def test_verify_names_a_compaction_that_was_cut_short(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cut_short(store, monkeypatch)
    assert verify(store).problems == [
        "_compact/intent.json: a compaction was cut short. Run compact, which ends it"
    ]
    compact(store)
    assert verify(store, deep=True).problems == []


def test_vacuum_leaves_what_a_cut_short_compaction_has_moved(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    cut_short(store, monkeypatch)
    rows = by_glob(Path(store.root), "trades")
    assert vacuum(store, now_ms=2**50, older_than_ms=0).items == []
    compact(store)
    assert len(by_glob(Path(store.root), "trades")) == ROWS
    assert way == "files" or by_glob(Path(store.root), "trades") == rows


def test_files_that_someone_took_away_meanwhile_are_told_and_the_others_kept(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if not can_exchange(tmp_path):
        pytest.skip("this file system can't exchange folders")
    cut_short(store, monkeypatch)
    next(path for path in Path(store.root, "raw").rglob("*.c1.parquet")).unlink()
    with pytest.raises(ArchiveError, match="Nothing is touched"):
        compact(store)
    assert len(list(Path(store.root, "_compact/next").iterdir())) == 6


def test_table_formats_hear_of_it_before_the_old_files_are_gone(store: LocalStore, way: str) -> None:
    archive(store)
    heard: list[int] = []

    def deliver() -> None:
        heard.append(len(list(Ledger(store).load().records(COMPACTION))))
        assert all(store.exists(path) for path in live_paths(store))
        if len(heard) == 1:
            raise ArchiveError("away")

    with pytest.raises(ArchiveError, match="away"):
        compact(store, deliver=deliver)
    compact(store, deliver=deliver)
    assert heard == [1, 1, 2, 3]
    assert live_paths(store) == data_files(Path(store.root))


@pytest.mark.parametrize("what", ["came", "replaced", "removed"])
def test_what_another_writer_does_meanwhile_is_kept(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """Between the links and the swap another writer publishes, replaces or removes a late file in the same folder."""
    if not can_exchange(tmp_path):
        pytest.skip("this file system can't exchange folders")
    archive(store)
    folder = Path(store.root, "trades", f"date={DAY}", "BTCUSDT")
    other = folder / "late+00000+00000000000000000000-00000000000000000001.parquet"
    if what != "came":
        other.write_bytes(b"first")

    def meanwhile(first: Path, two: Path) -> None:
        if two == folder:
            if what == "removed":
                other.unlink()
            else:
                aside = tmp_path / "aside"
                aside.write_bytes(b"second")
                os.replace(aside, other)
        exchange(first, two)

    monkeypatch.setattr(swap_module, "exchange", meanwhile)
    compact(store)
    assert (other.read_bytes() if other.exists() else None) == (None if what == "removed" else b"second")
    assert len(list(folder.iterdir())) == (1 if what == "removed" else 2)
