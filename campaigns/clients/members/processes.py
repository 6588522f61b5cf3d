"""Members of a group that are programs printing records into files."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from campaigns.clients.client import WAIT_S, Consumed

Parse = Callable[[bytes], Consumed]


def share_by_processes(
    commands: Sequence[Sequence[str]], parse: Parse, count: int, when_started: Callable[[], None]
) -> list[Consumed]:
    """Start the programs, call ``when_started``, and end them by SIGTERM when all has come.

    :param parse: turns what a program printed into records; ValueError while it is cut in the middle
    """

    def printed(path: Path) -> Consumed:
        try:
            return parse(path.read_bytes())
        except (ValueError, IndexError):
            return []

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(n)) for n in range(len(commands))]
        members = []
        for path, command in zip(paths, commands, strict=True):
            with path.open("wb") as out:
                members.append(subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL))
        try:
            when_started()
            deadline = time.monotonic() + WAIT_S
            while sum(len(printed(path)) for path in paths) < count and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            for member in members:
                member.terminate()
            for member in members:
                member.wait(WAIT_S)
        return [printed(path) for path in paths]


def cache_folder(name: str) -> Path:
    """Where a client may keep what it installs: outside of the checkout, below the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root, "blumfeld-clients", name)
