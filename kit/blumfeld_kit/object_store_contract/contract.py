"""The contract of an object store, as tests: subclass :class:`ObjectStoreContract` and give it your store.

.. code-block:: python

    class TestMyStore(ObjectStoreContract):
        lasts = True

        def make_store(self, runtime, name):
            return MyStore(runtime, f"acme://bucket/{name}")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from blumfeld.spi.object_store import (
    ObjectBytes,
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    local_file,
)
from blumfeld_kit.object_store_contract.kit import ObjectStoreKit, OpenStore, in_order

CLOCK_MS = 15 * 60_000
"""S3 refuses requests of clients whose clock is off by more than this."""
LARGE = bytes(range(256)) * (5 << 12)
"""5 MiB: the least size of a part of S3 but for the last."""
SEGMENT = "a.topic_of-3-17-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-_rQlh8GbRfq72WiwM1JrJ-.leader_epoch_checkpoint"


def check_order(keys: Sequence[str]) -> None:
    """Fail unless the keys of a listing stand folder by folder, and those of a folder in order."""
    for folder in {key.rpartition("/")[0] for key in keys} - {""}:
        places = [place for place, key in enumerate(keys) if key.startswith(f"{folder}/")]
        assert places == list(range(places[0], places[0] + len(places))), f"{folder} is torn: {keys}"
    for folder in {key.rpartition("/")[0] for key in keys}:
        objects = [key for key in keys if key.rpartition("/")[0] == folder]
        assert objects == sorted(objects), f"the objects of the folder {folder!r} are out of order: {objects}"


class PartsFailed(Exception):  # noqa: N818 - the noun says what it is
    """Raised by the parts of an upload."""


class ObjectStoreContract(ObjectStoreKit):
    """The contract of ``blumfeld.spi.object_store.ObjectStore`` as tests. ``kit.ObjectStoreKit`` has the claims and the
    methods to override.
    """

    # Whole objects

    @pytest.mark.parametrize("size", [0, 1, 70_000])
    def test_what_was_put_is_read_back(self, opened: OpenStore, size: int) -> None:
        """``get_range`` gives the bytes that ``put`` took, as ``bytes`` or a view of such. An object may be empty."""
        data = LARGE[:size]
        opened.put("a/b", data)
        content = opened.run(opened.store.get_range("a/b", 0, size + 1))
        assert isinstance(content, bytes | memoryview)
        assert memoryview(content).readonly
        assert content == data

    def test_a_put_replaces_the_whole_object(self, opened: OpenStore) -> None:
        """Nothing of a longer object stays behind a shorter one of the same name."""
        opened.put("a", b"a long object")
        opened.put("a", b"short")
        assert opened.read("a") == b"short"
        assert opened.run(opened.store.head("a")).size_bytes == 5
        assert opened.listed_keys() == ["a"]

    def test_a_reader_sees_all_of_an_object_or_none(self, opened: OpenStore) -> None:
        """While an object is replaced, a reader sees the old one or the new one, and no mixture."""
        versions = [bytes([n]) * 50_000 for n in range(4)]
        opened.put("a", versions[0])

        async def race() -> list[ObjectBytes]:
            writes = [opened.store.put("a", version) for version in versions]
            reads = [opened.store.get_range("a", 0, 60_000) for _ in range(8)]
            contents = await asyncio.gather(*reads, *writes)
            return [content for content in contents if content is not None]

        for content in opened.run(race()):
            assert content in versions

    def test_a_name_of_a_segments_object_is_taken_as_it_is(self, opened: OpenStore) -> None:
        """Keys have letters of both cases, digits, ``.``, ``_``, ``-`` and ``/``, and up to 300 characters."""
        for key in (SEGMENT, "x" * 190 + SEGMENT, "A/b", "a/B"):
            opened.put(key, key.encode())
        for key in (SEGMENT, "x" * 190 + SEGMENT, "A/b", "a/B"):
            assert opened.read(key) == key.encode()
            assert opened.run(opened.store.head(key)).key == key
        assert SEGMENT in opened.listed_keys()

    # Conditional puts

    def test_a_conditional_put_is_refused_where_an_object_is(self, opened: OpenStore) -> None:
        """``if_absent`` writes what isn't there, and leaves alone what is: ``ObjectExistsError``."""
        opened.put("a", b"first", if_absent=True)
        with pytest.raises(ObjectExistsError, match=r"."):
            opened.put("a", b"second", if_absent=True)
        assert opened.read("a") == b"first"

    def test_one_of_several_conditional_puts_wins(self, opened: OpenStore) -> None:
        """One of several puts with ``if_absent`` at the same time succeeds, and its bytes are there."""

        async def race() -> list[int]:
            puts = [opened.store.put("a", bytes([n]), if_absent=True) for n in range(8)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            for outcome in outcomes:
                assert outcome is None or isinstance(outcome, ObjectExistsError), outcome
            return [n for n, outcome in enumerate(outcomes) if outcome is None]

        winners = opened.run(race())
        assert len(winners) == 1
        assert opened.read("a") == bytes(winners)

    def test_a_conditional_put_succeeds_after_a_deletion(self, opened: OpenStore) -> None:
        """A deleted object doesn't stand in the way."""
        opened.put("a", b"first", if_absent=True)
        opened.run(opened.store.delete("a"))
        opened.put("a", b"second", if_absent=True)
        assert opened.read("a") == b"second"

    # Ranges and facts

    @pytest.mark.parametrize(
        ("start", "size"), [(0, 10), (0, 4), (3, 4), (6, 4), (8, 100), (10, 1), (11, 5), (0, 0), (5, 0)]
    )
    def test_a_range_is_cut_at_the_end_of_the_object(self, opened: OpenStore, start: int, size: int) -> None:
        """``get_range`` gives ``size`` bytes from ``start``; fewer, or none, only at the end. That is no error."""
        opened.put("a", b"0123456789")
        assert opened.read("a", start, size) == b"0123456789"[start : start + size]

    def test_an_object_that_is_not_there_is_not_found(self, opened: OpenStore) -> None:
        """``get_range`` and ``head`` raise ``ObjectNotFoundError``. A prefix of a key is no object."""
        opened.put("a/b", b"x")
        for key in ("c", "a", "a/c", "a/b/c"):
            with pytest.raises(ObjectNotFoundError, match=r"."):
                opened.read(key, 0, 5)
            with pytest.raises(ObjectNotFoundError, match=r"."):
                opened.run(opened.store.head(key))

    def test_the_facts_about_an_object_are_its_own(self, opened: OpenStore) -> None:
        """``head`` gives the key as it was put, the size, and a time near the present."""
        before_ms = opened.runtime.now_ms()
        opened.put("a/b", b"x" * 777)
        info = opened.run(opened.store.head("a/b"))
        assert (info.key, info.size_bytes) == ("a/b", 777)
        assert abs(info.modified_ms - before_ms) < CLOCK_MS

    def test_a_local_file_is_the_object_and_stays_as_it_is(self, opened: OpenStore) -> None:
        """``local_file``, where a store has it, names a file with the object's bytes. Whoever has opened it reads these
        bytes, whatever becomes of the object."""

        def local() -> str | None:
            return opened.run(local_file(opened.store, "a/b"))

        opened.put("a/b", b"first")
        if (path := local()) is None:
            return
        file = opened.runtime.files.open(path, write=False)
        opened.put("a/b", b"the second")
        path = local()
        assert path is not None
        assert opened.runtime.files.read_bytes(path) == b"the second"
        opened.run(opened.store.delete("a/b"))
        assert file.pread(100, 0) == b"first"
        file.close()
        path = local()
        assert path is None or not opened.runtime.files.exists(path)

    # Deletion

    def test_a_deleted_object_is_gone_and_may_be_deleted_again(self, opened: OpenStore) -> None:
        """``delete`` removes that object alone, and succeeds if there is none."""
        opened.put("a/b", b"x")
        opened.put("a/bc", b"y")
        for _ in range(2):
            opened.run(opened.store.delete("a/b"))
        with pytest.raises(ObjectNotFoundError, match=r"."):
            opened.read("a/b", 0, 1)
        assert opened.listed_keys() == ["a/bc"]

    # Listings

    def test_a_listing_has_all_keys_with_the_prefix_folder_by_folder(self, opened: OpenStore) -> None:
        """A prefix is the beginning of a key, whole folders or not. What lies in or below a folder stands together, and
        the objects of a folder in the order of their keys."""
        keys = ["B/1", "a-1/x", "a.x", "a/1.z", "a/1/z", "a/10", "a/2", "ab/1", "a0/x", "b"]
        for key in keys[::-1]:
            opened.put(key, key.encode())
        for prefix in ("", "a", "a/", "a/1", "a/1/", "a/10", "c", "a-", "B"):
            infos = opened.list(prefix)
            expected = [(key, len(key)) for key in sorted(keys) if key.startswith(prefix)]
            assert sorted((info.key, info.size_bytes) for info in infos) == expected, prefix
            check_order([info.key for info in infos])
        assert infos == [opened.run(opened.store.head("B/1"))]

    def test_a_listing_follows_changes(self, opened: OpenStore) -> None:
        """What is new is listed with its size, what was deleted is not."""
        assert opened.list() == []
        opened.put("a", b"x")
        opened.put("b", b"x")
        assert [(info.key, info.size_bytes) for info in opened.list()] == [("a", 1), ("b", 1)]
        opened.run(opened.store.delete("a"))
        opened.put("b", b"longer")
        assert [(info.key, info.size_bytes) for info in opened.list()] == [("b", 6)]

    def test_a_listing_of_several_pages_is_whole(self, opened: OpenStore) -> None:
        """However many objects there are, each is listed once, in order."""
        if not self.many_objects:
            self.not_tried("many_objects is 0: listings of several pages")
        keys = [f"p/{n:05}" for n in range(self.many_objects)]

        async def fill() -> None:
            for at in range(0, len(keys), 50):
                await asyncio.gather(*(opened.store.put(key, b"") for key in keys[at : at + 50]))

        opened.run(fill())
        assert opened.listed_keys("p/") == keys

    # Uploads in parts

    @pytest.mark.parametrize(
        "sizes", [(), (0,), (3,), (1, 0, 2), (len(LARGE), 7), (3, len(LARGE), len(LARGE) // 2)], ids=str
    )
    def test_parts_are_joined_in_order(self, opened: OpenStore, sizes: tuple[int, ...]) -> None:
        """``put_parts`` takes parts of any size, and none: then the object is empty."""
        parts = [LARGE[n:size] + LARGE[:n] if size > n else LARGE[:size] for n, size in enumerate(sizes)]
        opened.put_parts("a/b", *parts)
        assert opened.read("a/b") == b"".join(parts)
        assert opened.run(opened.store.head("a/b")).size_bytes == sum(sizes)

    def test_an_upload_replaces_the_object_when_its_last_part_is_in(self, opened: OpenStore) -> None:
        """Until then a reader sees the old object, and a listing shows nothing of a new one."""
        opened.put("a", b"old")

        async def look() -> AsyncIterator[bytes]:
            for part in (LARGE, LARGE, b"end"):
                yield part
                assert await opened.store.get_range("a", 0, 9) == b"old"
                assert [info.key async for info in opened.store.list("")] == ["a"]

        opened.run(opened.store.put_parts("a", look()))
        assert opened.read("a") == LARGE + LARGE + b"end"

    @pytest.mark.parametrize("before", [0, 1, 2])
    def test_parts_that_fail_leave_nothing(self, opened: OpenStore, before: int) -> None:
        """The error of ``parts`` comes to the caller as it is. The object is as it was: absent, or the old one."""
        opened.put("old", b"old")

        async def failing() -> AsyncIterator[bytes]:
            for _ in range(before):
                yield LARGE
            raise PartsFailed

        for key in ("new", "old"):
            with pytest.raises(PartsFailed):
                opened.run(opened.store.put_parts(key, failing()))
        assert opened.listed_keys() == ["old"]
        assert opened.read("old") == b"old"

    def test_a_cancelled_upload_leaves_nothing(self, opened: OpenStore) -> None:
        """Cancelled between two parts, an upload ends soon and is never seen."""
        waiting = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield LARGE
            yield LARGE
            waiting.set()
            await asyncio.Event().wait()

        async def cancelled() -> None:
            upload = asyncio.ensure_future(opened.store.put_parts("a", endless()))
            await waiting.wait()
            upload.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(upload, 20)

        opened.run(cancelled())
        assert opened.listed_keys() == []
        opened.put_parts("a", b"again")
        assert opened.read("a") == b"again"

    # The loop

    def test_calls_may_overlap(self, opened: OpenStore) -> None:
        """Many calls at the same time are independent of each other."""

        async def together() -> list[ObjectBytes]:
            await asyncio.gather(*(opened.store.put(f"{n:02}", bytes([n]) * 1000) for n in range(30)))
            return list(
                await asyncio.gather(*(opened.store.get_range(f"{n:02}", 0, 1000) for n in range(30)))
            )

        assert opened.run(together()) == [bytes([n]) * 1000 for n in range(30)]

    def test_no_call_holds_the_loop(self, opened: OpenStore) -> None:
        """Every call gives the loop back before its answer is there."""

        async def listed() -> list[ObjectInfo]:
            return [info async for info in opened.store.list("")]

        async def turned(call: Callable[[], Awaitable[object]]) -> bool:
            turns: list[int] = []
            asyncio.get_running_loop().call_soon(turns.append, 1)
            await call()
            return bool(turns)

        store = opened.store
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "put": lambda: store.put("a", LARGE),
            "put_parts": lambda: store.put_parts("b", in_order(LARGE, LARGE)),
            "get_range": lambda: store.get_range("a", 0, len(LARGE)),
            "head": lambda: store.head("a"),
            "list": listed,
            "delete": lambda: store.delete("a"),
        }
        for name, call in calls.items():
            assert opened.run(turned(call)), f"{name} never gave the loop back"

    # Clients

    def test_another_client_sees_what_was_stored(self, opened: OpenStore) -> None:
        """What was put is there for a client that comes later: a node that restarts, or another node."""
        if not self.lasts:
            self.not_tried("lasts is not claimed: other clients, restarts")
        opened.put("a/b", b"x")
        opened.put_parts("a/c", LARGE, b"y")
        other = OpenStore(self, opened.runtime, opened.name)
        assert other.listed_keys() == ["a/b", "a/c"]
        assert other.read("a/c") == LARGE + b"y"
        with pytest.raises(ObjectExistsError, match=r"."):
            other.put("a/b", b"z", if_absent=True)
        other.run(other.store.close())

    def test_a_close_without_a_call_is_legal(self, opened: OpenStore) -> None:
        """A node whose start failed closes every store that it made."""
        other = self.make_store(opened.runtime, f"{opened.name}b")
        opened.run(other.close())
