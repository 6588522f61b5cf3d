"""Storages that lose data on a real disk are found, each by the name of its lie; one that does its own I/O passes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld_kit.not_tried import said_by, summary
from blumfeld_kit.real_disk.flushes import Unseen, unsynced_flushes
from blumfeld_kit.storage_contract import real_disk
from tests.kit.storage_contract.sqlite_storage import (
    FlushesNothingKit,
    HonestKit,
    LagsBehindKit,
    LosesSmallFilesKit,
    OneTransactionKit,
    SaysFlushedKit,
    SwallowsErrorsKit,
    SwapsPartitionsKit,
)
from tests.kit.storage_contract.warm_python import WarmPython

KILLED = "test_killed_behind_a_write_it_has_all_that_was_acknowledged"
TORN = "test_killed_within_a_write_it_has_all_that_was_acknowledged"
FAULTS = "test_a_write_that_fails_is_never_acknowledged"
FLUSH = "test_a_flush_reaches_the_device"

NEEDS_STRACE = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module", autouse=True)
def _warm_python() -> Iterator[None]:
    with WarmPython() as python, pytest.MonkeyPatch.context() as patched:
        patched.setattr(real_disk, "subprocess", python)
        yield


def run(kit: type[HonestKit], test: str, folder: Path) -> None:
    getattr(kit(), test)(folder)


@pytest.mark.parametrize("test", [KILLED, TORN, FAULTS, pytest.param(FLUSH, marks=NEEDS_STRACE)])
def test_an_honest_storage_passes_whatever_does_its_io(tmp_path: Path, test: str) -> None:
    run(HonestKit, test, tmp_path)


AFTER_A_KILL = "after SIGKILL behind an acknowledged write: "
LIARS: list[tuple[type[HonestKit], str, list[str]]] = [
    (
        OneTransactionKit,
        KILLED,
        [AFTER_A_KILL + r"topic-0: the log ends at offset \d+; everything below \d+ was acknowledged"],
    ),
    (OneTransactionKit, TORN, [r"everything below \d+ was acknowledged and must be there"]),
    (SwallowsErrorsKit, FAULTS, [r"after writes that could not be done.*acknowledged and must be there"]),
    (SwapsPartitionsKit, KILLED, [AFTER_A_KILL + r"topic-0: .* leader-epoch-checkpoint is 'topic-1/"]),
    (
        LosesSmallFilesKit,
        KILLED,
        [
            AFTER_A_KILL + r"topic-0: leader-epoch-checkpoint is '-'; allowed: 'topic-0/",
            AFTER_A_KILL + r"topic-0: 0+3\.snapshot is '-'; allowed: 'topic-0/",
        ],
    ),
    (
        LagsBehindKit,
        KILLED,
        [
            AFTER_A_KILL + r"the log of gone-0 is back, though it was deleted",
            AFTER_A_KILL + r"topic-0: high-watermark is '-'; allowed: '\d+'",
        ],
    ),
    (FlushesNothingKit, FLUSH, [r"flush 1 was done without a sync of records\.db"]),
    (SaysFlushedKit, FLUSH, [r"^flushed_end_offset counted \d+ bytes in records\.db without a sync"]),
]


@pytest.mark.parametrize(
    ("kit", "test", "said"),
    [pytest.param(*liar, marks=NEEDS_STRACE if liar[1] == FLUSH else ()) for liar in LIARS],
    ids=[f"{kit.__name__.removesuffix('Kit')} {test[5:20]}" for kit, test, _ in LIARS],
)
def test_a_liar_is_found(tmp_path: Path, kit: type[HonestKit], test: str, said: list[str]) -> None:
    with pytest.raises(AssertionError) as failure:
        run(kit, test, tmp_path)
    assert [words for words in said if not re.search(words, str(failure.value))] == []


def test_without_strace_a_flush_to_the_device_is_listed_as_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage whose files go through ``runtime.files`` is tried on the simulated disk on any machine."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(pytest.skip.Exception, match="strace is not installed"):
        run(HonestKit, FLUSH, tmp_path)


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


@pytest.mark.parametrize("mark", ["told 80", "acked-flushed 80"])
def test_what_is_told_to_be_flushed_without_a_flush_is_synced_too(mark: str) -> None:
    """``flushed_end_offset``, and an ack under ``flush.messages``."""
    for sync, count in (("12 fdatasync(5</d/x/log>) = 0", 0), ("", 1)):
        calls = CALLS.format(sync="12 fdatasync(5</d/x/log>) = 0", flags="").splitlines()
        written = [*calls[:3], sync, f'12 write(1<pipe:[7]>, "{mark}\\n", 8) = 8']
        assert len(unsynced_flushes([*written, *calls], "/d/x")) == count


def test_what_strace_does_not_show_is_not_taken_for_a_lie() -> None:
    lines = ["12 msync(0x7f, 4096, MS_SYNC) = 0", '12 write(1<pipe:[7]>, "flushed 1\\n", 10) = 10']
    with pytest.raises(Unseen):
        unsynced_flushes(lines, "/d/x")
