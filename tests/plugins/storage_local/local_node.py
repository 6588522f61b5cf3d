"""A node whose one storage is storage_local, on a simulated disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import Node
from blumfeld_storage_local.storage import LocalStorage


class Events:
    """A log of events that keeps them."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def debug(self, event: str, **values: Any) -> None:
        self.said.append(event)

    info = warning = error = debug


def make_runtime(previous: FakeRuntime | None) -> FakeRuntime:
    return FakeRuntime(5) if previous is None else FakeRuntime(6, disk=previous.disk)


def new_node(paths: str | Sequence[str] = "/data", *, events: Events | None = None, **settings: Any) -> Node:
    """A started node; ``settings`` are the storage's own."""
    said = events or Events()
    return Node(make_runtime, lambda runtime: LocalStorage(runtime, paths, said, **settings)).start()


def node_on_disk(*paths: str) -> Node:
    """A started node on real files."""
    return Node(
        lambda _: FakeRuntime(files=RealFiles()), lambda runtime: LocalStorage(runtime, paths, Events())
    ).start()
