"""An object store on virtual time, with every fault that a real one has. The same seed gives the same trace.

The bucket outlives its clients, as a disk outlives a process: a node that restarts, or another node of the cluster,
makes another :class:`SimulatedStore` on the same :class:`SimulatedBucket`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum
from typing import TypeVar

import msgspec

from blumfeld.spi.object_store import (
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    StoreDeniedError,
    StoreUnavailableError,
)
from blumfeld.spi.runtime import Runtime

T = TypeVar("T")

LIST_PAGE = 1000
"""Objects that one request of a listing returns, as with S3."""


class ProcessDied(BaseException):
    """The process that made this request has died. No ``except Exception`` catches it, and every later request of the
    same store raises it: whatever cleans up behind a failure reaches nothing any more."""


class Fate(Enum):
    """The outcome of one request."""

    GOOD = "good"
    UNAVAILABLE = "503"
    """Fails inside of the store, and nothing happened."""
    THROTTLED = "throttled"
    """The store asks for fewer requests, and nothing happened."""
    SLOW = "slow"
    """The answer takes ``slow_ms``. If that is longer than the store waits, it becomes a lost answer."""
    LOST_ANSWER = "answer lost"
    """The request took place, and nobody learns of it."""
    CUT = "cut"
    """A multipart upload breaks before its last part: nothing is visible. Other requests are unavailable."""
    DIES_BEFORE = "the process dies before"
    DIES_AFTER = "the process dies after"


class StoreFaults(msgspec.Struct, kw_only=True):
    """The faults of a bucket; all may change while it is used. Probabilities are for each request."""

    unavailable: float = 0.0
    throttled: float = 0.0
    slow: float = 0.0
    lost_answer: float = 0.0
    cut_upload: float = 0.0
    bit_rot: float = 0.0
    """A bit of the object that a put wrote flips."""
    latency_ms: float = 5.0
    slow_ms: float = 2_000.0
    timeout_ms: float = 10_000.0
    """After this time a client gives a request up."""
    stale_list_ms: int = 0
    """A change is listed up to this much later."""
    clock_skew_ms: int = 0
    """The store's clock minus ours."""
    away_until_ms: float = 0.0
    """Until this time of the monotonic clock nobody reaches the store."""
    denied_until_ms: float = 0.0
    """Until this time of the monotonic clock the credentials have expired."""
    scripted: dict[int, Fate] = msgspec.field(default_factory=dict)
    """Fates of single requests, by their number in the bucket; the first is 1."""

    def heal(self) -> None:
        """End every fault. What is stored stays as it is."""
        healthy = StoreFaults()
        for name in self.__struct_fields__:
            setattr(self, name, getattr(healthy, name))


class _Stored(msgspec.Struct):
    data: bytes
    info: ObjectInfo


