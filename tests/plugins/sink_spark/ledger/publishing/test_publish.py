"""Publishing: the archive has exactly the files that records name, wherever a run is cut short and however often it is
repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pyarrow.parquet as pq
import pytest

from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.ledger.ledger import Ledger, record_path
from blumfeld_sink_spark.ledger.writers import intents
from blumfeld_sink_spark.records import CommitRecord, OffsetRange, Seam, TaskResult
from blumfeld_sink_spark.stores.contract import ArchiveStore, StoreError
from tests.plugins.sink_spark.ledger.ledger_tools import (
    DAY,
    QUERY,
    Crash,
    FailingStore,
    T,
    Work,
    contents,
    named_files,
    no_space,
    opened,
    operations,
    published,
    two_batches,
)

pytestmark = pytest.mark.archive


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return opened(tmp_path / "archive")


@pytest.fixture
def expected(tmp_path: Path) -> dict[str, str]:
    return two_batches(opened(tmp_path / "expected"))


def test_files_gaps_and_record_are_there_and_staging_is_empty(store: ArchiveStore) -> None:
    record = Work().publish(store)
    assert {path.rpartition("/")[0] for path in published(store)} == {
        f"trades/date={DAY}/BTCUSDT",
        f"bbo/date={DAY}/ETH%2FUSDT",
        f"raw/date={DAY}",
        "gaps/date=1970-01-01/S%2F0",
        "gaps/date=1970-01-01/S%2F1",
    }
    assert f"raw/date={DAY}/ticks+00001+00000000000000000000-00000000000000000020.parquet" in published(store)
    assert named_files(record) == published(store)
    assert not list(store.list("_staging"))
    assert not list(store.list("_intents"))
    assert msgspec.json.decode(store.read(record_path(QUERY, 0)), type=type(record)) == record


def test_gaps_are_found_over_the_border_of_batches(store: ArchiveStore) -> None:
    """The missing number lies between the two batches. Only the state in the first record shows it."""
    ledger = Ledger(store)
    records = [Work(ranges=(OffsetRange("ticks", 0, 0, 7),)).publish(store, ledger)]
    records.append(Work(batch=1, ranges=(OffsetRange("ticks", 0, 7, 10),)).publish(store, ledger))
    assert [record.gaps for record in records] == [0, 1]
    (path,) = (entry.path for entry in records[1].files if entry.table == "gaps")
    rows = pq.read_table(store.open_input(path), partitioning=None).to_pylist()
    assert [(row["k_offset"], row["expected"], row["got"], row["missing"]) for row in rows] == [(7, 7, 8, 1)]


def _gaps(store: ArchiveStore, *records: CommitRecord) -> list[tuple[int, int, int]]:
    """Returns (partition, offset, missing numbers) of each gap in these records."""
    paths = [entry.path for record in records for entry in record.files if entry.table == "gaps"]
    rows = [
        row for path in paths for row in pq.read_table(store.open_input(path), partitioning=None).to_pylist()
    ]
    return sorted((row["k_partition"], row["k_offset"], row["missing"]) for row in rows)


def test_a_gap_right_where_a_new_query_goes_on_is_found(store: ArchiveStore) -> None:
    """The feed misses a message before each offset that 7 divides. In partition 0 that is at the seam; in partition 1
    one gap lies before the seam and one after it. The new query begins partition 2 elsewhere: nothing continues there.
    """
    Work(ranges=(OffsetRange("ticks", 0, 0, 6),)).publish(store)
    Work(batch=1, ranges=(OffsetRange("ticks", 0, 6, 7), OffsetRange("ticks", 1, 0, 10))).publish(store)
    Work(batch=2, ranges=(OffsetRange("ticks", 1, 10, 12), OffsetRange("ticks", 2, 0, 7))).publish(store)
    ledger = Ledger(store).load()
    seams = ledger.seams({("ticks", 0): 7, ("ticks", 1): 12, ("ticks", 2): 5, ("ticks", 3): 0})
    assert seams == (Seam("ticks", 0, QUERY, 1), Seam("ticks", 1, QUERY, 2))
    ranges = (OffsetRange("ticks", 0, 7, 20), OffsetRange("ticks", 1, 12, 20), OffsetRange("ticks", 2, 7, 13))
    taken_over = Work(query="feed-2", ranges=ranges)
    record = taken_over.publish(store, seams=seams)
    assert _gaps(store, record) == [(0, 7, 1), (0, 14, 1), (1, 14, 1)]
    assert taken_over.publish(store, seams=seams) == record


def test_a_seam_run_again_finds_the_same_whatever_was_committed_since(tmp_path: Path) -> None:
    """A backfill that commits after the new query began changes nothing, although it ends where that query begins."""
    calm, busy = opened(tmp_path / "calm"), opened(tmp_path / "busy")
    batch = Work(query="feed-2", ranges=(OffsetRange("ticks", 0, 7, 20),))
    expected = batch.publish(calm, seams=Ledger(calm).load().seams({("ticks", 0): 7}))
    seams = Ledger(busy).load().seams({("ticks", 0): 7})
    Work(query="backfill", ranges=(OffsetRange("ticks", 0, 0, 7),)).publish(busy)
    assert batch.publish(busy, seams=seams) == expected


def test_a_batch_without_offsets_is_a_commit_too(store: ArchiveStore) -> None:
    record = Work(ranges=()).publish(store, results=[])
    assert record.files == ()
    assert Work(batch=1).publish(store).batch == 1


def steps_of_the_second(store: ArchiveStore) -> int:
    """Returns the number of operations that the second batch takes."""
    Work().publish(store)
    return len(operations(Work().next(), store))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_operation_and_another_run_leave_the_same_archive(
    tmp_path: Path, expected: dict[str, str], after: bool
) -> None:
    steps = steps_of_the_second(opened(tmp_path / "count"))
    assert steps > 15
    for at in range(steps):
        store = opened(tmp_path / f"{after}{at}")
        Work().publish(store)
        for nth in (at, at // 2):  # the run after a crash may crash as well
            died = False
            try:
                Work().next().publish(FailingStore(store, nth, Crash, after=after))
            except Crash:
                died = True
        Work().next().publish(store)
        assert contents(store) == expected, f"after a crash at operation {at} (died: {died})"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_full_disk_at_any_operation_publishes_all_or_nothing(
    tmp_path: Path, expected: dict[str, str], after: bool
) -> None:
    for at in range(steps_of_the_second(opened(tmp_path / "count"))):
        store = opened(tmp_path / f"{after}{at}")
        Work().publish(store)
        before = published(store)
        failing = FailingStore(store, at, no_space, after=after)
        try:
            Work().next().publish(failing)
        except StoreError:
            done = store.exists(record_path(QUERY, 1))
            assert done or published(store) == before, f"operation {at}, {failing.names[at]}"
        Work().next().publish(store)
        assert contents(store) == expected, f"after a full disk at operation {at}"


def test_another_decoder_after_a_crash_replaces_what_the_first_left(store: ArchiveStore) -> None:
    work = Work()
    with pytest.raises(Crash):
        work.publish(FailingStore(store, _at_record(store), Crash, after=False))
    assert len(published(store)) == 8
    said: list[str] = []
    newer = attrs.evolve(work, version=2, tables=(("trades", "BTCUSDT"), ("quarantine", "")))
    record = newer.publish(store, say=said.append)
    assert published(store) == named_files(record)
    assert len(said) == 1
    assert "comes to other bytes than before the crash" in said[0]
    hashes = {path: sha256 for path, sha256 in contents(store).items() if path in published(store)}
    assert hashes == {entry.path: entry.sha256 for entry in record.files}


def _at_record(store: ArchiveStore) -> int:
    return operations(Work(), opened(f"{store.root}-count")).index("put_if_absent")


def test_another_decoder_after_the_commit_changes_nothing(store: ArchiveStore) -> None:
    first = Work().publish(store)
    before = contents(store)
    said: list[str] = []
    assert attrs.evolve(Work(), version=2).publish(store, say=said.append) == first
    assert contents(store) == before
    assert "what is committed stays" in said[0]


def refused(work: Work, store: ArchiveStore, **options: Any) -> str:
    """Returns the message of a refusal; asserts that the archive is unchanged and staging is empty."""
    before = contents(store)
    with pytest.raises(LedgerConflictError) as info:
        work.publish(store, **options)
    assert contents(store) == before
    assert not list(store.list("_staging"))
    return str(info.value)


def test_offsets_of_another_query_are_refused(store: ArchiveStore) -> None:
    Work().publish(store)
    said = refused(Work(query="other", ranges=(OffsetRange("ticks", 1, 19, 30),)), store)
    assert "ticks-1 19..30 overlaps 0..20, which query feed-1 has committed" in said


def test_a_hole_is_refused_unless_it_is_named_lost(store: ArchiveStore) -> None:
    Work().publish(store)
    late = Work(batch=1, ranges=(OffsetRange("ticks", 0, 15, 20),))
    assert "leaves ticks-0 10..15 out" in refused(late, store)
    record = late.publish(store, lost=(OffsetRange("ticks", 0, 10, 15),))
    assert record.lost == (OffsetRange("ticks", 0, 10, 15),)


def test_loss_inside_a_planned_range_is_kept_in_the_record(store: ArchiveStore) -> None:
    record = Work().publish(store, lost=(OffsetRange("ticks", 1, 0, 0), OffsetRange("ticks", 0, 0, 5)))
    assert record.lost == (OffsetRange("ticks", 0, 0, 5),)


@pytest.mark.parametrize("batch", [0, 2])
def test_a_checkpoint_of_another_state_is_refused(store: ArchiveStore, batch: int) -> None:
    Work().publish(store)
    work = attrs.evolve(Work().next(), batch=batch)
    assert "Use the checkpoint that belongs to this archive" in refused(work, store)


def changed(result: TaskResult, **fields: object) -> TaskResult:
    return msgspec.structs.replace(result, **fields)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda all_: [changed(all_[0], last_offset=10), all_[1]], "planned was ticks-0 0..10"),
        (lambda all_: [all_[0], changed(all_[1], topic="tocks")], "planned was nothing"),
        (lambda all_: [all_[0], all_[0], all_[1]], "two tasks read ticks-0 0..10"),
    ],
    ids=["beyond the plan", "another topic", "a partition twice"],
)
def test_results_that_are_not_of_the_plan_are_refused(
    store: ArchiveStore, change: Callable[[list[TaskResult]], list[TaskResult]], wanted: str
) -> None:
    assert wanted in refused(Work(), store, results=change(Work().stage(store)))


def test_of_two_writers_of_one_batch_the_second_is_refused(store: ArchiveStore) -> None:
    """The second writer looks for a record before the first one commits."""
    first = Work()
    second = attrs.evolve(first, version=2, tables=(*first.tables, ("quarantine", "")))
    racing = _Racing(store, lambda: first.publish(store))
    with pytest.raises(LedgerConflictError, match="another writer has committed batch 0"):
        second.publish(racing)
    (record,) = Ledger(store).load().records(QUERY)
    assert published(store) == named_files(record)


def test_a_loser_takes_away_what_the_winner_does_not_name(store: ArchiveStore) -> None:
    """The winner read the intents before the loser wrote its own, so only the loser knows of its extra file."""
    winner = Work().publish(opened(f"{store.root}-winner"))
    racing = _Racing(store, lambda: Ledger(store).load().append(winner))
    with pytest.raises(LedgerConflictError, match="another writer has committed batch 0"):
        Work(tables=(*Work().tables, ("quarantine", ""))).publish(racing)
    assert published(store) == named_files(winner)


@pytest.mark.parametrize("move", [0, 3, -1], ids=["its first move", "in the middle", "its last move"])
def test_a_losing_writer_never_deletes_the_winners_files(store: ArchiveStore, move: int) -> None:
    """The loser's disk fills up while it moves its files. Just before, the winner has committed the same batch under
    the same names. If the loser removed its published files, it would remove the winner's.
    """
    winner = Work()
    names = operations(winner, opened(f"{store.root}-count"))
    moves = [nth for nth, name in enumerate(names) if name == "publish"]
    losing = _Racing(store, lambda: winner.publish(store), at=moves[move])
    with pytest.raises(StoreError, match="no space left"):
        Work().publish(losing)
    (record,) = Ledger(store).load().records(QUERY)
    assert published(store) == named_files(record)
    assert {path: contents(store)[path] for path in published(store)} == {
        entry.path: entry.sha256 for entry in record.files
    }
    assert not list(store.list("_staging"))


def test_a_query_that_commits_the_same_offsets_meanwhile_keeps_its_files(store: ArchiveStore) -> None:
    first, second = Work(query="first"), Work(query="second")
    ledger = Ledger(store).load()
    racing = _Racing(store, lambda: first.publish(store), before="put")
    with pytest.raises(LedgerConflictError, match="query first has committed"):
        second.publish(racing, ledger)
    (record,) = Ledger(store).load().records("first")
    assert published(store) == named_files(record)
    assert not list(store.list("_intents"))


def test_a_query_that_has_begun_the_same_offsets_is_in_the_way(store: ArchiveStore) -> None:
    with pytest.raises(Crash):
        Work(query="first").publish(FailingStore(store, _at_record(store), Crash, after=False))
    before = published(store)
    with pytest.raises(LedgerConflictError, match=r"query first has begun batch 0.*run vacuum"):
        Work(query="second").publish(store)
    assert published(store) == before
    Work(query="third", ranges=(OffsetRange("others", 0, 0, 5),)).publish(store)
    Work(query="first").publish(store)
    assert [intent.query for intent in intents.every(store)] == []


class _Racing(FailingStore):
    """A store that runs another writer just before the record is written, or before another operation. With ``at`` that
    is the operation of this number, which then finds the disk full.
    """

    def __init__(
        self, inner: ArchiveStore, other: Callable[[], object], before: str = "put_if_absent", at: int = -1
    ) -> None:
        super().__init__(inner, at, no_space, after=False)
        self._other: list[Callable[[], object]] = [other]
        self._before = before

    def _step(self, name: str, do: Callable[[], T]) -> T:
        due = name == self._before if self._at < 0 else self.count == self._at
        if due and self._other:
            self._other.pop()()
        return super()._step(name, do)
