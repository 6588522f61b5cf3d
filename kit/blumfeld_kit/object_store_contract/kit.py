"""The base of the object store's contract: the store under test, its claims, and the fixture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import pytest

from blumfeld.spi.object_store import ObjectInfo, ObjectStore
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.not_tried import not_tried

T = TypeVar("T")


class OpenStore:
    """The store under test, with the runtime that it was made with."""

    def __init__(self, kit: ObjectStoreKit, runtime: FakeRuntime | RealTimeRuntime, name: str) -> None:
        self.kit = kit
        self.runtime = runtime
        self.name = name
        self.store = kit.make_store(runtime, name)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self.runtime.run(coroutine)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """As ``ObjectStore.put``."""
        self.run(self.store.put(key, data, if_absent=if_absent))

    def put_parts(self, key: str, *parts: bytes) -> None:
        """As ``ObjectStore.put_parts``."""
        self.run(self.store.put_parts(key, in_order(*parts)))

    def read(self, key: str, start: int = 0, size: int = 1 << 30) -> bytes:
        """As ``ObjectStore.get_range``; the whole object by default."""
        return bytes(self.run(self.store.get_range(key, start, size)))

    def list(self, prefix: str = "") -> Sequence[ObjectInfo]:
        """As ``ObjectStore.list``, when a change has had the time to be listed."""

        async def collect() -> Sequence[ObjectInfo]:
            await asyncio.sleep(self.kit.list_lag_ms / 1000)
            return [info async for info in self.store.list(prefix)]

        return self.run(collect())

    def listed_keys(self, prefix: str = "") -> Sequence[str]:
        """The keys of a listing."""
        return [info.key for info in self.list(prefix)]


class ObjectStoreKit:
    """The claims of a subclass about its store, and what it must override. What isn't claimed is listed at the end of
    the pytest run under "promises that were not tried"."""

    virtual_time = False
    """The store waits for nothing but the runtime: it is tried on virtual time. Otherwise the loop is asyncio's, or
    that of :meth:`make_runtime`."""
    lasts = False
    """``make_store`` with the same name gives another client of the same bucket. A store in memory can't claim it."""
    many_objects = 1100
    """Objects that one listing is tried with: more than a page of it. 0 doesn't try it."""
    list_lag_ms = 0
    """A change is listed at the latest after this time."""

    def make_store(self, runtime: FakeRuntime | RealTimeRuntime, name: str) -> ObjectStore:
        """Return your store on a bucket, or a prefix of one, that is empty when ``name`` comes for the first time.

        :param name: lower-case letters and digits, another one for each test
        """
        raise NotImplementedError("override make_store")

    def make_runtime(self) -> FakeRuntime | RealTimeRuntime:
        """Return the runtime for one test."""
        return FakeRuntime(1) if self.virtual_time else RealTimeRuntime()

    @pytest.fixture
    def opened(self, request: pytest.FixtureRequest) -> Iterator[OpenStore]:
        """Your store, empty."""
        with_letters = "".join(filter(str.isalnum, request.node.nodeid.lower()))[-40:]
        yield from self.open_for(f"{with_letters}{abs(hash(request.node.nodeid)) % 10**6}")

    def open_for(self, name: str) -> Iterator[OpenStore]:
        """Yield the store, and close it."""
        runtime = self.make_runtime()
        try:
            opened = OpenStore(self, runtime, name)
            yield opened
            runtime.run(opened.store.close())
        finally:
            if isinstance(runtime, RealTimeRuntime):
                runtime.end()

    def not_tried(self, why: str) -> NoReturn:
        """Skip the running test, and list it at the end of the run."""
        not_tried(f"the object store contract of {type(self).__name__}", why)


async def in_order(*parts: bytes) -> AsyncIterator[bytes]:
    """The parts of an upload."""
    for part in parts:
        yield part
