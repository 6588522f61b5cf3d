"""The simulated object store fails as it is told, and the same way for the same seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from blumfeld.spi.object_store import (
    ObjectExistsError,
    ObjectNotFoundError,
    StoreDeniedError,
    StoreError,
    StoreUnavailableError,
)
from blumfeld_kit.fakes.object_store import Fate, ProcessDied, SimulatedStore
from blumfeld_kit.fakes.runtime import EPOCH_MS, FakeRuntime


class Rig:
    """A store on virtual time."""

    def __init__(self, seed: int = 1) -> None:
        self.runtime = FakeRuntime(seed)
        self.store = SimulatedStore(self.runtime)
        self.bucket = self.store.bucket
        self.faults = self.bucket.faults
        self.run = self.runtime.run

    async def listed(self) -> list[str]:
        """The keys that a listing has now."""
        return [info.key async for info in self.store.list("")]


async def parts(*pieces: bytes) -> AsyncIterator[bytes]:
    """The parts of an upload."""
    for piece in pieces:
        yield piece


async def a_day(rig: Rig) -> list[str]:
    """Some requests of each kind, and what became of them."""
    outcomes = []
    for n in range(60):
        calls = (
            rig.store.put(f"k{n % 7}", bytes([n]) * n),
            rig.store.put_parts(f"m{n % 3}", parts(b"a", b"b")),
            rig.store.get_range(f"k{n % 5}", 0, 9),
            rig.store.delete(f"k{n % 11}"),
            rig.listed(),
        )
        for call in calls:
            try:
                outcomes.append(repr(await call))
            except StoreError as error:
                outcomes.append(str(error))
    return outcomes


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    days = []
    for seed in (1, 1, 2):
        rig = Rig(seed)
        for name in ("unavailable", "throttled", "slow", "lost_answer", "cut_upload", "bit_rot"):
            setattr(rig.faults, name, 0.1)
        rig.faults.stale_list_ms = 5000
        days.append((rig.run(a_day(rig)), rig.bucket.trace))
    assert days[0] == days[1]
    assert days[0] != days[2]
    assert {line.split(maxsplit=5)[5] for line in days[0][1]} >= {
        "good",
        "503",
        "throttled",
        "slow",
        "answer lost",
        "cut",
    }


@pytest.mark.parametrize("fate", [Fate.UNAVAILABLE, Fate.THROTTLED, Fate.CUT])
def test_a_request_that_the_store_refuses_changes_nothing(fate: Fate) -> None:
    rig = Rig()
    rig.faults.scripted = {1: fate}
    with pytest.raises(StoreUnavailableError):
        rig.run(rig.store.put("a", b"x"))
    assert rig.bucket.keys() == []


def test_a_lost_answer_hides_a_success() -> None:
    rig = Rig()
    rig.faults.scripted = {1: Fate.LOST_ANSWER}
    with pytest.raises(StoreUnavailableError, match="no answer in 10000 ms"):
        rig.run(rig.store.put("a", b"x", if_absent=True))
    assert rig.bucket.read("a") == b"x"
    assert rig.runtime.monotonic_ms() >= 10_000
    with pytest.raises(ObjectExistsError):
        rig.run(rig.store.put("a", b"x", if_absent=True))


def test_an_answer_that_is_slower_than_the_client_waits_is_lost() -> None:
    rig = Rig()
    rig.faults.slow, rig.faults.slow_ms = 1.0, 3000
    rig.run(rig.store.put("a", b"x"))
    assert 3000 <= rig.runtime.monotonic_ms() < 3100
    rig.faults.slow_ms = 20_000
    with pytest.raises(StoreUnavailableError):
        rig.run(rig.store.put("b", b"x"))
    assert rig.bucket.keys() == ["a", "b"]


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_an_upload_that_breaks_anywhere_shows_nothing(nth: int) -> None:
    rig = Rig()
    rig.faults.scripted = {nth: Fate.CUT}
    with pytest.raises(StoreUnavailableError):
        rig.run(rig.store.put_parts("a", parts(b"x", b"y")))
    assert rig.bucket.keys() == []
    assert rig.bucket.unfinished_uploads == (1 if nth > 1 else 0)


def test_a_listing_lags_and_catches_up() -> None:
    rig = Rig()
    rig.faults.stale_list_ms = 60_000
    for n in range(20):
        rig.run(rig.store.put(f"{n:02}", b"x"))
    seen = rig.run(rig.listed())
    assert 0 <= len(seen) < 20
    rig.runtime.advance(60_000)
    assert len(rig.run(rig.listed())) == 20
    rig.run(rig.store.delete("00"))
    rig.run(rig.store.put("00", b"x"))
    rig.runtime.advance(60_000)
    assert len(rig.run(rig.listed())) == 20  # an object that came back isn't hidden by its deletion


def test_a_listing_of_several_pages_has_each_object_once() -> None:
    rig = Rig()
    for n in range(2345):
        rig.bucket.put(f"{n:05}", b"", rig.runtime)
    assert rig.run(rig.listed()) == [f"{n:05}" for n in range(2345)]
    assert rig.bucket.requests == 3


def test_the_clock_of_the_store_may_be_wrong() -> None:
    rig = Rig()
    rig.faults.clock_skew_ms = -90_000
    rig.run(rig.store.put("a", b"x"))
    assert EPOCH_MS - 90_000 <= rig.run(rig.store.head("a")).modified_ms < EPOCH_MS - 80_000


def test_credentials_that_expired_are_refused_until_they_are_renewed() -> None:
    rig = Rig()
    rig.store.expire_credentials(5000)
    with pytest.raises(StoreDeniedError):
        rig.run(rig.store.put("a", b"x"))
    rig.runtime.advance(5000)
    rig.run(rig.store.put("a", b"x"))


def test_a_store_that_is_away_answers_nobody_for_a_while() -> None:
    rig = Rig()
    rig.store.go_away(30_000)
    with pytest.raises(StoreUnavailableError, match="can't be reached"):
        rig.run(rig.store.put("a", b"x"))
    rig.runtime.advance(20_000)
    rig.run(rig.store.put("a", b"x"))


def test_bits_rot_at_rest() -> None:
    rig = Rig()
    rig.faults.bit_rot = 1.0
    rig.run(rig.store.put("a", bytes(100)))
    assert sum(byte.bit_count() for byte in rig.bucket.read("a")) == 1


def test_a_process_that_died_reaches_the_store_no_more() -> None:
    rig = Rig()
    rig.faults.scripted = {1: Fate.DIES_AFTER}
    with pytest.raises(ProcessDied):
        rig.run(rig.store.put("a", b"x"))
    with pytest.raises(ProcessDied):
        rig.run(rig.store.delete("a"))
    assert rig.bucket.keys() == ["a"]
    other = SimulatedStore(rig.runtime, rig.bucket)
    assert rig.run(other.get_range("a", 0, 5)) == b"x"
    with pytest.raises(ObjectNotFoundError):
        rig.run(other.head("b"))


def test_a_cancelled_request_ends_at_once() -> None:
    rig = Rig()
    rig.faults.slow, rig.faults.slow_ms = 1.0, 9000

    async def cancelled() -> None:
        task = asyncio.ensure_future(rig.store.put("a", b"x"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    rig.run(cancelled())
    assert rig.runtime.monotonic_ms() == 1000
