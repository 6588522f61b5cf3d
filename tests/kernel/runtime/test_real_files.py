"""The narrow file API on a real disk."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blumfeld.kernel.runtime.real_files import RealFile, RealFiles
from blumfeld.spi.runtime import File, Files


@pytest.fixture
def files() -> RealFiles:
    return RealFiles()


@pytest.fixture
def opened(files: RealFiles, tmp_path: Path) -> RealFile:
    file = files.open(str(tmp_path / "a.log"), create=True)
    file.pwritev([b"hello ", bytearray(b"wide "), memoryview(b"world")], 0)
    return file


def descriptor_is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_gather_write_is_read_back_at_its_position(opened: RealFile) -> None:
    assert opened.pread(100, 0) == b"hello wide world"
    assert opened.pwritev([b"WIDE"], 6) == 4
    assert opened.pread(10, 6) == b"WIDE world"
    assert opened.size() == 16
    opened.close()


def test_files_are_opened_as_it_is_asked_and_never_truncated(files: RealFiles, opened: RealFile) -> None:
    as_files: Files = files
    as_file: File = opened
    as_file.truncate(2)
    as_file.truncate(4)
    as_file.close()
    files.set_modified_ms(opened.path, 1_700_000_000_123)
    with pytest.raises(FileNotFoundError):
        as_files.open(opened.path + "-absent")
    with pytest.raises(FileExistsError):
        files.open(opened.path, exclusive=True)
    files.open(opened.path, create=True).close()
    reader = files.open(opened.path, write=False)
    assert reader.pread(10, 0) == b"he\0\0"
    assert files.modified_ms(opened.path) == 1_700_000_000_123
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        reader.pwritev([b"x"], 0)
    reader.close()


def test_a_region_keeps_the_descriptor_open_until_it_is_released(opened: RealFile, files: RealFiles) -> None:
    region = opened.region(6, 4)
    other = opened.region(0, 5)
    opened.close()
    opened.close()
    files.unlink(opened.path)
    fd = region.fileno()
    other.release()
    assert region.pread() == b"wide"
    assert region.pread(1, 2) == b"id"
    assert region.pread(2, 100) == b"de"
    region.release()
    assert not descriptor_is_open(fd)


def test_a_released_region_is_of_no_more_use(opened: RealFile) -> None:
    region = opened.region(0, 4)
    region.release()
    with pytest.raises(RuntimeError):
        region.release()
    with pytest.raises(OSError, match="released"):
        region.fileno()
    assert opened.pread(5, 0) == b"hello"
    opened.close()


def test_every_method_of_a_closed_file_raises(opened: RealFile) -> None:
    """What a worker may be at goes on while a region is held."""
    held = opened.region(0, 1)
    opened.close()
    of_workers = (lambda: opened.pread(1, 0), opened.fdatasync, lambda: opened.read_ahead(0, 1))
    others = (
        lambda: opened.pwritev([b"x"], 0),
        lambda: opened.truncate(0),
        opened.size,
        lambda: opened.is_cached(0, 1),
        opened.tells_cached,
        lambda: opened.region(0, 1),
        opened.mmap_read,
    )
    for use in of_workers:
        use()
    for other in others:
        with pytest.raises(OSError, match=r"Bad file descriptor|is closed"):
            other()
    held.release()
    for use in of_workers:
        with pytest.raises(OSError, match=r"Bad file descriptor|is closed"):
            use()


def test_a_region_can_be_sent_by_sendfile(opened: RealFile) -> None:
    region = opened.region(6, 4)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert os.sendfile(ours.fileno(), region.fileno(), region.position, region.size_bytes) == 4
        assert theirs.recv(10) == b"wide"
    region.release()
    opened.close()


def test_a_mapped_file_outlives_its_handle(opened: RealFile, files: RealFiles, tmp_path: Path) -> None:
    view = opened.mmap_read()
    opened.close()
    assert bytes(view[:5]) == b"hello"
    assert view.readonly
    empty = files.open(str(tmp_path / "empty"), create=True)
    assert len(empty.mmap_read()) == 0
    empty.close()


def test_directories(files: RealFiles, tmp_path: Path) -> None:
    deep = str(tmp_path / "b" / "c")
    files.make_dirs(deep)
    files.make_dirs(deep)
    assert files.is_dir(deep)
    files.write_atomically(deep + "/z", b"")
    files.write_atomically(deep + "/a", b"")
    assert files.list_dir(deep) == ["a", "z"]
    files.rename(deep, str(tmp_path / "moved"))
    files.sync_dir(str(tmp_path))
    assert not files.exists(deep)
    files.unlink(str(tmp_path / "moved" / "a"))
    files.remove_tree(str(tmp_path / "moved"))
    files.remove_tree(str(tmp_path / "moved"))
    assert not files.exists(str(tmp_path / "moved"))


def test_a_lock_keeps_out_a_second_holder_in_this_process(files: RealFiles, tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    release = files.lock(path)
    with pytest.raises(OSError, match="locked by another") as caught:
        files.lock(path)
    assert caught.value.errno == errno.EWOULDBLOCK
    release()
    release()
    files.lock(path)()


def test_a_lock_keeps_out_who_asks_as_kafka_does(files: RealFiles, tmp_path: Path) -> None:
    """The JVM's ``FileChannel.tryLock`` is a POSIX lock."""
    path = str(tmp_path / ".lock")
    release = files.lock(path)
    attempt = "import fcntl,sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    refused = subprocess.run(
        [sys.executable, "-S", "-c", attempt, path], capture_output=True, timeout=90, check=False
    )
    assert b"BlockingIOError" in refused.stderr
    release()


class Spied:
    """Notes the calls of ``os`` that make bytes or names last, and those that the order matters for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._of_descriptor(name, getattr(os, name)))
        self._rename = os.rename
        monkeypatch.setattr(os, "rename", self.rename)

    def rename(self, old: str, new: str) -> None:
        self.calls.append(("rename", new))
        self._rename(old, new)

    def _of_descriptor(self, name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def spied(fd: int) -> None:
            self.calls.append((name, os.readlink(f"/proc/self/fd/{fd}")))
            call(fd)

        return spied


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors have no names without /proc")
def test_what_promises_to_last_asks_the_device(
    files: RealFiles, opened: RealFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``fdatasync``, ``sync_dir`` and ``write_atomically``, each with the system calls of its promise, in order."""
    spied = Spied(monkeypatch)
    opened.fdatasync()
    files.sync_dir(str(tmp_path))
    files.write_atomically(str(tmp_path / "small"), b"whole")
    assert spied.calls == [
        ("fdatasync", opened.path),
        ("fsync", str(tmp_path)),
        ("fsync", str(tmp_path / "small.tmp")),
        ("rename", str(tmp_path / "small")),
        ("fsync", str(tmp_path)),
    ]
    opened.close()


def test_a_small_file_that_finds_no_room_is_named(tmp_path: Path) -> None:
    full = tmp_path / "full"
    (tmp_path / "full.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: .*/full"):
        RealFiles().write_atomically(str(full), b"x")
