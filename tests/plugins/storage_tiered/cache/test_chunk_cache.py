"""Pieces of remote files on the local disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.object_store import StoreUnavailableError
from blumfeld.spi.parts import join, release
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_tiered.cache.chunk_cache import FOLDER, Brought, Chunk, ChunkCache, ChunkKey
from blumfeld_storage_tiered.objects.segments import FilePiece
from tests.plugins.storage_local.local_node import Events


class Loads:
    """A source of pieces that counts."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.gate: Completion[None] = Completion.of(None)
        self.error: Exception | None = None

    def of(self, number: int, size: int = 100) -> Callable[[], Awaitable[Brought]]:
        async def load() -> bytes:
            self.asked.append(number)
            await self.gate
            if self.error is not None:
                raise self.error
            return bytes([number]) * size

        return load


def key(number: int) -> ChunkKey:
    return ChunkKey(b"s" * 16, ".log", number)


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime(3)


def cache_of(runtime: FakeRuntime, bytes_max: int = 1000) -> ChunkCache:
    cache = ChunkCache(runtime, "/data", bytes_max, Events())
    runtime.run(cache.start())
    return cache


def read(runtime: FakeRuntime, cache: ChunkCache, loads: Loads, number: int, size: int = 100) -> bytes:
    async def get() -> bytes:
        chunk = await cache.chunk(key(number), loads.of(number, size))
        try:
            return await chunk.read(runtime, 0, chunk.size_bytes)
        finally:
            chunk.close()

    return runtime.run(get())


def files(runtime: FakeRuntime) -> list[str]:
    return runtime.files.list_dir(f"/data/{FOLDER}")


