"""Storages that lose data on a real disk are found, each by the name of its lie; one that does its own I/O passes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from blumfeld.testing.not_tried import said_by, summary
from blumfeld.testing.real_disk.flushes import Unseen, unsynced_flushes
from tests.testing.storage_contract.sqlite_storage import (
    FlushesNothingKit,
    HonestKit,
    OneTransactionKit,
    SwallowsErrorsKit,
)

KILLED = "test_killed_behind_a_write_it_has_all_that_was_acknowledged"
TORN = "test_killed_within_a_write_it_has_all_that_was_acknowledged"
FAULTS = "test_a_write_that_fails_is_never_acknowledged"
FLUSH = "test_a_flush_reaches_the_device"

NEEDS_STRACE = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def run(kit: type[HonestKit], test: str, folder: Path) -> None:
    getattr(kit(), test)(folder)


@pytest.mark.parametrize("test", [KILLED, TORN, FAULTS, pytest.param(FLUSH, marks=NEEDS_STRACE)])
def test_an_honest_storage_passes_whatever_does_its_io(tmp_path: Path, test: str) -> None:
    run(HonestKit, test, tmp_path)


@pytest.mark.parametrize(
    ("kit", "test", "said"),
    [
        (
            OneTransactionKit,
            KILLED,
            r"after SIGKILL behind an acknowledged write: \d+ of \d+ batches that were ack",
        ),
        (OneTransactionKit, TORN, r"batches that were acknowledged are not there"),
        (SwallowsErrorsKit, FAULTS, r"after writes that could not be done.*acknowledged are not there"),
        pytest.param(
            FlushesNothingKit, FLUSH, r"flush 1 was done without a sync of records\.db", marks=NEEDS_STRACE
        ),
    ],
    ids=["one transaction", "one transaction, torn", "swallows errors", "flushes nothing"],
)
def test_a_liar_is_found(tmp_path: Path, kit: type[HonestKit], test: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        run(kit, test, tmp_path)


def test_a_storage_that_says_nothing_of_a_real_disk_is_listed(tmp_path: Path) -> None:
    """Not green in silence: the reason comes at the end of the run."""

    class Silent(HonestKit):
        make_storage_in = HonestKit.__mro__[3].make_storage_in  # type: ignore[attr-defined]

    with pytest.raises(pytest.skip.Exception) as skipped:
        run(Silent, KILLED, tmp_path)
    said = said_by(str(skipped.value))
    assert said is not None
    assert said[0] == "the storage contract of Silent"
    lines = list(summary([(*said, KILLED)]))
    assert "1 test was not tried" in lines[0]
    assert any("make_storage_in is not overridden" in line for line in lines)
    assert KILLED in lines[-1]


CALLS = """
12 openat(AT_FDCWD</d>, "/d/x/log", O_RDWR|O_CREAT{flags}, 0644) = 5</d/x/log>
12 pwritev(5</d/x/log>, [{{iov_base="..."..., iov_len=80}}], 1, 0) = 80
12 write(6</d/x/index>, "......", 8) = 8
12 write(1<pipe:[7]>, "asked 1\\n", 8) = 8
{sync}
12 write(1<pipe:[7]>, "flushed 1\\n", 10) = 10
12 write(1<pipe:[7]>, "end\\n", 4) = 4
"""


@pytest.mark.parametrize(
    ("sync", "flags", "passes"),
    [
        ("12 fdatasync(5</d/x/log>) = 0", "", True),
        ("13 fsync(5</d/x/log> <unfinished ...>", "", True),
        ("12 syncfs(4</d/x>) = 0", "", True),
        ("", "|O_DSYNC", True),
        ("12 fdatasync(6</d/x/index>) = 0", "", False),
        ("12 sync_file_range(5</d/x/log>, 0, 0, 0) = 0", "", False),
        ("12 fdatasync(5</d/x/log>) = 0\n12 write(5</d/x/log>, ...) = 7", "", False),
        ("", "", False),
    ],
)
def test_a_flush_is_a_sync_of_the_records_file_behind_its_last_write(
    sync: str, flags: str, passes: bool
) -> None:
    wrong = unsynced_flushes(CALLS.format(sync=sync, flags=flags).splitlines(), "/d/x")
    assert (wrong == []) == passes, wrong


def test_what_strace_does_not_show_is_not_taken_for_a_lie() -> None:
    lines = ["12 msync(0x7f, 4096, MS_SYNC) = 0", '12 write(1<pipe:[7]>, "flushed 1\\n", 10) = 10']
    with pytest.raises(Unseen):
        unsynced_flushes(lines, "/d/x")
