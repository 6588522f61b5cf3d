"""The lease: one writer at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import attrs
import msgspec
import pytest

from blumfeld_sink_spark.errors import LedgerConflictError
from blumfeld_sink_spark.ledger.writers import lease
from blumfeld_sink_spark.ledger.writers.lease import TTL_MS, Held, Lease
from blumfeld_sink_spark.ledger.writers.owner import Owner, born
from blumfeld_sink_spark.stores.contract import ArchiveStore
from blumfeld_sink_spark.stores.roots import open_store
from tests.plugins.sink_spark.ledger.ledger_tools import opened
from tests.thread_ends import process_without_its_first_thread


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    if request.param == "folder":
        return opened(tmp_path)
    pytest.importorskip("obstore")
    return open_store("memory://")


@attrs.define
class Clock:
    """A wall clock that a test moves."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def elsewhere() -> Owner:
    return msgspec.structs.replace(Owner.here(), host="other/boot/ns", pid=7, token="t7")


def test_a_second_writer_is_told_who_holds_it_since_when_and_what_to_do(
    store: ArchiveStore, clock: Clock
) -> None:
    first = Lease(store, "ticks", elsewhere(), now_ms=clock)
    first.take()
    clock.now_ms += 20_000
    with pytest.raises(LedgerConflictError) as info:
        Lease(store, "ticks", now_ms=clock).take()
    assert str(info.value) == (
        f"{store.root}: ticks is being written by process 7 on other since 2023-11-14 22:13:20+00:00. Stop it, or, if "
        "its host is gone, wait 40 s; another set of topics takes another --name"
    )
    Lease(store, "other-name", now_ms=clock).take()


def test_two_writers_of_one_process_are_two(store: ArchiveStore) -> None:
    with Lease(store, "ticks"), pytest.raises(LedgerConflictError):
        Lease(store, "ticks").take()


def test_another_host_is_waited_for_until_it_runs_out(store: ArchiveStore, clock: Clock) -> None:
    first = Lease(store, "ticks", elsewhere(), now_ms=clock)
    first.take()
    clock.now_ms += TTL_MS - 1
    with pytest.raises(LedgerConflictError):
        Lease(store, "ticks", now_ms=clock).take()
    clock.now_ms += 1
    second = Lease(store, "ticks", now_ms=clock)
    second.take()
    with pytest.raises(LedgerConflictError, match="no longer ours"):
        first.renew()
    first.release()
    second.renew()


def test_renewing_keeps_it(store: ArchiveStore, clock: Clock) -> None:
    first = Lease(store, "ticks", elsewhere(), now_ms=clock)
    first.take()
    for _ in range(5):
        clock.now_ms += TTL_MS // 2
        first.renew()
        with pytest.raises(LedgerConflictError):
            Lease(store, "ticks", now_ms=clock).take()


def test_a_lease_that_was_never_taken_is_not_renewed(store: ArchiveStore) -> None:
    never = Lease(store, "ticks")
    never.release()
    with pytest.raises(LedgerConflictError):
        never.renew()


def test_a_dead_process_of_this_host_is_taken_over_at_once(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from blumfeld_sink_spark.ledger.writers.lease import Lease\n"
        "from blumfeld_sink_spark.stores.roots import open_store\n"
        "Lease(open_store(sys.argv[1]), 'ticks').take()\n"
        "print('taken', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "taken\n"
        with pytest.raises(LedgerConflictError, match=f"by process {writer.pid} on "):
            Lease(opened(tmp_path), "ticks").take()
        writer.kill()
        writer.wait()
    Lease(opened(tmp_path), "ticks").take()


def test_a_live_process_of_this_host_keeps_it_however_late_it_renews(
    store: ArchiveStore, clock: Clock
) -> None:
    """The writer's machine was busy or asleep: no other process may write meanwhile."""
    first = Lease(store, "ticks", now_ms=clock)
    first.take()
    clock.now_ms += 10 * TTL_MS
    with pytest.raises(LedgerConflictError, match="being written by process"):
        Lease(store, "ticks", now_ms=clock).take()
    first.renew()


def test_a_pid_that_was_given_to_another_process_holds_nothing(store: ArchiveStore) -> None:
    before = msgspec.structs.replace(Owner.here(), born=Owner.here().born - 1)
    Lease(store, "ticks", before).take()
    Lease(store, "ticks").take()


def test_a_process_whose_first_thread_has_ended_keeps_it(store: ArchiveStore, clock: Clock) -> None:
    """After a kill it looks so for a moment, and another of its threads may be in the middle of a write."""
    process = process_without_its_first_thread()
    try:
        writer = msgspec.structs.replace(Owner.here(), pid=process.pid, born=born(process.pid))
        Lease(store, "ticks", writer, now_ms=clock).take()
        with pytest.raises(LedgerConflictError, match="being written by process"):
            Lease(store, "ticks", now_ms=clock).take()
    finally:
        process.kill()
        process.wait()
    Lease(store, "ticks", now_ms=clock).take()


def test_a_file_that_says_nothing_is_nobodys(store: ArchiveStore) -> None:
    store.put("_leases/ticks.json", b"{")
    Lease(store, "ticks").take()
    assert [held.name for held in lease.every(store)] == ["ticks"]


def test_of_many_that_want_a_dead_ones_lease_one_gets_it(store: ArchiveStore) -> None:
    dead = msgspec.structs.replace(Owner.here(), pid=2**22 + 1)
    for _ in range(5):
        store.put(
            "_leases/ticks.json",
            msgspec.json.encode(Held(name="ticks", owner=dead, since_ms=1, until_ms=2**62)),
        )
        got: list[Lease] = []
        start = threading.Barrier(8)

        def want(got: list[Lease] = got, start: threading.Barrier = start) -> None:
            mine = Lease(store, "ticks")
            start.wait()
            try:
                mine.take()
            except LedgerConflictError:
                return
            got.append(mine)

        threads = [threading.Thread(target=want) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == 1
        got[0].renew()
