"""Faults at a small scale leave nothing behind, others notice nothing; and where something is left, it is seen."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.connection_faults import rounds
from campaigns.connection_faults.__main__ import all_faults, main
from campaigns.connection_faults.fault import Fault, Scene, Wrong
from campaigns.connection_faults.frames import connect, fetch, reset
from campaigns.connection_faults.rounds import at_the_end, do, grows, scene_of

SCALE = 0.005
FAULTS = {fault.name: fault for fault in all_faults()}
PLAIN = [name for name, fault in FAULTS.items() if not fault.settings]
SET_UP = [name for name, fault in FAULTS.items() if fault.settings]
MIB = 1 << 20


def everyday(name: str) -> Any:
    """The slow suite has what takes long, and resets: ``test_objects`` counts what they leave every day."""
    slow = name.startswith(("reset", "strangers")) or "20 MB" in name
    return pytest.param(name, marks=pytest.mark.slow) if slow else name


@pytest.fixture(scope="module", autouse=True)
def _one_topic_of_load() -> Iterator[None]:
    """The campaign has three. They would take more time than all of the faults."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "PAIRS", 1)
        yield


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene_of(tmp_path_factory.mktemp("plain"), (), SCALE) as scene:
        yield scene


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A broker with every limit that a fault asks for."""
    settings = dict.fromkeys(setting for name in SET_UP for setting in FAULTS[name].settings)
    with scene_of(tmp_path_factory.mktemp("tight"), tuple(settings), SCALE) as scene:
        yield scene


@pytest.mark.parametrize("name", [everyday(name) for name in PLAIN])
def test_nothing_is_left_of(name: str, scene: Scene) -> None:
    result = do(FAULTS[name], scene, repetitions=1)
    assert result.wrong == []
    assert result.said


@pytest.mark.parametrize("name", [everyday(name) for name in SET_UP])
def test_with_limits_nothing_is_left_of(name: str, tight: Scene) -> None:
    assert do(FAULTS[name], tight, repetitions=1).wrong == []


def test_what_is_left_is_seen(scene: Scene) -> None:
    """A fetch that waits on a connection that stays."""
    kept: list[socket.socket] = []

    def act(scene: Scene) -> str:
        kept.append(connect(scene.address))
        kept[0].sendall(fetch(scene.quiet_topic, 0, 1_000, 60_000))
        return "one stays"

    result = do(Fault("leaves something", act, settle_s=0.3), scene)
    reset(kept[0])
    assert result.wrong == ["leaked: 1 socket descriptors", "leaked: 1 connections", "leaked: 1 parked"]


def test_a_stall_is_seen(scene: Scene) -> None:
    def act(scene: Scene) -> str:
        os.kill(scene.broker.pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(scene.broker.pid, signal.SIGCONT)
        return "stopped for a second"

    (wrong,) = do(Fault("stalls", act, stall_ms=350.0), scene, repetitions=1).wrong
    assert wrong.startswith("the background load was stalled for")


def test_what_a_fault_finds_is_wrong(scene: Scene) -> None:
    def act(_: Scene) -> str:
        raise Wrong("it answered nonsense")

    assert do(Fault("finds something", act), scene).wrong == ["Wrong: it answered nonsense"]


@pytest.mark.parametrize(
    ("rss_mib", "is_leak"),
    [
        ((40, 90, 90, 90), False),
        ((40, 50, 60, 70), True),
        ((40, 50, 49, 70), False),
        ((40, 50, 55, 55), False),
        ((40, 50, 60, 70, 70), False),
        ((40, 50, 60), False),
        ((40, 90), False),
    ],
)
def test_memory_may_grow_but_not_without_end(rss_mib: tuple[int, ...], is_leak: bool) -> None:
    assert grows([size * MIB for size in rss_mib]) is is_leak


def test_at_the_end_nothing_is_lost_and_the_broker_stops(scene: Scene) -> None:
    """Last in this file: the broker is stopped."""
    assert at_the_end(scene) == []


def test_a_name_that_no_fault_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no such fault"]) == 1
    assert "no fault is named like" in capsys.readouterr().out


def test_names_tell_faults_apart(tmp_path: Path) -> None:
    assert len(FAULTS) == len(all_faults())
