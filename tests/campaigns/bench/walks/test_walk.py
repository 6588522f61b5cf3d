"""A walk has the files that a request passes, from its start to the doors of other walks."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from blumfeld.testing import EmbeddedBroker
from campaigns.bench.walks.__main__ import PRODUCE
from campaigns.bench.walks.client import TOPIC, Client
from campaigns.bench.walks.walk import ROOT, Notes, Walk, own, pass_on

SERVE, STORE, DEEP, TIMER = (f"core/blumfeld/{name}.py" for name in ("serve", "store", "deep", "timer"))


def functions() -> dict[str, Callable[[], None]]:
    """``serve`` calls ``store``, which calls ``deep``; each lies in a file of its own."""
    space: dict[str, Callable[[], None]] = {}
    for file, body in ((SERVE, "store(); timer()"), (STORE, "deep()"), (DEEP, "pass"), (TIMER, "deep()")):
        name = file.rpartition("/")[2].removesuffix(".py")
        exec(compile(f"def {name}():\n    {body}\n", f"{ROOT}/{file}", "exec"), space)
    return space


def noted(walk: Walk, *calls: str) -> set[str]:
    """The files that are noted while these functions are called."""
    space, notes = functions(), Notes(walk)
    sys.setprofile(notes)
    for name in calls:
        space[name]()
    sys.setprofile(None)
    return notes.files


@pytest.mark.parametrize(
    ("walk", "calls", "files"),
    [
        (Walk("everything", 9), ["serve"], {SERVE, STORE, TIMER, DEEP}),
        (Walk("another walk begins", 9, doors=("store.py", "timer.py")), ["serve"], {SERVE, STORE, TIMER}),
        (
            Walk("nobody waits for it", 9, beside=("timer.py",), doors=("store.py",)),
            ["serve"],
            {SERVE, STORE},
        ),
        (Walk("what runs before", 9, start="store.py:store"), ["timer", "store"], {STORE, DEEP}),
        (
            Walk("what does the work", 9, roots=("store.py:store",)),
            ["timer", "store", "timer"],
            {STORE, DEEP},
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Walk) else "",
)
def test_a_walk_has_the_files_from_its_start_to_its_doors(
    walk: Walk, calls: list[str], files: set[str]
) -> None:
    assert noted(walk, *calls) == files


@pytest.mark.slow
def test_a_produce_passes_the_same_files_each_time() -> None:
    with EmbeddedBroker(storage="storage_local") as broker, Client(broker.bootstrap_servers) as client:
        client.create(TOPIC)
        files = pass_on(PRODUCE, broker, client.produce, lambda: None)
        assert files == pass_on(PRODUCE, broker, client.produce, lambda: None)
        assert "core/blumfeld/broker/replicas/partition.py" in own(files)
        with pytest.raises(RuntimeError, match=r"a walk passes none of gone\.py: name the files"):
            pass_on(Walk("a walk", 9, doors=("gone.py",)), broker, client.produce, lambda: None)
