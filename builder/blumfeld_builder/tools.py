"""Runs pip and pex: in an environment of their own, so that what they find depends on the manifest alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, NamedTuple

REACHES_AN_INDEX = (
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_KEYRING_PROVIDER",
    "PIP_PROXY",
    "PIP_TIMEOUT",
    "PIP_TRUSTED_HOST",
)
"""Settings that say how an index is reached. All others of pip's would change what is found there."""
OWN_SETTINGS = ("PIP_", "PEX_", "PYTHON", "PYTEST_", "HYPOTHESIS_")
"""Beginnings of the names of the tools' settings."""
TIMES = 315532800
"""The time of all files that are written: 1980, where the times of a zip begin."""


TRACEBACK = "Traceback (most recent call last)"


class Said(NamedTuple):
    """What a program printed."""

    output: str
    error: str


class ToolFailed(Exception):  # noqa: N818 - reads as what happened
    """A tool ended with an error; ``said`` is what it printed. Of a traceback the message has the last line."""

    def __init__(self, tool: str, said: Said) -> None:
        text = said.error or said.output
        reason = text.splitlines()[-1] if TRACEBACK in text else text
        super().__init__(f"{tool} failed: {reason}")
        self.said = said


def run_module(module: str, *arguments: str, cwd: str, env: Mapping[str, str] | None = None) -> Said:
    """Run a module of this environment as a program. Returns what it printed.

    :param cwd: a folder in which nothing lies that Python would import
    :raises ToolFailed: it ended with another status than 0
    """
    return run_program([sys.executable, "-m", module, *arguments], module, cwd=cwd, env=env)


def run_program(command: Sequence[str], tool: str, *, cwd: str, env: Mapping[str, str] | None = None) -> Said:
    """As :func:`run_module`, for any program."""
    status, said = run_to_end(command, cwd=cwd, env=env)
    if status != 0:
        raise ToolFailed(tool, said)
    return said


def run_to_end(
    command: Sequence[str], *, cwd: str, env: Mapping[str, str] | None = None, timeout_s: float | None = None
) -> tuple[int, Said]:
    """Run a program. Returns its exit status, and what it printed. The files that it writes may be read by all.

    Processes that it has started, and left, end with it; after a time-out or an interrupt it ends, too.

    :param env: is laid over :func:`environment`
    :raises subprocess.TimeoutExpired: it had no end in ``timeout_s``
    """
    # Into files, not pipes: a process that the program leaves may hold a pipe open long after its end.
    with TemporaryFile() as output, TemporaryFile() as error:
        with subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment(), **(env or {})},
            umask=0o022,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error,
            start_new_session=True,
        ) as program:
            try:
                program.wait(timeout_s)
            finally:
                with suppress(ProcessLookupError):  # nothing is left of it
                    os.killpg(program.pid, signal.SIGKILL)
        return program.returncode, Said(_text(output), _text(error).strip())


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def environment() -> dict[str, str]:
    """Returns the environment of a tool: this one's, without what would change what the tool finds or how it prints."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(OWN_SETTINGS) or name in REACHES_AN_INDEX
    }
    return {
        **kept,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "LC_ALL": "C.UTF-8",
        "PEX_IGNORE_RCFILES": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SOURCE_DATE_EPOCH": str(TIMES),
    }
