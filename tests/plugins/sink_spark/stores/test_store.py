"""One suite for all stores: a folder, and obstore's own of memory and of files."""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.stores.contract import ArchiveStore, StoreError
from blumfeld_sink_spark.stores.local import LocalStore
from blumfeld_sink_spark.stores.roots import open_store


def object_store(kind: str, tmp_path: Path) -> ArchiveStore:
    stores = pytest.importorskip("obstore.store")
    from blumfeld_sink_spark.stores.objects import ObjectStore

    if kind == "memory":
        return open_store("memory://")
    (tmp_path / "objects").mkdir()
    return ObjectStore("objects", stores.LocalStore(tmp_path / "objects"))


@pytest.fixture(params=["folder", "memory", "obstore's files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    if request.param == "folder":
        return open_store(str(tmp_path / "deep" / "archive"))
    return object_store(request.param, tmp_path)


def write(store: ArchiveStore, path: str, data: bytes) -> None:
    with store.create(path) as file:
        file.write(data)


def test_a_created_file_is_there_when_it_is_closed(store: ArchiveStore) -> None:
    data = os.urandom(3 << 20)
    file = store.create("_staging/x.inprogress")
    assert file.write(data[:100]) == 100
    file.write(memoryview(data)[100:])
    file.close()
    file.close()
    assert file.closed
    assert store.read("_staging/x.inprogress") == data
    assert store.size("_staging/x.inprogress") == len(data)
    assert abs(store.modified_ms("_staging/x.inprogress") - time.time() * 1000) < 60_000


def test_publishing_moves_and_replaces(store: ArchiveStore) -> None:
    write(store, "a", b"old")
    for nth in range(3):
        write(store, f"_staging/{nth}", b"new %d" % nth)
    store.publish("_staging/0", "t/date=1/symbol=A%2FB/f")
    store.publish_all([("_staging/1", "a"), ("_staging/2", "t/g")])
    assert store.read("a") == b"new 1"
    assert list(store.list("")) == ["a", "t/date=1/symbol=A%2FB/f", "t/g"]


def test_all_folders_are_synced_after_the_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    for nth in range(20):
        write(store, f"_staging/{nth}", b"1")
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def watch(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        synced.append((os.path.relpath(path, tmp_path), len(os.listdir(path))))
        real(handle)

    monkeypatch.setattr(os, "fsync", watch)
    store.publish_all([(f"_staging/{nth}", f"t/s={nth}/f") for nth in range(20)])
    assert {("t", nth + 1) for nth in range(20)} | {(".", 2)} <= set(synced)
    assert {(f"t/s={nth}", 1) for nth in range(20)} <= set(synced)
    monkeypatch.undo()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="syncing folders: no space left"):
        store.publish_all([(f"t/s={nth}/f", f"t/s={nth}/g") for nth in range(20)])


def test_bytes_are_synced_before_their_name_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was created, and a record that was put: each file's bytes reach the disk before its name counts."""
    store = open_store(str(tmp_path))
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def watch(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if os.path.isfile(path):
            assert not store.exists("_commits/q/0.json")
            synced.append((os.path.relpath(path, tmp_path).partition("/")[0], os.path.getsize(path)))
        real(handle)

    monkeypatch.setattr(os, "fsync", watch)
    write(store, "_staging/file", b"12345")
    assert store.put_if_absent("_commits/q/0.json", b"record")
    assert synced == [("_staging", 5), ("_staging", 6)]


def test_a_record_that_comes_between_the_look_and_the_put_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path))
    assert store.put_if_absent("_commits/q/0.json", b"winner")
    monkeypatch.setattr(type(store), "exists", lambda self, path: False)
    assert not store.put_if_absent("_commits/q/0.json", b"loser")
    assert store.read("_commits/q/0.json") == b"winner"


def test_what_is_not_staged_cannot_be_published(store: ArchiveStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.publish("_staging/none", "a")
    assert not store.exists("a")


def test_put_if_absent_is_told_to_one(store: ArchiveStore) -> None:
    assert store.put_if_absent("_commits/q/0.json", b"first")
    assert not store.put_if_absent("_commits/q/0.json", b"second")
    assert store.read("_commits/q/0.json") == b"first"
    store.put("_commits/q/0.json", b"third")
    assert store.read("_commits/q/0.json") == b"third"


def test_put_if_same_is_told_to_one(tmp_path: Path) -> None:
    """obstore's store of files has no conditional update, so it isn't asked."""
    for store in (open_store(str(tmp_path / "x")), object_store("memory", tmp_path)):
        assert not store.put_if_same("lease", b"", b"a")
        store.put("lease", b"a")
        assert store.put_if_same("lease", b"a", b"b")
        assert not store.put_if_same("lease", b"a", b"c")
        assert store.read("lease") == b"b"


def test_listing_is_sorted_and_deep(store: ArchiveStore) -> None:
    paths = ["a.b/c", "a/b/c", "a/b-d", "a/b.d/e", "b", "_x/y"]
    for path in paths:
        write(store, path, b"1")
    assert list(store.list("")) == sorted(paths)
    assert list(store.list("a")) == sorted(path for path in paths if path.startswith("a/"))
    assert store.folders("") == ("_x", "a", "a.b")
    assert store.folders("a") == ("b", "b.d")
    assert list(store.list("none")) == []
    assert store.folders("none") == ()


def test_what_is_not_there_is_said_so(store: ArchiveStore) -> None:
    assert not store.exists("none")
    store.delete("none")
    questions: list[Callable[[str], Any]] = [store.read, store.size, store.modified_ms, store.open_input]
    for ask in questions:
        with pytest.raises(FileNotFoundError):
            ask("none")


def test_deleting_takes_away(store: ArchiveStore) -> None:
    write(store, "a/b", b"1")
    store.delete("a/b")
    assert not store.exists("a/b")
    assert list(store.list("")) == []


def test_arrow_reads_and_writes_through_it(store: ArchiveStore) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"a": list(range(10_000))})
    with store.create("x.parquet") as file:
        pq.write_table(table, file)
    with store.open_input("x.parquet") as file:
        assert pq.read_table(file, partitioning=None) == table


