"""A walk: the files of this repository that a request passes, as a profiler of Python notes them.

A walk has the files of the product in which a function is called. A reader doesn't open a file of which only properties
are read, so it doesn't count.

The *ground* serves every request, and one follows a request without opening it: messages and batches (``wire``),
configuration, contracts (``spi``), the kernel with its runtime, sockets and frames (``net``, ``client``, the
transport), and the storage.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import attrs

from blumfeld.testing.embedded import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[3]
HARNESS = f"{ROOT}/core/blumfeld/testing/"
PRODUCT = (f"{ROOT}/core/blumfeld/", f"{ROOT}/plugins/")
GROUND = (
    *(f"core/blumfeld/{room}/" for room in ("wire", "config", "spi", "kernel", "net", "client")),
    *("plugins/net_asyncio/", "plugins/storage_local/"),
)
REQUESTS = 5
"""Requests that are noted. A file that not all of them pass was opened by a timer that fired meanwhile."""
SETTLE_S = 0.2
"""Time after each answer for what follows it, such as the markers after EndTxn."""

Files = frozenset[str]


@attrs.frozen
class Walk:
    """One request, and where its walk begins and ends. A function is written ``end of its file's path:name``."""

    name: str
    aim: int
    """Most files that it should pass."""
    roots: tuple[str, ...] = ()
    """Functions that do the work, with all that they call. Without any, everything that the broker's thread calls."""
    start: str = ""
    """Nothing that is called before this function counts."""
    doors: tuple[str, ...] = ()
    """Files behind which another walk begins: they count, and what they call doesn't."""
    beside: tuple[str, ...] = ()
    """Files with work that the answer doesn't wait for: neither they nor what they call counts."""


class Notes:
    """Notes the files of a walk: a function for :func:`sys.setprofile`.

    :param properties: the code of properties, which isn't noted
    """

    def __init__(self, walk: Walk, properties: frozenset[CodeType] = frozenset()) -> None:
        self.files: set[str] = set()
        self._walk = walk
        self._properties = properties
        self._started = not walk.start
        self._inside = 0
        """Calls under way that count."""
        self._away = 0
        """Calls under way that don't, within one that leads away from the walk."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Take an event of the profiler. Calls of C functions have other names, and are passed over."""
        if event == "call":
            self._called(frame.f_code)
        elif event == "return" and self._away:
            self._away -= 1
        elif event == "return" and self._inside:
            self._inside -= 1

    def _called(self, code: CodeType) -> None:
        walk = self._walk
        function = f"{code.co_filename}:{code.co_qualname}"
        self._started = self._started or function.endswith(walk.start)
        if self._away or (walk.beside and code.co_filename.endswith(walk.beside)):
            self._away += 1
            return
        if not self._inside and not (self._started and (not walk.roots or function.endswith(walk.roots))):
            return
        self._note(code)
        if walk.doors and code.co_filename.endswith(walk.doors):
            self._away += 1
        else:
            self._inside += 1

    def _note(self, code: CodeType) -> None:
        path = code.co_filename
        if path.startswith(PRODUCT) and not path.startswith(HARNESS) and code not in self._properties:
            self.files.add(path.removeprefix(f"{ROOT}/"))


def pass_on(
    walk: Walk, broker: EmbeddedBroker, request: Callable[[], object], prepare: Callable[[], object]
) -> Files:
    """Return the files that all of some requests pass. The first two, which import modules, aren't noted.

    :param prepare: is called before each request, and isn't noted
    :raises RuntimeError: a function or a file that the walk names is not on it any more
    """
    noted = []
    for number in range(2 + REQUESTS):
        prepare()
        with _profiled(walk, broker) as notes:
            request()
            time.sleep(SETTLE_S)
        if number >= 2:
            noted.append(frozenset(notes.files))
    files = reduce(frozenset.intersection, noted)
    named = [function.partition(":")[0] for function in (*walk.roots, walk.start)] + list(walk.doors)
    if lacking := [name for name in named if not any(file.endswith(name) for file in files)]:
        raise RuntimeError(
            f"{walk.name} passes none of {', '.join(lacking)}: name the files that it passes instead"
        )
    return files


def own(files: Files) -> Files:
    """Return the files that don't belong to the ground."""
    return frozenset(file for file in files if not file.startswith(GROUND))


@contextmanager
def _profiled(walk: Walk, broker: EmbeddedBroker) -> Iterator[Notes]:
    notes = Notes(walk, _properties())
    broker.call(lambda: sys.setprofile(notes))
    try:
        yield notes
    finally:
        broker.call(lambda: sys.setprofile(None))


def _properties() -> frozenset[CodeType]:
    modules = [module for name, module in sys.modules.items() if name.startswith("blumfeld")]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    members = [member for cls in classes for member in vars(cls).values() if isinstance(member, property)]
    return frozenset(member.fget.__code__ for member in members if isinstance(member.fget, FunctionType))
