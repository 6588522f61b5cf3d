"""A Python that has imported the kits once, and forks for each of their campaigns.

The kit starts a Python for each campaign, as it must for a stranger's storage. To import the kit takes longer than most
campaigns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

BEFORE = [sys.executable, "-m", "blumfeld_kit.real_disk"]
"""The beginning of the kit's commands."""
ROOT = Path(__file__).resolve().parents[3]


class WarmPython:
    """In the place of the module ``subprocess`` of the kit, while a ``with`` block lasts."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> WarmPython:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=60)

    def run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one command. What is no plain campaign (under strace) has a process of its own."""
        if command[: len(BEFORE)] != BEFORE:
            return subprocess.run(command, check=options.pop("check", False), **options)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            order = {"arguments": command[len(BEFORE) :], "folder": folder}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            status = int(self._process.stdout.readline())
            said, complained = ((Path(folder) / name).read_text() for name in ("out", "err"))
        return subprocess.CompletedProcess(command, status, said, complained)


def _serve() -> None:
    """Fork for each line of the input. Print each exit status."""
    import tests.kit.storage_contract.sqlite_storage  # noqa: F401
    from blumfeld_kit.real_disk.__main__ import main

    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            for descriptor, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{order['folder']}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
            sys.argv = [sys.argv[0], *order["arguments"]]
            main()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve()