def test_stores_of_folders_and_urls_go_to_the_workers(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(open_store(str(tmp_path))))
    store.put("a", b"1")
    assert store.read("a") == b"1"
    with pytest.raises(TypeError, match="of one process"):
        pickle.dumps(object_store("memory", tmp_path))


def test_roots(tmp_path: Path) -> None:
    assert isinstance(open_store(f"file://{tmp_path}"), LocalStore)
    open_store(f"file://{tmp_path}").put("a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
    with pytest.raises(SettingsError, match=r"archive\.root: ftp://x; allowed"):
        open_store("ftp://x")


def test_a_store_that_is_away_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = pytest.importorskip("obstore.store")
    from blumfeld_sink_spark.stores.objects import ObjectStore

    away = stores.S3Store(
        "bucket", endpoint="http://127.0.0.1:9", region="x", access_key_id="a", secret_access_key="b",
        client_options={"allow_http": True}, retry_config={"max_retries": 0},
    )  # fmt: skip
    with pytest.raises(StoreError, match=r"^s3://bucket: writing a: ") as info:
        ObjectStore("s3://bucket", away).put_if_absent("a", b"1")
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("what", ["create", "put", "put_if_absent", "publish"])
def test_a_full_disk_says_so_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store = open_store(str(tmp_path))
    write(store, "_staging/x", b"1")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace" if what == "publish" else "fsync", full)
    doing: dict[str, Callable[[], object]] = {
        "create": lambda: write(store, "_staging/y", b"1" * 100),
        "publish": lambda: store.publish("_staging/x", "final"),
        "put": lambda: store.put("final", b"1"),
        "put_if_absent": lambda: store.put_if_absent("final", b"1"),
    }
    with pytest.raises(StoreError, match=r"no space left \(\d+ MiB free on its disk\).*run again") as info:
        doing[what]()
    assert isinstance(info.value, ArchiveError)
    assert info.value.errno == errno.ENOSPC
    assert not (tmp_path / "final").exists()
    assert not [path for path in store.list("") if path.endswith(".put")]


def _write_all(file: BinaryIO, length: int) -> None:
    file.write(b"1" * length)
    file.close()


def test_a_small_real_disk(tmp_path: Path) -> None:
    """``/dev/full`` takes no byte."""
    (tmp_path / "_staging").mkdir()
    (tmp_path / "_staging" / "y").symlink_to("/dev/full")
    store = open_store(str(tmp_path))
    for length in (100, 2 << 20):  # found when it is closed, or at once
        file = store.create("_staging/y")
        with pytest.raises(StoreError, match="no space left"):
            _write_all(file, length)
        with suppress(StoreError):
            file.close()
        assert file.closed


@pytest.mark.parametrize(("number", "said"), [(errno.EROFS, "read-only"), (errno.EACCES, "not allowed")])
def test_other_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match=said):
        open_store(str(tmp_path)).put("a", b"1")
