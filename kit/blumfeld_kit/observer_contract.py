"""The contract of an observer, as tests: subclass :class:`ObserverContract` and give it your observer.

.. code-block:: python

    class TestMyObserver(ObserverContract):
        def make_observer(self, runtime):
            return MyObserver(runtime, "/data/audit.jsonl")
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from blumfeld.spi.observer import Observer, RequestSeen
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.runtime import FakeRuntime

WRITES = ("pwritev", "fdatasync", "write_atomically", "open", "truncate", "sync_dir", "rename")
MANY = 1000


def seen(number: int = 0, **values: object) -> RequestSeen:
    """Return a Produce request that was answered."""
    fields: dict[str, object] = {
        "time_ms": 1_700_000_000_000 + number,
        "listener": "PLAINTEXT",
        "peer_host": "10.0.0.7",
        "peer_port": 40_000,
        "principal": "User:ANONYMOUS",
        "client_id": f"client-{number}",
        "api_key": 0,
        "api_version": 9,
        "correlation_id": number,
        "request_bytes": 200,
        "response_bytes": 60,
        "error_code": 0,
        "elapsed_ms": 1.5,
    }
    return RequestSeen(**{**fields, **values})  # type: ignore[arg-type]


class ObserverContract:
    """The contract of ``blumfeld.spi.observer.Observer`` as tests, on virtual time and a simulated disk."""

    def make_observer(self, runtime: FakeRuntime) -> Observer:
        """Your observer, not started. It may write in ``/data``."""
        raise NotImplementedError("override make_observer")

    @pytest.fixture
    def runtime(self) -> FakeRuntime:
        """A runtime on virtual time, with a directory ``/data``."""
        runtime = FakeRuntime(1)
        runtime.files.make_dirs("/data")
        return runtime

    @pytest.fixture
    def observer(self, runtime: FakeRuntime) -> Iterator[Observer]:
        """Your observer, started."""
        made = self.make_observer(runtime)
        runtime.run(made.start())
        yield made
        runtime.run(made.stop())

    def test_stop_is_legal_without_start(self, runtime: FakeRuntime) -> None:
        """``stop`` before ``start`` does nothing: a node whose start failed stops every part that it made."""
        runtime.run(self.make_observer(runtime).stop())

    def test_it_blocks_nobody(self, runtime: FakeRuntime, observer: Observer) -> None:
        """``requests`` touches no file. An observer that writes does so later, off the loop."""
        before = dict(runtime.disk.operations)
        observer.requests([seen(n) for n in range(MANY)])
        assert runtime.disk.operations == before, (
            "requests() used a file on the loop; write later, by runtime.offload"
        )
        runtime.advance(60_000)

    def test_it_takes_what_could_not_be_read(self, runtime: FakeRuntime, observer: Observer) -> None:
        """A request that could not be parsed is reported with API key -1 and an empty client id. The observer takes
        it.
        """
        observer.requests([seen(api_key=-1, api_version=-1, client_id="", closed="too short")])
        observer.requests([seen(error_code=3, client_id='a "quoted"\nid \ud800'), seen(principal="User:x")])
        runtime.advance(60_000)

    def test_a_disk_that_fails_fails_nobody(self, runtime: FakeRuntime, observer: Observer) -> None:
        """When the disk fails, no error escapes from the observer, neither at once nor later, and it goes on."""
        for operation in WRITES:
            runtime.disk.inject(Fault(operation=operation, times=-1, error_number=errno.ENOSPC))
        for n in range(3):
            observer.requests([seen(n)])
            runtime.advance(10_000)
        assert runtime.defects == []
        runtime.disk.heal()
        observer.requests([seen(9)])
        runtime.advance(10_000)
