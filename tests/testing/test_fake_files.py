"""The disk in memory: what is seen, what a crash may take and may not, faults."""

from __future__ import annotations

import errno
import random

import pytest

from blumfeld.spi.runtime import File, Files
from blumfeld.testing.fake_files import FakeDisk, FakeFiles, Fault, Luck


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def files(disk: FakeDisk) -> FakeFiles:
    files = disk.mount(lambda: 1000)
    files.make_dirs("/d")
    files.sync_dir("/d")
    files.sync_dir("/")
    return files


def test_they_are_what_the_runtime_promises(files: FakeFiles) -> None:
    as_files: Files = files
    as_file: File = as_files.open("/d/f", create=True)
    assert as_file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"ef")], 0) == 6
    assert as_file.pread(100, 1) == b"bcdef"
    as_file.truncate(3)
    assert as_files.read_bytes("/d/f") == b"abc"
    as_file.truncate(5)
    assert as_file.pread(10, 0) == b"abc\0\0"
    assert as_file.size() == 5
    assert as_files.list_dir("/d") == ["f"]


def test_errors_are_those_of_the_operating_system(files: FakeFiles) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("/d/none")
    with pytest.raises(IsADirectoryError):
        files.open("/d")
    files.open("/d/f", create=True).close()
    with pytest.raises(FileExistsError):
        files.open("/d/f", create=True, exclusive=True)
    with pytest.raises(NotADirectoryError):
        files.list_dir("/d/f")
    files.lock("/d/.lock")
    with pytest.raises(BlockingIOError):
        files.lock("/d/.lock")


def test_a_region_outlives_close_and_unlink(disk: FakeDisk, files: FakeFiles) -> None:
    file = files.open("/d/f", create=True)
    file.pwritev([b"0123456789"], 0)
    region = file.region(2, 5)
    file.close()
    files.unlink("/d/f")
    assert (region.pread(), region.pread(1, 2)) == (b"23456", b"34")
    assert (disk.open_files, disk.open_regions) == (0, 1)
    region.release()
    assert disk.open_regions == 0
    with pytest.raises(RuntimeError):
        region.release()


def crashed(seed: int) -> tuple[FakeDisk, FakeFiles]:
    disk = FakeDisk()
    files = disk.mount(lambda: 0)
    files.make_dirs("/d")
    files.sync_dir("/")
    file = files.open("/d/f", create=True)
    file.pwritev([b"durable."], 0)
    file.fdatasync()
    files.sync_dir("/d")
    for nth in range(4):
        file.pwritev([b"%d" % nth * 8], 8 + nth * 8)
    files.rename("/d/f", "/d/g")
    files.open("/d/new", create=True).close()
    disk.crash(random.Random(seed))
    with pytest.raises(OSError, match="dead"):
        file.pwritev([b"late"], 0)
    with pytest.raises(OSError, match="dead"):
        files.write_atomically("/d/clean", b"")
    return disk, disk.mount(lambda: 0)


def test_a_crash_keeps_what_was_synced_and_some_of_the_rest_in_order() -> None:
    whole = b"durable." + b"".join(b"%d" % n * 8 for n in range(4))
    sizes, names = set(), set()
    for seed in range(200):
        _, files = crashed(seed)
        listed = files.list_dir("/d")
        assert listed in (["f"], ["g"], ["g", "new"])
        data = files.read_bytes(f"/d/{listed[0]}")
        written = data.rstrip(b"\0")
        assert whole.startswith(written)
        assert written.startswith(b"durable.")
        sizes.add(len(written))
        names.add(tuple(listed))
    assert {8, 40} < sizes
    assert any(size % 8 for size in sizes), "a torn write"
    assert len(names) == 3


def test_the_same_seed_crashes_the_same_way() -> None:
    def left(seed: int) -> list[tuple[str, bytes]]:
        _, files = crashed(seed)
        return [(name, files.read_bytes(f"/d/{name}")) for name in files.list_dir("/d")]

    assert [left(seed) for seed in range(20)] == [left(seed) for seed in range(20)]


def test_a_crash_undoes_overwrites_and_cuts(disk: FakeDisk, files: FakeFiles) -> None:
    file = files.open("/d/f", create=True)
    file.pwritev([b"0123456789"], 0)
    file.fdatasync()
    files.sync_dir("/d")
    file.truncate(4)
    file.pwritev([b"xy"], 2)
    file.truncate(20)
    file.pwritev([b"end"], 17)
    disk.crash(Luck(0))
    assert disk.mount(lambda: 0).read_bytes("/d/f") == b"0123456789"


def test_the_page_cache_survives_the_process(disk: FakeDisk, files: FakeFiles) -> None:
    files.lock("/d/.lock")
    file = files.open("/d/f", create=True)
    file.pwritev([b"abc"], 0)
    disk.kill()
    with pytest.raises(OSError, match="dead"):
        file.pread(1, 0)
    again = disk.mount(lambda: 0)
    assert again.read_bytes("/d/f") == b"abc"
    again.lock("/d/.lock")


def test_faults_hit_the_nth_operation_on_a_path(disk: FakeDisk, files: FakeFiles) -> None:
    file, other = files.open("/d/f", create=True), files.open("/d/other", create=True)
    disk.inject(Fault(operation="pwritev", nth=2, path_part="/f", error_number=errno.ENOSPC))
    disk.inject(Fault(operation="pwritev", nth=2, path_part="/f", short_bytes=1))
    assert file.pwritev([b"a"], 0) == 1
    assert other.pwritev([b"a"], 0) == 1
    with pytest.raises(OSError, match="No space"):
        file.pwritev([b"bb"], 1)
    assert file.pwritev([b"bb"], 1) == 1
    assert file.pwritev([b"bb"], 1) == 2
    disk.inject(Fault(operation="fdatasync", times=-1))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.fdatasync()
    disk.heal()
    file.fdatasync()
    assert disk.operations["pwritev"] == 5