class SimulatedBucket:
    """The objects, their listing, which may lag behind, and the faults."""

    def __init__(self, faults: StoreFaults | None = None) -> None:
        self.faults = StoreFaults() if faults is None else faults
        self.requests = 0
        """Requests so far, of all clients. A multipart upload is one to begin, one for each part and one to complete.
        """
        self.trace: list[str] = []
        """One line a request: its number, time, operation, key and fate."""
        self.unfinished_uploads = 0
        """Multipart uploads that were neither completed nor aborted. A lifecycle rule of the bucket removes them."""
        self._objects: dict[str, _Stored] = {}
        self._listed: dict[str, ObjectInfo] = {}
        self._changes: list[tuple[float, str, ObjectInfo | None]] = []

    # Driven by a test

    def keys(self) -> list[str]:
        """Return the keys of all objects that there are, listed or not, in order."""
        return sorted(self._objects)

    def read(self, key: str) -> bytes:
        """Return the bytes of an object."""
        return self._objects[key].data

    def rot(self, key: str, position: int, bit: int = 0) -> None:
        """Flip one bit of a stored object. Its size and its time stay as they are."""
        stored = self._objects[key]
        rotten = bytearray(stored.data)
        rotten[position] ^= 1 << bit
        stored.data = bytes(rotten)

    def replace(self, key: str, data: bytes) -> None:
        """Change the bytes of an object behind everybody's back."""
        stored = self._objects[key]
        stored.data = data
        stored.info = msgspec.structs.replace(stored.info, size_bytes=len(data))
        self._list_now(key, stored.info)

    def lose(self, key: str) -> None:
        """Remove an object behind everybody's back."""
        del self._objects[key]
        self._list_now(key, None)

    def _list_now(self, key: str, info: ObjectInfo | None) -> None:
        self._changes = [change for change in self._changes if change[1] != key]
        self._changes.append((0.0, key, info))

    # Used by its clients

    def put(self, key: str, data: bytes, runtime: Runtime, *, if_absent: bool = False) -> None:
        """Store an object."""
        if if_absent and key in self._objects:
            raise ObjectExistsError(f"{key}: there is an object of this name")
        info = ObjectInfo(key, len(data), runtime.now_ms() + self.faults.clock_skew_ms)
        self._objects[key] = _Stored(bytes(data), info)
        self._will_list(key, info, runtime)
        if data and self.faults.bit_rot and runtime.random.random() < self.faults.bit_rot:
            self.rot(key, runtime.random.randrange(len(data)), runtime.random.randrange(8))

    def delete(self, key: str, runtime: Runtime) -> None:
        """Remove an object. It may be absent."""
        if self._objects.pop(key, None) is not None:
            self._will_list(key, None, runtime)

    def get(self, key: str) -> _Stored:
        """Return an object."""
        if (stored := self._objects.get(key)) is None:
            raise ObjectNotFoundError(f"{key}: no such object")
        return stored

    def page(self, prefix: str, after: str, now_ms: float) -> list[ObjectInfo]:
        """Return a page of the listing, as far as it has caught up."""
        due = [change for change in self._changes if change[0] <= now_ms]
        self._changes = [change for change in self._changes if change[0] > now_ms]
        for _, key, info in due:
            if info is None:
                self._listed.pop(key, None)
            else:
                self._listed[key] = info
        keys = sorted(key for key in self._listed if key.startswith(prefix) and key > after)
        return [self._listed[key] for key in keys[:LIST_PAGE]]

    def _will_list(self, key: str, info: ObjectInfo | None, runtime: Runtime) -> None:
        due_ms = runtime.monotonic_ms()
        if self.faults.stale_list_ms:
            due_ms += runtime.random.randrange(self.faults.stale_list_ms + 1)
        # Two changes of one object are listed in their order.
        due_ms = max([due_ms, *(due for due, changed, _ in self._changes if changed == key)])
        self._changes.append((due_ms, key, info))


