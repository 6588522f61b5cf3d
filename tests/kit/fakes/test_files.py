"""The disk in memory: what is seen, what a crash may take and may not, faults."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from blumfeld.spi.runtime import File, Files
from blumfeld_kit.fakes.files import Adversary, FakeDisk, FakeFiles, Fault, Luck


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


def test_a_crash_keeps_what_was_synced_and_anything_of_the_rest() -> None:
    whole = b"durable." + b"".join(b"%d" % n * 8 for n in range(4))
    sizes, names, holes = set(), set(), False
    for seed in range(200):
        _, files = crashed(seed)
        listed = files.list_dir("/d")
        assert listed in (["f"], ["g"], ["f", "new"], ["g", "new"])
        data = files.read_bytes(f"/d/{listed[0]}")
        assert data.startswith(b"durable.")
        assert all(byte in (0, whole[at]) for at, byte in enumerate(data)), "old or new, nothing else"
        sizes.add(len(data))
        holes |= b"\0" in data.rstrip(b"\0")
        names.add(tuple(listed))
    assert {8, 40} < sizes
    assert any(size % 8 for size in sizes), "a torn write"
    assert holes, "a later write without an earlier one"
    assert len(names) == 4


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


def after(cut: Adversary) -> dict[str, bytes]:
    """Two writes behind a durable one, a name that was changed, a file that was made, one that was removed."""
    disk = FakeDisk()
    files = disk.mount(lambda: 0)
    files.make_dirs("/d")
    files.sync_dir("/")
    for name in ("old", "gone"):
        file = files.open(f"/d/{name}", create=True)
        file.pwritev([b"durable"], 0)
        file.fdatasync()
    files.sync_dir("/d")
    files.rename("/d/old", "/d/renamed")
    made = files.open("/d/made", create=True)
    files.unlink("/d/gone")
    for file in (files.open("/d/renamed"), made):
        size = file.size()
        file.pwritev([b"one"], size)
        file.pwritev([b"two"], size + 3)
    disk.crash(cut)
    files = disk.mount(lambda: 0)
    return {name: files.read_bytes(f"/d/{name}") for name in files.list_dir("/d")}


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        (Adversary.LOSE, {"gone": b"durable", "old": b"durable"}),
        (Adversary.KEEP, {"made": b"onetwo", "renamed": b"durableonetwo"}),
        (Adversary.NAMES, {"made": b"", "renamed": b"durable"}),
        (Adversary.SIZES, {"made": bytes(6), "renamed": b"durable" + bytes(6)}),
        (Adversary.DATA, {"gone": b"durable", "old": b"durableonetwo"}),
        (Adversary.NEWEST, {"old": b"durable\0\0\0two"}),
        (Adversary.OLDEST, {"gone": b"durable", "renamed": b"durableone"}),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Adversary) else "",
)
def test_an_adversary_keeps_what_it_says(cut: Adversary, left: dict[str, bytes]) -> None:
    assert after(cut) == left


def test_a_small_file_is_the_old_or_the_new_one_at_every_step() -> None:
    for step in ("", ":fdatasync", ":rename", ":sync_dir"):
        for cut in (None, *Adversary):
            copy = FakeDisk()
            mine = copy.mount(lambda: 0)
            mine.make_dirs("/d")
            mine.sync_dir("/")
            mine.write_atomically("/d/small", b"old")
            copy.watch = die_at(copy, f"write_atomically{step}", cut)
            with pytest.raises(OSError, match="dead"):
                mine.write_atomically("/d/small", b"new one")
            copy.watch = None
            assert copy.mount(lambda: 0).read_bytes("/d/small") in (b"old", b"new one")


def die_at(disk: FakeDisk, operation: str, cut: Adversary | None) -> Callable[[str, str], None]:
    """The process, or the power, ends before that operation."""

    def watch(what: str, _: str) -> None:
        if what == operation:
            disk.kill() if cut is None else disk.crash(cut)

    return watch


def test_a_tree_is_removed_file_by_file(disk: FakeDisk, files: FakeFiles) -> None:
    files.make_dirs("/d/sub")
    for name in "abc":
        files.open(f"/d/sub/{name}", create=True).close()
    removed = 0

    def watch(what: str, _: str) -> None:
        nonlocal removed
        removed += what == "remove_tree"
        if removed == 4:
            disk.kill()

    disk.watch = watch
    with pytest.raises(OSError, match="dead"):
        files.remove_tree("/d/sub")
    disk.watch = None
    assert disk.mount(lambda: 0).list_dir("/d/sub") == ["c"]


def test_a_full_disk_takes_what_fits(disk: FakeDisk, files: FakeFiles) -> None:
    file = files.open("/d/f", create=True)
    disk.room = 5
    assert file.pwritev([b"abc"], 0) == 3
    assert files.space("/d")[1] == 2
    assert file.pwritev([b"defg"], 3) == 2
    with pytest.raises(OSError, match="No space"):
        file.pwritev([b"x"], 5)
    assert file.pwritev([b"ABC"], 0) == 3
    with pytest.raises(OSError, match="No space"):
        files.write_atomically("/d/small", b"x")
    disk.heal()
    files.write_atomically("/d/small", b"x")


def test_a_directory_that_is_remounted_read_only_can_be_read(disk: FakeDisk, files: FakeFiles) -> None:
    file = files.open("/d/f", create=True)
    file.pwritev([b"abc"], 0)
    disk.read_only.add("/d")
    changes: list[Callable[[], object]] = [
        lambda: file.pwritev([b"x"], 3),
        file.fdatasync,
        lambda: file.truncate(0),
        lambda: files.open("/d/new", create=True),
        lambda: files.rename("/d/f", "/d/g"),
        lambda: files.unlink("/d/f"),
        lambda: files.write_atomically("/d/small", b""),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only"):
            change()
    assert files.open("/d/f", write=False).pread(3, 0) == b"abc"
    files.make_dirs("/elsewhere")
    assert files.list_dir("/d") == ["f"]


def test_descriptors_run_out(disk: FakeDisk, files: FakeFiles) -> None:
    disk.open_files_max = 1
    file = files.open("/d/f", create=True)
    with pytest.raises(OSError, match="Too many open files"):
        files.open("/d/f")
    file.close()
    files.open("/d/f").close()


def test_damage_at_rest_is_no_change_that_a_crash_undoes(disk: FakeDisk, files: FakeFiles) -> None:
    file = files.open("/d/f", create=True)
    file.pwritev([b"abcdef"], 0)
    file.fdatasync()
    files.sync_dir("/d")
    disk.flip_bit("/d/f", 1)
    disk.damage("/d/f", b"XY", 4)
    disk.crash(Adversary.LOSE)
    assert disk.mount(lambda: 0).read_bytes("/d/f") == b"accdXY"


def test_cold_bytes_are_cold_until_they_are_read(disk: FakeDisk, files: FakeFiles) -> None:
    file = files.open("/d/f.log", create=True)
    file.pwritev([bytes(20_000)], 0)
    assert file.is_cached(0, 20_000)
    disk.chill(".log")
    assert not file.is_cached(0, 1)
    file.read_ahead(0, 5000)
    assert file.is_cached(0, 8192)
    assert not file.is_cached(0, 8193)
    file.pread(100, 0)
    assert disk.cold_reads == 0
    file.pread(1, 12_288)
    assert disk.cold_reads == 1
    assert file.is_cached(12_288, 4096)
    disk.chill()
    assert file.is_cached(0, 20_000)
