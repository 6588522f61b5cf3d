"""The killer with a script as its driver: it tells a driver that continues from one that ends or hangs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from campaigns.archive.common.process import Command
from campaigns.archive.crashes import killer
from campaigns.archive.crashes.killer import Killer
from campaigns.waits import await_true

pytestmark = pytest.mark.archive

DRIVER = """
import pathlib, subprocess, sys, time
folder, life_s = pathlib.Path(sys.argv[1]), float(sys.argv[2])
jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "SparkSubmit"])
began = time.monotonic()
while time.monotonic() < began + life_s:
    number = len(list(folder.glob("*.commit")))
    if jvm.poll() is None:
        (folder / f"{number}.commit").touch()
    elif sys.argv[3] == "ends":
        sys.exit(1)
    time.sleep(0.02)
"""


class _Broker:
    address = "nowhere:1"

    def __init__(self) -> None:
        self.kills = self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def kill(self) -> None:
        self.kills += 1


class _Sink:
    """A sink whose commits are files."""

    def __init__(self, folder: Path, when_the_jvm_is_gone: str, life_s: float = 60.0) -> None:
        self._folder = folder
        self._then = when_the_jvm_is_gone
        self._life_s = life_s
        self.asked: list[int] = []

    def start(self, max_offsets: int) -> Command:
        self.asked.append(max_offsets)
        command = [sys.executable, "-c", DRIVER, str(self._folder), str(self._life_s), self._then]
        return Command(command, self._folder / f"{len(self.asked)}.log")

    def commits(self) -> int:
        return len(list(self._folder.glob("*.commit")))


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killer, "PROGRESS_S", 1.5)
    monkeypatch.setattr(killer, "AFTER_PROGRESS_S", 0.05)
    monkeypatch.setattr(killer, "START_S", 0.05)
    monkeypatch.setattr(killer, "PAUSE_S", 0.05)


def test_all_are_killed_as_often_and_drivers_that_end_are_started_again(tmp_path: Path) -> None:
    sink, broker = _Sink(tmp_path, "ends"), _Broker()
    result = Killer(sink.start, sink.commits, broker, 1, lambda line: None).run(
        6, ("driver", "jvm", "broker")
    )
    assert result.wrong == []
    assert sum(result.kills.values()) == 6
    assert broker.kills == broker.starts == result.kills["broker"] == 2
    assert result.ended["jvm: 1"] == result.kills["jvm"]
    assert result.starts == len(sink.asked) == 1 + result.kills["driver"] + result.kills["jvm"]
    assert len(set(sink.asked)) > 1, "batches of another size after each start"


def test_a_driver_that_neither_goes_on_nor_ends_is_wrong(tmp_path: Path) -> None:
    sink = _Sink(tmp_path, "hangs")
    result = Killer(sink.start, sink.commits, _Broker(), 1, lambda line: None).run(1, ("jvm",))
    assert "neither went on nor ended" in "".join(result.wrong)


def test_a_driver_that_never_commits_anything_ends_the_kills(tmp_path: Path) -> None:
    sink = _Sink(tmp_path, "ends", life_s=0.0)
    with pytest.raises(RuntimeError, match="does not start"):
        Killer(sink.start, sink.commits, _Broker(), 1, lambda line: None).run(3)


def test_a_commands_whole_family_ends_with_it(tmp_path: Path) -> None:
    command = Command([sys.executable, "-c", DRIVER, str(tmp_path), "60", "ends"], tmp_path / "c.log")
    assert await_true(lambda: len(command.family()) == 2, 60)
    command.kill_all()
    assert await_true(lambda: command.family() == [], 60)


def test_a_process_of_someone_else_is_no_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reuses ids, so a session of the same number may be a stranger's."""
    stranger = Command([sys.executable, "-c", "import time; time.sleep(300)"], tmp_path / "stranger.log")
    ended = Command([sys.executable, "-c", ""], tmp_path / "ended.log")
    ended.wait(90)
    monkeypatch.setattr(Command, "pid", stranger.pid)
    ended.kill_all()
    assert stranger.running
    stranger.kill_all()
    assert not stranger.running
