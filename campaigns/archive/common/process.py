"""``blumfeld archive …`` and other commands as processes, together with the processes that they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

TOKEN = "BLUMFELD_TEST_COMMAND"
"""Environment variable that marks a command and all processes that it starts."""
QUICK_START = "-XX:TieredStopAtLevel=1"
"""JVM option: no second compiler. It halves the time to the first batch, and these JVMs don't live long."""


@attrs.frozen
class Outcome:
    """The end of a command."""

    status: int | None
    """Exit status; None if the command didn't end in time and was killed."""
    out: str
    err: str
    seconds: float

    @property
    def said(self) -> str:
        """The last lines that the command printed, for people."""
        lines = [line for line in (self.err or self.out).splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-400:]


class Command:
    """A command in a session of its own. ``kill_all`` ends all processes that it started, and no others."""

    def __init__(self, arguments: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        # The kernel reuses process ids, so a session's number may be a stranger's. Only marked processes are killed.
        self._token = f"{TOKEN}={uuid.uuid4().hex}"
        name, _, value = self._token.partition("=")
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                list(arguments),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**(os.environ if env is None else env), name: value},
            )
        self._began = time.monotonic()

    @property
    def pid(self) -> int:
        """Process id of the command, which is also its session's id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the command itself still runs."""
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> Outcome:
        """Waits for the command's end. At the timeout kills it and all processes that it started."""
        status: int | None
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            status = None
        except BaseException:  # this process ends too, and must leave none behind
            self.kill_all()
            raise
        out, err = (path.read_bytes().decode(errors="replace") for path in (self._out, self._err))
        return Outcome(status, out, err, time.monotonic() - self._began)

    def kill(self) -> None:
        """Kills only the command by SIGKILL. Processes that it started have to notice by themselves."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Sends SIGTERM to the command alone."""
        self._process.terminate()

    def kill_all(self) -> None:
        """Kills the command and all processes that it started."""
        for pid, _ in self.family():
            kill_process(pid)
        if self.running:
            self._process.kill()
        self._process.wait()

    def family(self) -> list[tuple[int, str]]:
        """Returns (pid, command line) of the command's living processes.

        The mark in their environment finds them, because the JVM has a session of its own.
        """
        members = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._token.encode() not in (folder / "environ").read_bytes().split(b"\0"):
                    continue
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended while we looked, or is a stranger's
            members.append((int(folder.name), line))
        return sorted(members)


def kill_process(pid: int) -> bool:
    """Kills a process by SIGKILL. Returns whether it existed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Archive:
    """An archive under test: its settings, and ``blumfeld archive`` with them."""

    def __init__(self, folder: Path, bootstrap: str, topics: Sequence[str], **settings: object) -> None:
        """:param settings: keys of the section ``[archive]``"""
        self.folder = folder
        self.root = folder / "archive"
        self.settings: dict[str, object] = {
            "bootstrap": bootstrap,
            "topics": list(topics),
            "root": str(self.root),
            "master": "local[2]",
            "spark": {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": QUICK_START},
            **settings,
        }
        self.env: dict[str, str] | None = None
        self._runs = 0
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, verb: str, *arguments: str, **settings: object) -> Command:
        """Starts a verb with a settings file. ``settings`` override those of this archive, for this run."""
        self._runs += 1
        config = self.folder / f"{self._runs:03d}-{verb}.toml"
        config.write_text(_toml({**self.settings, **settings}))
        return self._launch(verb, "--config", str(config), *arguments)

    def run(self, verb: str, *arguments: str, timeout_s: float = 180.0, **settings: object) -> Outcome:
        """Runs a verb to its end, like ``start``."""
        return self.start(verb, *arguments, **settings).wait(timeout_s)

    def look(self, verb: str, *arguments: str, timeout_s: float = 120.0) -> Outcome:
        """Runs a verb that only reads the archive, with no option but ``--root``."""
        self._runs += 1
        return self._launch(verb, "--root", str(self.settings["root"]), *arguments).wait(timeout_s)

    def _launch(self, verb: str, *arguments: str) -> Command:
        return Command(
            [*archive_command(verb), *arguments], self.folder / f"{self._runs:03d}-{verb}.log", self.env
        )


def archive_command(verb: str) -> list[str]:
    """Returns the command line of ``blumfeld archive VERB`` of this build."""
    return [sys.executable, "-m", "blumfeld.cli.main", "archive", verb]


def _toml(settings: Mapping[str, object]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in settings.items()]
    return "\n".join(["[archive]", *lines, ""])


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)  # strings, numbers, booleans and lists of them are written alike
