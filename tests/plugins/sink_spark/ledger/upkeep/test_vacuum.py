"""``vacuum``: files that dead runs left are removed, files that a writer may use stay."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from blumfeld_sink_spark.errors import ArchiveError
from blumfeld_sink_spark.ledger.ledger import Ledger
from blumfeld_sink_spark.ledger.upkeep.vacuum import SKEW_MS, plan, vacuum
from blumfeld_sink_spark.ledger.writers import lease
from blumfeld_sink_spark.ledger.writers.lease import Lease
from blumfeld_sink_spark.stores.contract import ArchiveStore
from tests.plugins.sink_spark.command import refused, rows_said, said
from tests.plugins.sink_spark.ledger.ledger_tools import (
    Crash,
    FailingStore,
    Work,
    contents,
    opened,
    operations,
    published,
    record_of,
)

HOUR_MS = 3_600_000


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    return opened(tmp_path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def crashed(store: ArchiveStore) -> tuple[dict[str, str], list[str]]:
    """Publishes a batch, then crashes in a second one before its record, with staged files.

    Returns the files that must stay (hash by path) and those that may be removed (paths).
    """
    Work().publish(store)
    kept = contents(store)
    at = operations(Work().next(), store).index("put_if_absent")
    for path in set(contents(store)) - set(kept):
        store.delete(path)
    with pytest.raises(Crash):
        Work().next().publish(FailingStore(store, at, Crash, after=False))
    store.put("_staging/left.inprogress", b"12345")
    gone = sorted({*contents(store), *store.list("_staging")} - set(kept))
    return kept, [path for path in gone if not path.endswith(".lock")]


def age(store: ArchiveStore, by_ms: int) -> None:
    for path in store.list(""):
        full = Path(store.root, path)
        os.utime(full, ns=(0, full.stat().st_mtime_ns - by_ms * 1_000_000))


def test_without_its_ledger_an_archive_is_left_alone(store: ArchiveStore) -> None:
    Work().publish(store)
    age(store, 2 * HOUR_MS)
    for path in list(store.list("_commits")):
        store.delete(path)
    kept = contents(store)
    assert kept
    for do in (plan, vacuum):
        with pytest.raises(ArchiveError, match="no commit record is there, and 8 files of tables are"):
            do(store, now_ms=now_ms(), older_than_ms=HOUR_MS)
    assert contents(store) == kept
    assert refused("vacuum", store.root)[0] == 1


def test_a_first_batch_that_died_leaves_no_record_and_goes(store: ArchiveStore) -> None:
    """The intent of the dead batch names its files, so they aren't taken for a lost ledger."""
    at = operations(Work(), store).index("put_if_absent")
    for path in list(contents(store)):
        store.delete(path)
    with pytest.raises(Crash):
        Work().publish(FailingStore(store, at, Crash, after=False))
    assert [path for path in contents(store) if path.endswith(".parquet")]
    age(store, 2 * HOUR_MS)
    vacuum(store, now_ms=now_ms(), older_than_ms=HOUR_MS)
    assert contents(store) == {}


def test_what_is_young_stays(store: ArchiveStore) -> None:
    _, gone = crashed(store)
    before = contents(store)
    assert vacuum(store, now_ms=now_ms(), older_than_ms=HOUR_MS).items == []
    assert contents(store) == before
    assert plan(store, now_ms=now_ms() + 2 * HOUR_MS, older_than_ms=HOUR_MS).items
    assert set(gone) <= {*contents(store), *store.list("_staging")}


def test_an_intent_stays_while_one_of_its_files_does(store: ArchiveStore) -> None:
    """Without the intent, nothing would tell that the file belongs to its batch."""
    crashed(store)
    age(store, 2 * HOUR_MS)
    young = sorted(published(store))[-1]
    os.utime(Path(store.root, young))
    vacuum(store, now_ms=now_ms(), older_than_ms=HOUR_MS)
    assert store.exists("_intents/feed-1.json")


def test_a_writer_at_work_keeps_all_but_older_staging(store: ArchiveStore) -> None:
    crashed(store)
    before = contents(store)
    age(store, 2 * HOUR_MS)
    store.put("_staging/mine.inprogress", b"1")
    with Lease(store, "ticks"):
        removal = vacuum(store, now_ms=now_ms(), older_than_ms=0)
    assert [item.path for item in removal.items] == ["_staging/left.inprogress"]
    assert [held.name for held in removal.writers] == ["ticks"]
    assert contents(store) == before
    assert store.exists("_staging/mine.inprogress")


def test_staging_a_little_older_than_the_lease_may_be_the_writers(store: ArchiveStore) -> None:
    """The store's clock may differ from the writer's."""
    store.put("_staging/a.inprogress", b"1")
    age(store, SKEW_MS // 2)
    with Lease(store, "ticks"):
        assert vacuum(store, now_ms=now_ms(), older_than_ms=0).items == []


def test_no_known_writer_starts_in_the_middle(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with Lease(store, "ticks"):
        pass
    seen = []

    class Watching(FailingStore):
        def list(self, prefix: str) -> Iterator[str]:
            seen.append([held.name for held in lease.every(store) if held.is_live(now_ms())])
            return store.list(prefix)

    vacuum(Watching(store, -1, Crash, after=False), now_ms=now_ms(), older_than_ms=0)
    assert ["ticks"] in seen
    with Lease(store, "ticks"):
        pass


def test_what_a_compaction_replaced_goes(store: ArchiveStore) -> None:
    record = Work().publish(store)
    old = record.files[0].path
    merged = msgspec.structs.replace(record.files[0], path=old.replace(".parquet", ".c1.parquet"))
    store.put(merged.path, b"1")
    Ledger(store).load().append(record_of("compact", 0, files=(merged,), removed=(old,)))
    removal = vacuum(store, now_ms=now_ms(), older_than_ms=0)
    assert [(item.path, item.why) for item in removal.items] == [(old, "replaced by a compaction")]
    assert store.exists(merged.path)


def test_the_command_says_what_goes(store: ArchiveStore) -> None:
    kept, gone = crashed(store)
    printed = said("vacuum", store.root, "--older-than", "0s", "--dry-run")
    assert all(f"{path}: " in printed for path in gone)
    assert f"{len(gone)} files, 0.01 MB would be removed" in printed
    assert set(gone) <= {*contents(store), *store.list("_staging")}
    assert sorted(row["path"] for row in rows_said("vacuum", store.root, "--older-than", "0s")) == gone
    assert contents(store) == kept
    assert said("vacuum", store.root) == "0 files, 0.00 MB removed\n"


def test_a_place_where_nothing_is_is_refused_and_not_made(tmp_path: Path) -> None:
    typo = tmp_path / "typo"
    error = f"blumfeld archive: {typo}: nothing is there; --root takes the archive's folder or URL\n"
    assert refused("vacuum", typo) == (1, error)
    assert not typo.exists()