def test_a_piece_is_brought_once_and_then_read_from_the_disk(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    assert read(runtime, cache, loads, 1) == read(runtime, cache, loads, 1) == b"\x01" * 100
    assert loads.asked == [1]
    assert (cache.hits, cache.misses, cache.size_bytes) == (1, 1, 100)


def test_readers_of_a_piece_that_is_on_its_way_wait_for_the_same_load(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    loads.gate = Completion()
    given: list[int] = []

    async def get() -> None:
        chunk = await cache.chunk(key(1), loads.of(1))
        given.append(chunk.size_bytes)
        chunk.close()

    for _ in range(3):
        runtime.spawn(get(), "reader")
    runtime.run_turn()
    assert (loads.asked, given) == ([1], [])
    loads.gate.complete(None)
    runtime.run_turn()
    assert given == [100, 100, 100]


def test_a_load_goes_on_when_its_reader_has_gone(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    loads.gate = Completion()

    async def get() -> None:
        await cache.chunk(key(1), loads.of(1))

    task = runtime.spawn(get(), "reader")
    runtime.run_turn()
    task.cancel()
    loads.gate.complete(None)
    runtime.run_turn()
    assert cache.is_here(key(1))


def test_a_load_that_fails_fails_its_readers_and_is_tried_again(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    loads.error = StoreUnavailableError("503")
    with pytest.raises(StoreUnavailableError):
        read(runtime, cache, loads, 1)
    loads.error = None
    assert read(runtime, cache, loads, 1) == b"\x01" * 100
    assert loads.asked == [1, 1]


def test_the_bytes_on_the_disk_stay_below_the_bound_and_the_least_used_goes(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime, 350), Loads()
    for number in (1, 2, 3, 1, 4):
        read(runtime, cache, loads, number)
        assert sum(runtime.files.open(f"/data/{FOLDER}/{name}").size() for name in files(runtime)) <= 350
    assert [number for number in range(1, 5) if cache.is_here(key(number))] == [1, 3, 4]
    assert cache.evictions == 1


def test_a_piece_above_the_bound_is_given_and_not_kept(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime, 350), Loads()
    read(runtime, cache, loads, 1)
    assert len(read(runtime, cache, loads, 2, 400)) == 400
    assert (cache.is_here(key(1)), cache.is_here(key(2)), cache.size_bytes) == (True, False, 100)


def test_a_part_stays_good_when_its_piece_is_removed(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime, 100), Loads()

    async def part() -> bytes:
        chunk = await cache.chunk(key(1), loads.of(1))
        parts = [await chunk.part(runtime, 10, 20)]
        chunk.close()
        await cache.bring(key(2), loads.of(2))
        assert not cache.is_here(key(1))
        try:
            return join(parts)
        finally:
            release(parts)

    assert runtime.run(part()) == b"\x01" * 20
    assert len(files(runtime)) == 1


class Places(Loads):
    """Pieces of a file of this machine."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__()
        self.content = bytes(range(10)) * 100
        self.files = runtime.files
        runtime.files.make_dirs("/store")
        runtime.files.write_atomically("/store/log", self.content)

    def of(self, number: int, size: int = 100) -> Callable[[], Awaitable[Brought]]:
        async def load() -> FilePiece:
            self.asked.append(number)
            return FilePiece(
                "/store/log", number * 101, size, len(self.content), self.files.modified_ms("/store/log")
            )

        return load


def test_a_piece_that_lies_on_this_machine_is_read_in_place(runtime: FakeRuntime) -> None:
    cache, places = cache_of(runtime, 250), Places(runtime)

    async def part() -> bytes:
        chunk = await cache.chunk(key(3), places.of(3))
        parts = [await chunk.part(runtime, 1, 20)]
        chunk.close()
        try:
            return join(parts)
        finally:
            release(parts)

    for number in (1, 2, 1, 2):
        assert read(runtime, cache, places, number) == places.content[number * 101 :][:100]
    assert runtime.run(part()) == places.content[304:324]
    assert (places.asked, cache.hits, cache.size_bytes, files(runtime)) == ([1, 2, 3], 2, 0, [])
    assert cache.evictions == 1, "what the cache remembers has the same bound"
    cache.forget(key(3))
    assert not cache.is_here(key(3))


def test_a_file_in_place_that_is_gone_or_has_changed_is_looked_for_again(runtime: FakeRuntime) -> None:
    said = Events()
    cache, places = ChunkCache(runtime, "/data", 1000, said), Places(runtime)
    runtime.run(cache.start())
    read(runtime, cache, places, 1)
    runtime.files.write_atomically("/store/log", b"short")
    for _ in range(2):
        with pytest.raises(OSError, match="found 5 bytes"):
            read(runtime, cache, places, 1)
    runtime.files.unlink("/store/log")
    with pytest.raises(FileNotFoundError):
        read(runtime, cache, places, 1)
    assert places.asked == [1, 1, 1, 1]
    assert said.said == []
    assert runtime.disk.open_files == 0


def test_a_file_in_place_whose_bytes_were_replaced_is_checked_again(runtime: FakeRuntime) -> None:
    cache, places = cache_of(runtime, 1000), Places(runtime)
    read(runtime, cache, places, 1)
    runtime.advance(1)
    runtime.files.write_atomically("/store/log", bytes(1000))
    assert read(runtime, cache, places, 1) == bytes(100), (
        "what checks them is asked, and says whether they are good"
    )
    assert read(runtime, cache, places, 1) == bytes(100)
    assert places.asked == [1, 1]
    assert runtime.disk.open_files == 0


def test_a_start_finds_an_empty_folder(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    read(runtime, cache, loads, 1)
    again = cache_of(runtime)
    assert files(runtime) == []
    assert not again.is_here(key(1))


def test_a_full_disk_costs_the_cache_and_no_reader(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    runtime.disk.room = 0
    assert read(runtime, cache, loads, 1) == b"\x01" * 100
    assert (cache.size_bytes, files(runtime)) == (0, [])


def test_a_disk_with_room_for_small_pieces_alone_is_told_once(runtime: FakeRuntime) -> None:
    said = Events()
    cache, loads = ChunkCache(runtime, "/data", 1000, said), Loads()
    runtime.run(cache.start())
    for number in range(20):
        runtime.disk.room = 0 if number % 2 else None
        read(runtime, cache, loads, number)
    assert said.said == ["remote chunk not cached"]


def test_a_file_that_somebody_removed_is_brought_again(runtime: FakeRuntime) -> None:
    cache, loads = cache_of(runtime), Loads()
    read(runtime, cache, loads, 1)
    for name in files(runtime):
        runtime.files.unlink(f"/data/{FOLDER}/{name}")
    assert read(runtime, cache, loads, 1) == b"\x01" * 100
    assert (loads.asked, cache.size_bytes) == ([1, 1], 100)


@pytest.mark.parametrize("size", [0, 50, 101])
def test_a_file_that_somebody_changed_in_length_is_brought_again(runtime: FakeRuntime, size: int) -> None:
    cache, loads = cache_of(runtime), Loads()
    read(runtime, cache, loads, 1)
    (name,) = files(runtime)
    file = runtime.files.open(f"/data/{FOLDER}/{name}")
    file.truncate(size)
    file.close()
    assert read(runtime, cache, loads, 1) == b"\x01" * 100
    assert loads.asked == [1, 1]


class _SlowFile:
    """A file whose worker waits, and that counts the regions that hold it."""

    def __init__(self) -> None:
        self.regions = 0
        self.is_closed = False
        self.held: list[bool] = []
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def is_cached(self, position: int, size: int) -> bool:
        return False

    def pread(self, size: int, position: int) -> bytes:
        self.begun.set()
        assert self.goes_on.wait(10)
        self.held.append(self.is_closed and self.regions > 0)
        return bytes(size)

    read_ahead = pread

    def region(self, position: int, size: int) -> _SlowFile:
        self.regions += 1
        return self

    def release(self) -> None:
        self.regions -= 1

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("method", ["read", "part"])
def test_a_worker_keeps_the_file_of_a_reader_that_has_gone(method: str) -> None:
    """The descriptor's number could be another file's before the worker reads."""
    runtime, file = RealTimeRuntime(), _SlowFile()

    async def story() -> None:
        chunk = Chunk(100, cast("Any", file), None)
        reading = asyncio.ensure_future(getattr(chunk, method)(runtime, 0, 100))
        await asyncio.to_thread(file.begun.wait, 10)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        chunk.close()
        file.goes_on.set()
        while file.regions:
            await asyncio.sleep(0.001)

    runtime.run(story())
    runtime.end()
    assert file.held == [True]
