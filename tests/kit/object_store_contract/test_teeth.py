"""Wrong object stores are found, each by the test that demands what it doesn't do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from blumfeld.spi.object_store import ObjectExistsError, ObjectInfo, ObjectNotFoundError, ObjectStore
from blumfeld_kit import ObjectStoreContract
from blumfeld_kit.fakes.object_store import SimulatedBucket, SimulatedStore
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime

Runtime = FakeRuntime | RealTimeRuntime


class Store(SimulatedStore):
    """A store that a planted bug inherits from; its objects can be reached without a request."""

    @property
    def runtime(self) -> Any:
        """The runtime."""
        return self._runtime


class IgnoresTheCondition(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        await super().put(key, data)


class LooksThenPuts(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        if if_absent and key in self.bucket.keys():  # noqa: SIM118
            raise ObjectExistsError(key)
        await super().put(key, data)


class LeavesTheOldEnd(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        old = self.bucket.read(key) if key in self.bucket.keys() else b""  # noqa: SIM118
        await super().put(key, data + old[len(data) :], if_absent=if_absent)


class RemembersTheDeleted(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        ever = self.bucket.__dict__.setdefault("ever", set())
        if if_absent and key in ever:
            raise ObjectExistsError(key)
        ever.add(key)
        await super().put(key, data)


class TearsAnObject(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        await super().put(key, data[: len(data) // 2], if_absent=if_absent)
        if data:
            await super().put(key, data)


class FoldsCase(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        await super().put(key.lower(), data, if_absent=if_absent)

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return await super().get_range(key.lower(), start, size)


class ReadsFromTheBeginning(Store):
    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return await super().get_range(key, 0, size)


class RefusesARangeBehindTheEnd(Store):
    async def get_range(self, key: str, start: int, size: int) -> bytes:
        data = await super().get_range(key, start, size)
        if size and not data:
            raise ObjectNotFoundError("416")
        return data


class GivesWhatMayChange(Store):
    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return memoryview(bytearray(await super().get_range(key, start, size)))  # type: ignore[return-value]


class FindsNothingWrong(Store):
    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return await super().get_range(key, start, size) if key in self.bucket.keys() else b""  # noqa: SIM118


class CountsFromTheBucket(Store):
    async def head(self, key: str) -> ObjectInfo:
        info = await super().head(key)
        return msgspec.structs.replace(info, key=f"bucket/{key}")


class TellsSeconds(Store):
    async def head(self, key: str) -> ObjectInfo:
        info = await super().head(key)
        return msgspec.structs.replace(info, modified_ms=info.modified_ms // 1000)


class DeletesOnce(Store):
    async def delete(self, key: str) -> None:
        await self.head(key)
        await super().delete(key)


class DeletesThePrefix(Store):
    async def delete(self, key: str) -> None:
        for other in [other for other in self.bucket.keys() if other.startswith(key)]:  # noqa: SIM118
            await super().delete(other)


class ListsFolders(Store):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        folder = prefix.rstrip("/") + "/" if prefix else ""
        async for info in super().list(folder):
            yield info


class ListsOutOfOrder(Store):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in [info async for info in super().list(prefix)][::-1]:
            yield info


class TearsFolders(Store):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in sorted([info async for info in super().list(prefix)], key=lambda info: info.key[-1:]):
            yield info


class ListsOnePage(Store):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        for info in await self._page(prefix, ""):
            yield info


class ListsWhatItOnceSaw(Store):
    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        seen: dict[str, ObjectInfo] = self.bucket.__dict__.setdefault("seen", {})
        async for info in super().list(prefix):
            seen.setdefault(info.key, info)
        for _, info in sorted(seen.items()):
            yield info


class ShowsPartsEarly(Store):
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        data = b""
        async for part in parts:
            data += part
            await self.put(key, data)
        await self.put(key, data)


class KeepsWhatCameBeforeTheFailure(Store):
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        received: list[bytes] = []
        try:
            async for part in parts:
                received += [part]
        finally:
            await self.put(key, b"".join(received))


class KeepsWhatCameBeforeTheCancellation(Store):
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        received: list[bytes] = []
        try:
            async for part in parts:
                received += [part]
        except Exception:
            raise
        except BaseException:
            self.bucket.put(key, b"".join(received), self.runtime)
            raise
        await self.put(key, b"".join(received))


class SwallowsTheErrorOfTheParts(Store):
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        try:
            await super().put_parts(key, parts)
        except Exception:
            return


class WrapsTheErrorOfTheParts(Store):
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        try:
            await super().put_parts(key, parts)
        except Exception as error:
            raise RuntimeError("an upload failed") from error


class DropsEmptyUploads(Store):
    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        async for first in parts:
            await super().put_parts(key, _after(first, parts))


async def _after(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in parts:
        yield part


class HoldsTheLoop(Store):
    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self.bucket.put(key, data, self.runtime, if_absent=if_absent)


class HasOneBuffer(Store):
    async def get_range(self, key: str, start: int, size: int) -> bytes:
        self.bucket.__dict__["buffer"] = key
        await super().get_range(key, start, size)
        return self.bucket.read(self.bucket.__dict__["buffer"])[start : start + size]


class FailsToClose(Store):
    async def close(self) -> None:
        if not self.bucket.requests:
            raise RuntimeError("nothing was opened")


class ChangesAFileInPlace(Store):
    async def local_file(self, key: str) -> str:
        self.runtime.files.make_dirs("/store")
        file = self.runtime.files.open("/store/file", create=True)
        file.truncate(0)
        file.pwritev([self.bucket.get(key).data], 0)
        file.close()
        return "/store/file"


class Forgets(Store):
    """A client sees its own objects only."""


PLANTED: list[tuple[type[Store], str]] = [
    (IgnoresTheCondition, "a_conditional_put_is_refused_where_an_object_is"),
    (LooksThenPuts, "one_of_several_conditional_puts_wins"),
    (LeavesTheOldEnd, "a_put_replaces_the_whole_object"),
    (RemembersTheDeleted, "a_conditional_put_succeeds_after_a_deletion"),
    (TearsAnObject, "a_reader_sees_all_of_an_object_or_none"),
    (FoldsCase, "a_name_of_a_segments_object_is_taken_as_it_is"),
    (ReadsFromTheBeginning, "a_range_is_cut_at_the_end_of_the_object"),
    (RefusesARangeBehindTheEnd, "a_range_is_cut_at_the_end_of_the_object"),
    (GivesWhatMayChange, "what_was_put_is_read_back"),
    (FindsNothingWrong, "an_object_that_is_not_there_is_not_found"),
    (CountsFromTheBucket, "the_facts_about_an_object_are_its_own"),
    (TellsSeconds, "the_facts_about_an_object_are_its_own"),
    (DeletesOnce, "a_deleted_object_is_gone_and_may_be_deleted_again"),
    (DeletesThePrefix, "a_deleted_object_is_gone_and_may_be_deleted_again"),
    (ListsFolders, "a_listing_has_all_keys_with_the_prefix_folder_by_folder"),
    (ListsOutOfOrder, "a_listing_has_all_keys_with_the_prefix_folder_by_folder"),
    (TearsFolders, "a_listing_has_all_keys_with_the_prefix_folder_by_folder"),
    (ListsOnePage, "a_listing_of_several_pages_is_whole"),
    (ListsWhatItOnceSaw, "a_listing_follows_changes"),
    (ShowsPartsEarly, "an_upload_replaces_the_object_when_its_last_part_is_in"),
    (KeepsWhatCameBeforeTheFailure, "parts_that_fail_leave_nothing"),
    (KeepsWhatCameBeforeTheCancellation, "a_cancelled_upload_leaves_nothing"),
    (SwallowsTheErrorOfTheParts, "parts_that_fail_leave_nothing"),
    (WrapsTheErrorOfTheParts, "parts_that_fail_leave_nothing"),
    (DropsEmptyUploads, "parts_are_joined_in_order"),
    (HoldsTheLoop, "no_call_holds_the_loop"),
    (HasOneBuffer, "calls_may_overlap"),
    (FailsToClose, "a_close_without_a_call_is_legal"),
    (ChangesAFileInPlace, "a_local_file_is_the_object_and_stays_as_it_is"),
    (Forgets, "another_client_sees_what_was_stored"),
]


def failed(store_class: type[Store], name: str) -> list[str]:
    """The failures of one test of the contract on a store, for each of its parameters."""

    class Kit(ObjectStoreContract):
        virtual_time = lasts = True
        buckets: dict[str, SimulatedBucket] = {}  # noqa: RUF012

        def make_store(self, runtime: Runtime, name: str) -> ObjectStore:
            buckets = {} if store_class is Forgets else self.buckets
            return store_class(runtime, buckets.setdefault(name, SimulatedBucket()))

    test = getattr(Kit, f"test_{name}")
    parameters: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args
            each = [(value,) for value in values] if isinstance(names, str) else values
            named = (names,) if isinstance(names, str) else names
            parameters = [dict(zip(named, value, strict=True)) for value in each]
    failures: list[str] = []
    for number, given in enumerate(parameters):
        kit = Kit()
        try:
            for opened in kit.open_for(f"store{number}"):
                test(kit, opened, **given)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(repr(error))
    return failures


@pytest.mark.parametrize(("store_class", "name"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_planted_bug_is_found_by_the_test_that_forbids_it(store_class: type[Store], name: str) -> None:
    assert failed(store_class, name), f"{store_class.__name__} passes {name}"


def test_every_test_of_the_contract_has_teeth_and_lets_a_right_store_pass() -> None:
    tests = {name.removeprefix("test_") for name in vars(ObjectStoreContract) if name.startswith("test_")}
    assert {name for _, name in PLANTED} == tests
    for name in sorted(tests):
        assert failed(Store, name) == [], name
