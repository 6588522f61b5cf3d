"""The part of the storage contract about a real disk: killed processes, failed writes, and syncs seen by strace."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

from blumfeld_kit.real_disk.flushes import TRACED, Unseen, unsynced_flushes
from blumfeld_kit.storage_contract.kit import StorageKit

TIMEOUT_S = 120
_SEEN_MAX = 5


class StorageRealDisk(StorageKit):
    """The real-disk part of ``StorageContract``. Needs ``make_storage_in``. The files lie below pytest's
    ``tmp_path``.
    """

    def test_killed_behind_a_write_it_has_all_that_was_acknowledged(self, tmp_path: Path) -> None:
        """After SIGKILL, again and again, all acknowledged batches are there in order, and no refused one is."""
        deaths, _ = self._run_campaign("kills", tmp_path)
        assert deaths > 0

    def test_killed_within_a_write_it_has_all_that_was_acknowledged(self, tmp_path: Path) -> None:
        """SIGKILL in the middle of a write, of which a part is in the file, loses no acknowledged batch."""
        deaths, _ = self._run_campaign("torn", tmp_path)
        assert deaths > 0

    def test_a_write_that_fails_is_never_acknowledged(self, tmp_path: Path) -> None:
        """A write that fails, wholly or in part, is never acknowledged. The process lives on, and a SIGKILL then shows
        the file.
        """
        self._run_campaign("faults", tmp_path)

    def test_a_flush_reaches_the_device(self, tmp_path: Path) -> None:
        """Before a flush completes, before ``flushed_end_offset`` counts a batch, and before an ack under
        ``flush.messages``, the storage syncs the file of the records (fsync, fdatasync or the like), as strace shows.
        """
        strace = self._strace()
        if strace is None:
            self.not_tried("strace is not installed, or may not trace: whether a flush reaches the device")
        trace = tmp_path / "trace"
        traced = [strace, "-f", "-y", "-qq", "-s", "24", "-e", f"trace={TRACED}", "-o", str(trace)]
        self._run_campaign("syncs", tmp_path, traced)
        lines = trace.read_text(errors="replace").splitlines()
        try:
            wrong = unsynced_flushes(lines, str(_directory(tmp_path, "syncs")))
        except Unseen as unseen:
            self.not_tried(f"{unseen}: whether a flush reaches the device")
        assert wrong == [], "; ".join(wrong[:_SEEN_MAX])

    def _strace(self) -> str | None:
        """Return the path of strace if it is installed and may trace here."""
        strace = shutil.which("strace")
        if strace is None:
            return None
        probe = [strace, "-qq", "-e", "trace=none", "true"]
        allowed = subprocess.run(probe, capture_output=True, check=False, timeout=TIMEOUT_S).returncode == 0
        return strace if allowed else None

    def _run_campaign(self, campaign: str, folder: Path, before: list[str] | None = None) -> tuple[int, int]:
        """Run a campaign in a process of its own, and fail the test with what it found. Return (deaths, refused
        writes).
        """
        self.need_restart()
        kit = type(self)
        if kit.make_storage_in is StorageKit.make_storage_in:
            self.not_tried("make_storage_in is not overridden: deaths on a real disk, failed writes, syncs")
        if "<locals>" in kit.__qualname__:
            self.not_tried(
                "the class is local to a function, and can't be imported by a process that is killed"
            )
        directory = _directory(folder, campaign)
        directory.mkdir()
        where = [inspect.getfile(kit), kit.__module__, kit.__qualname__, str(directory), campaign]
        command = [*(before or []), sys.executable, "-m", "blumfeld_kit.real_disk", *where]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, timeout=TIMEOUT_S
        )
        lines = ran.stdout.splitlines()
        broken = [line.removeprefix("broken ") for line in lines if line.startswith("broken ")]
        assert broken == [], "; ".join(broken[:_SEEN_MAX])
        tried = next((line.split() for line in lines if line.startswith("tried ")), None)
        assert tried is not None, f"exit status {ran.returncode}: {ran.stderr[-2000:]}"
        return int(tried[1]), int(tried[2])


def _directory(folder: Path, campaign: str) -> Path:
    return folder / campaign
