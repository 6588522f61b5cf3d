"""Opening a ledger: the state that it finds, the files that it reads for it, the records that it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blumfeld_sink_spark.errors import ArchiveError, LedgerConflictError, SettingsError
from blumfeld_sink_spark.ledger.ledger import CHECKPOINT_EVERY, Ledger, record_path
from blumfeld_sink_spark.records import CommitRecord, FileEntry, OffsetRange, Seam
from blumfeld_sink_spark.stores.contract import ArchiveStore

from .ledger_tools import opened, record_of

pytestmark = pytest.mark.archive


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return opened(tmp_path)


class CountingStore:
    """A store that notes the paths it reads."""

    def __init__(self, inner: ArchiveStore) -> None:
        self.inner = inner
        self.root, self.certain = inner.root, inner.certain
        self.reads: list[str] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return self.inner.read(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def chain(count: int, query: str = "q", topic: str = "t", step: int = 10) -> Iterator[CommitRecord]:
    for batch in range(count):
        file = FileEntry(
            path=f"trades/{batch}", table="trades", date="2024-08-08", rows=3, bytes=50, sha256="",
            ts_min=batch + 1, ts_max=batch + 2,
        )  # fmt: skip
        taken = OffsetRange(topic, 0, batch * step, (batch + 1) * step)
        yield record_of(query, batch, taken, files=(file,), committed_ms=1000 + batch, state={"n": batch})


def filled(store: ArchiveStore, count: int, **options: Any) -> Ledger:
    ledger = Ledger(store).load()
    for record in chain(count, **options):
        assert ledger.append(record)
    return ledger


def same(first: Ledger, other: Ledger) -> None:
    assert first.queries() == other.queries()
    assert first.topics() == other.topics()
    for query in first.queries():
        assert first.last(query) == other.last(query)
        assert first.counts(query) == other.counts(query)
    for topic in first.topics():
        assert first.covered(topic) == other.covered(topic)


@pytest.mark.parametrize("count", [1, CHECKPOINT_EVERY - 1, CHECKPOINT_EVERY, 3 * CHECKPOINT_EVERY + 7])
def test_what_is_opened_is_what_was_written(store: ArchiveStore, count: int) -> None:
    written = filled(store, count)
    filled(store, 3, query="other", topic="u")
    opened_ = Ledger(store).load()
    same(written.load(), opened_)
    assert opened_.covered("t") == (OffsetRange("t", 0, 0, 10 * count),)
    assert [record.batch for record in opened_.records("q")] == list(range(count))
    table = opened_.counts("q").tables["trades"]
    assert (table.files, table.rows, table.bytes) == (count, 3 * count, 50 * count)
    assert (table.ts_min, table.ts_max) == (1, count + 1)


def test_a_checkpoint_keeps_its_field_names(store: ArchiveStore) -> None:
    """Other versions of the archive read it."""
    filled(store, CHECKPOINT_EVERY)
    point = msgspec.json.decode(store.read("_commits/q/checkpoint.json"))
    assert list(point) == ["version", "query", "batch", "covered", "ends", "sums"]
    assert {"batches", "messages", "tables", "skipped", "passed_over", "uncounted"} <= set(point["sums"])


def test_opening_reads_a_checkpoint_and_what_is_behind_it(store: ArchiveStore) -> None:
    filled(store, 5 * CHECKPOINT_EVERY + 5)
    counting = CountingStore(store)
    ledger = Ledger(counting).load()
    assert len(counting.reads) <= CHECKPOINT_EVERY + 3
    counting.reads.clear()
    ledger.load()
    assert len(counting.reads) == 1


@pytest.mark.parametrize("harm", ["gone", "torn", "ahead", "another query's", "of a later version"])
def test_a_checkpoint_that_is_worth_nothing_costs_time_only(store: ArchiveStore, harm: str) -> None:
    written = filled(store, 2 * CHECKPOINT_EVERY)
    path = "_commits/q/checkpoint.json"
    data = store.read(path)
    match harm:
        case "gone":
            store.delete(path)
        case "torn":
            store.put(path, data[: len(data) // 2])
        case "ahead":
            store.put(path, data.replace(b'"batch":', b'"batch":9'))
        case "another query's":
            store.put(path, data.replace(b'"query":"q"', b'"query":"r"'))
        case _:
            store.put(path, data.replace(b'"version":1', b'"version":2'))
    assert store.exists(path) is (harm != "gone")
    same(written, Ledger(store).load())


def test_a_seam_is_found_without_reading_all_that_was_committed(store: ArchiveStore) -> None:
    filled(store, 50)
    filled(store, 50, query="other", topic="u")
    counting = CountingStore(store)
    ledger = Ledger(counting).load()
    counting.reads.clear()
    assert ledger.seams({("t", 0): 500, ("u", 0): 490}) == (Seam("t", 0, "q", 49),)
    assert len(counting.reads) == 1


def test_a_writer_sees_what_others_commit_when_it_loads(store: ArchiveStore) -> None:
    mine = filled(store, 3)
    others = Ledger(store).load()
    others.append(record_of("r", 0, OffsetRange("t", 0, 30, 40)))
    late = record_of("q", 3, OffsetRange("t", 0, 30, 40))
    mine.check(late)
    mine.load()
    with pytest.raises(LedgerConflictError, match=r"t-0 30..40 overlaps 30..40, which query r has committed"):
        mine.append(late)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [(b'{"half', "isn't a commit record"), (b"{}", "isn't a commit record"), (None, "is of version 2")],
)
def test_a_record_that_cannot_be_read_is_named(store: ArchiveStore, data: bytes | None, wanted: str) -> None:
    filled(store, 2)
    path = record_path("q", 2)
    newer = msgspec.structs.replace(record_of("q", 2), version=2)
    store.put(path, msgspec.json.encode(newer) if data is None else data)
    with pytest.raises(ArchiveError, match=f"{path}.*{wanted}"):
        Ledger(store).load()


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a b", "_x"])
def test_a_query_that_no_folder_can_be_named_after_is_refused(store: ArchiveStore, name: str) -> None:
    with pytest.raises(SettingsError, match=r"archive\.name.*allowed: letters"):
        Ledger(store).load().append(record_of(name, 0, OffsetRange("t", 0, 0, 5)))


def test_a_checkpoint_that_cannot_be_written_stops_nobody(store: ArchiveStore) -> None:
    class Full(CountingStore):
        def put(self, path: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    ledger = Ledger(Full(store)).load()
    for record in chain(CHECKPOINT_EVERY + 2):
        assert ledger.append(record)
    assert not store.exists("_commits/q/checkpoint.json")
    assert ledger.last("q") == Ledger(store).load().last("q")