class SimulatedStore:
    """``ObjectStore``: one process's client of a bucket."""

    def __init__(self, runtime: Runtime, bucket: SimulatedBucket | None = None) -> None:
        self.bucket = SimulatedBucket() if bucket is None else bucket
        self._runtime = runtime
        self._dead = False

    def go_away(self, ms: float) -> None:
        """From now on nobody reaches the store for ``ms``."""
        self.bucket.faults.away_until_ms = self._runtime.monotonic_ms() + ms

    def expire_credentials(self, ms: float) -> None:
        """The credentials are refused for ``ms``; then they are renewed."""
        self.bucket.faults.denied_until_ms = self._runtime.monotonic_ms() + ms

    async def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """As ``ObjectStore.put``."""
        bucket, runtime = self.bucket, self._runtime
        await self._request(
            "put", key, len(data), lambda: bucket.put(key, data, runtime, if_absent=if_absent)
        )

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> None:
        """As ``ObjectStore.put_parts``."""
        bucket, runtime = self.bucket, self._runtime

        def begin() -> None:
            bucket.unfinished_uploads += 1

        def complete() -> None:
            bucket.put(key, b"".join(received), runtime)
            bucket.unfinished_uploads -= 1

        await self._request("begin", key, 0, begin)
        received: list[bytes] = []
        async for part in parts:
            await self._request("part", key, len(part), lambda part=part: received.append(bytes(part)))  # type: ignore[misc]
        await self._request("complete", key, sum(map(len, received)), complete)

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        """As ``ObjectStore.get_range``."""
        return await self._request("get", key, size, lambda: self.bucket.get(key).data[start : start + size])

    async def head(self, key: str) -> ObjectInfo:
        """As ``ObjectStore.head``."""
        return await self._request("head", key, 0, lambda: self.bucket.get(key).info)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """As ``ObjectStore.list``: page by page, each page a request."""
        after = ""
        while page := await self._page(prefix, after):
            for info in page:
                yield info
            if len(page) < LIST_PAGE:
                return
            after = page[-1].key

    async def _page(self, prefix: str, after: str) -> Sequence[ObjectInfo]:
        now_ms = self._runtime.monotonic_ms
        return await self._request("list", prefix, 0, lambda: self.bucket.page(prefix, after, now_ms()))

    async def delete(self, key: str) -> None:
        """As ``ObjectStore.delete``."""
        await self._request("delete", key, 0, lambda: self.bucket.delete(key, self._runtime))

    async def close(self) -> None:
        """As ``ObjectStore.close``."""

    async def _request(self, operation: str, key: str, size: int, act: Callable[[], T]) -> T:
        if self._dead:
            raise ProcessDied
        bucket, faults, now_ms = self.bucket, self.bucket.faults, self._runtime.monotonic_ms()
        bucket.requests += 1
        fate = faults.scripted.get(bucket.requests) or self._fate(operation)
        away, denied = now_ms < faults.away_until_ms, now_ms < faults.denied_until_ms
        outcome = "away" if away else "denied" if denied else fate.value
        bucket.trace.append(f"{bucket.requests} {now_ms:.3f} {operation} {key or '*'} {size} {outcome}")
        if fate is Fate.DIES_BEFORE:
            self._die()
        if away:
            await self._pause(faults.timeout_ms)
            raise StoreUnavailableError(
                f"{operation} {key}: the store can't be reached in {faults.timeout_ms:g} ms"
            )
        await self._pause(faults.latency_ms / 2)
        if denied:
            raise StoreDeniedError(f"{operation} {key}: the credentials have expired")
        if fate in (Fate.UNAVAILABLE, Fate.THROTTLED, Fate.CUT):
            raise StoreUnavailableError(f"{operation} {key}: 503 ({fate.value})")
        result = act()
        if fate is Fate.DIES_AFTER:
            self._die()
        if fate is Fate.LOST_ANSWER or (fate is Fate.SLOW and faults.slow_ms > faults.timeout_ms):
            await self._pause(faults.timeout_ms)
            raise StoreUnavailableError(f"{operation} {key}: no answer in {faults.timeout_ms:g} ms")
        await self._pause(faults.slow_ms if fate is Fate.SLOW else faults.latency_ms / 2)
        return result

    def _fate(self, operation: str) -> Fate:
        """Draw one number a request, so that a fault that is switched on moves no other request's fate."""
        drawn, faults = self._runtime.random.random(), self.bucket.faults
        for probability, fate in (
            (faults.unavailable, Fate.UNAVAILABLE),
            (faults.throttled, Fate.THROTTLED),
            (faults.lost_answer, Fate.LOST_ANSWER),
            (faults.slow, Fate.SLOW),
            (faults.cut_upload if operation == "complete" else 0.0, Fate.CUT),
        ):
            if drawn < probability:
                return fate
            drawn -= probability
        return Fate.GOOD

    def _die(self) -> None:
        self._dead = True
        raise ProcessDied

    async def _pause(self, ms: float) -> None:
        if ms > 0:
            await asyncio.sleep(ms / 1000.0)
        if self._dead:
            raise ProcessDied
