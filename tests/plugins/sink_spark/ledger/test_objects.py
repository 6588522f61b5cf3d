"""Archives in object stores: the same guarantees without a rename. S3 needs ``moto_server``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.ledger.checking.verify import verify
from blumfeld_sink_spark.ledger.ledger import Ledger, record_path
from blumfeld_sink_spark.ledger.writers.lease import Lease
from blumfeld_sink_spark.stores.contract import ArchiveStore, StoreError
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.s3_server import s3_server

from .ledger_tools import (
    QUERY,
    Crash,
    FailingStore,
    Work,
    contents,
    named_files,
    no_space,
    operations,
    published,
    two_batches,
)

pytestmark = pytest.mark.archive

pytest.importorskip("obstore")


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with s3_server(tmp_path, monkeypatch) as url:
        yield url


@pytest.fixture
def store() -> ArchiveStore:
    return open_store("memory://")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("how", [Crash, no_space], ids=["crash", "refusal"])
def test_whatever_is_cut_short_another_run_leaves_the_same_archive(after: bool, how: Any) -> None:
    """A store that raises may have done the operation, so files stay once the record may exist. Nothing is lost."""
    wanted = two_batches(open_store("memory://"))
    first = open_store("memory://")
    Work().publish(first)
    for at in range(len(operations(Work().next(), first))):
        store = open_store("memory://")
        Work().publish(store)
        try:
            Work().next().publish(FailingStore(store, at, how, after=after))
        except (Crash, StoreError):
            record = store.exists(record_path(QUERY, 1))
            assert not record or set(wanted) <= set(contents(store)), f"operation {at}"
        Work().next().publish(store)
        assert contents(store) == wanted, f"operation {at}"


def test_a_copy_that_stayed_in_staging_is_seen_by_nobody(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = type(store).delete

    def dies(self: ArchiveStore, path: str) -> None:
        raise Crash

    monkeypatch.setattr(type(store), "delete", dies)
    with pytest.raises(Crash):
        Work().publish(store)
    monkeypatch.setattr(type(store), "delete", real)
    record = Work().publish(store)
    assert published(store) == named_files(record)
    assert verify(store).problems == []


def test_of_two_writers_the_second_is_refused_and_the_first_ones_files_stay(s3: str) -> None:
    store, other = open_store(s3), open_store(s3)
    ledger = Ledger(other).load()
    first = Work().publish(store)
    before = contents(store)
    late = Work(query="late")
    with pytest.raises(LedgerConflictError, match="overlaps"):
        late.publish(other, ledger)
    assert not other.put_if_absent(record_path(QUERY, 0), b"{}")
    assert contents(other) == before
    assert named_files(first) == published(other)
    with Lease(store, "ticks"), pytest.raises(LedgerConflictError, match="ticks is being written by"):
        Lease(other, "ticks").take()


def test_an_archive_in_s3(s3: str) -> None:
    store = open_store(s3)
    assert two_batches(store) == two_batches(open_store("memory://"))
    assert verify(store).problems == []
    assert store.folders("_commits") == (QUERY,)
