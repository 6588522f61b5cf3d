"""The supervisor with real processes: short programs that say they are ready, as a node does."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from blumfeld.kernel.supervising import supervisor as module
from blumfeld.kernel.supervising.supervisor import SupervisedNode, Supervisor
from tests.kernel import fakes

NODE = """
import os, signal, sys
name, path, then = sys.argv[1:]
def note(what):
    with open(path, "a") as file:
        file.write(f"{name} {what}\\n")
def stop(*_):
    note("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN if then == "ignores" else stop)
if then.isdigit():
    print("could not start", file=sys.stderr)
    sys.exit(int(then))
note(f"ready {os.getpid()}")
print(f"{name} ready on nowhere", flush=True)
while True:
    signal.pause()
"""
SECONDS_MAX = 30


class Watched:
    """A supervisor of such processes, and what it and they said."""

    def __init__(self, tmp_path: Path, leader: int | None = None, **then: str) -> None:
        self.path = tmp_path / "notes"
        self.path.touch()
        self.then = then
        self.out, self.err = io.BytesIO(), io.BytesIO()
        self.times_ready = 0
        self.leader = leader

    def node(self, name: str) -> SupervisedNode:
        node_id = int(name[1:])
        command = [sys.executable, "-I", "-S", "-c", NODE, name, str(self.path), self.then[name]]
        return SupervisedNode(node_id, command, is_controller=name.startswith("c"))

    async def ask_leader(self) -> int | None:
        return self.leader

    def all_ready(self) -> None:
        self.times_ready += 1

    def notes(self, what: str) -> list[list[str]]:
        """The notes of this kind, each as words."""
        entries = [line.split() for line in self.path.read_text().splitlines()]
        return [words for words in entries if words[1] == what]

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(SECONDS_MAX):
            while not condition():
                await anyio.sleep(0.01)

    async def stop_once_ready(self, *signals: int) -> None:
        await self.until(lambda: self.times_ready == 1)
        for number in signals:
            os.kill(os.getpid(), number)

    def run(self, doing: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """The supervisor's status; ``doing`` runs beside it."""

        async def main() -> int:
            nodes = [self.node(name) for name in self.then]
            events = fakes.silent_logs().named("supervisor")
            supervisor = Supervisor(nodes, events, self.ask_leader, self.all_ready, self.out, self.err)
            status = -1
            with anyio.fail_after(SECONDS_MAX):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(doing)
                    status = await supervisor.run()
            return status

        return anyio.run(main)


def test_nodes_serve_and_stop_in_order(tmp_path: Path) -> None:
    watched = Watched(tmp_path, 1, c1="serves", c2="serves", c3="serves", b4="serves")
    assert watched.run(lambda: watched.stop_once_ready(signal.SIGTERM)) == 0
    stopped = [name for name, _ in watched.notes("stopped")]
    assert stopped[:2] == ["b4", "c2"]
    assert sorted(stopped[2:]) == ["c1", "c3"], "the last majority, with the leader in it"
    assert watched.times_ready == 1
    lines = watched.out.getvalue().decode().splitlines()
    assert sorted(lines) == [f"node-{name[1]} | {name} ready on nowhere" for name in ("c1", "c2", "c3", "b4")]


def test_a_killed_node_is_started_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, c1="serves", b2="serves")

    async def doing() -> None:
        await watched.until(lambda: watched.times_ready == 1)
        pid = next(int(words[2]) for words in watched.notes("ready") if words[0] == "b2")
        os.kill(pid, signal.SIGKILL)
        await watched.until(lambda: len(watched.notes("ready")) == 3)
        os.kill(os.getpid(), signal.SIGTERM)

    assert watched.run(doing) == 0
    assert [words[0] for words in watched.notes("ready")].count("b2") == 2
    assert [words[0] for words in watched.notes("stopped")] == ["b2", "c1"]
    assert watched.times_ready == 1, "said once"


def test_a_node_that_was_stopped_from_outside_is_started_again(tmp_path: Path) -> None:
    watched = Watched(tmp_path, c1="serves")

    async def doing() -> None:
        await watched.until(lambda: watched.times_ready == 1)
        os.kill(int(watched.notes("ready")[0][2]), signal.SIGTERM)
        await watched.until(lambda: len(watched.notes("ready")) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    assert watched.run(doing) == 0


@pytest.mark.parametrize("status", ["1", "2"])
def test_a_node_that_cannot_start_ends_all(tmp_path: Path, status: str) -> None:
    watched = Watched(tmp_path, c1="serves", b2=status)

    async def doing() -> None:
        return

    assert watched.run(doing) == int(status)
    assert watched.err.getvalue() == b"node-2 | could not start\n"
    assert len(watched.notes("ready")) == len(watched.notes("stopped")) <= 1
    assert watched.times_ready == 0


def test_a_node_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S_MAX", 0.1)
    watched = Watched(tmp_path, c1="serves", b2="ignores")
    assert watched.run(lambda: watched.stop_once_ready(signal.SIGTERM)) == 0
    assert [words[0] for words in watched.notes("stopped")] == ["c1"]


def test_a_second_signal_kills(tmp_path: Path) -> None:
    watched = Watched(tmp_path, c1="ignores", b2="ignores")
    assert watched.run(lambda: watched.stop_once_ready(signal.SIGTERM, signal.SIGINT)) == 128 + signal.SIGINT


ORPHAN = """
import signal, subprocess, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
signal.pause()
"""
CHILD = """
import os, signal
from blumfeld.kernel.supervising.orphans import stop_with
print(stop_with(os.getppid()), stop_with(os.getppid() + 1), os.getpid(), flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_node_stops_with_its_supervisor() -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, CHILD], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    lives, other, pid = parent.stdout.readline().split()
    assert (lives, other) == ("True", "False")
    child = os.pidfd_open(int(pid))
    parent.kill()
    parent.communicate()
    assert select.select([child], [], [], SECONDS_MAX)[0], "the child ended"
    os.close(child)
