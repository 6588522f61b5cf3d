"""A door: who is let in when hardly a descriptor is left."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace

from blumfeld.net.connections.accepted import AcceptedConnection
from blumfeld.net.connections.acceptor import RATE_LOOK_MS, Acceptor, ConnectionTable
from blumfeld.net.connections.creation_rate import WINDOW_S
from blumfeld.net.send_queue import SendQueue
from blumfeld.net.turn import ReceivePool, Turn
from blumfeld.spi.repeated_events import INTERVAL_MS
from blumfeld.spi.transport import ByteLayer, Limits, Listener
from blumfeld_kit.fakes.runtime import FakeRuntime

FD_MAX = 135
LISTENER = Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092)


class Sock:
    """A socket that has a number and can be closed."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.closed = False

    def fileno(self) -> int:
        return self.fd

    def close(self) -> None:
        self.closed = True


class Accepted(AcceptedConnection):
    """A connection that never reads."""

    def begin(self) -> None:
        """Do nothing."""


class Door(Acceptor):
    """An acceptor whose driver is the test."""

    is_open: bool = True

    def resume(self) -> None:
        self.is_open = True

    def pause(self) -> None:
        self.is_open = False

    def connection(
        self, sock: Any, peer: tuple[str, int], identity: int, layer: ByteLayer | None
    ) -> AcceptedConnection:
        queue = cast("SendQueue", None)
        return Accepted(
            self.turn, queue, peer, identity, self.listener, self.handler, self.limits, layer, self.forget
        )


class Log:
    """Keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []

    def warning(self, event: str, **values: Any) -> None:
        self.warnings.append(values)


class Handler:
    def __init__(self) -> None:
        self.opened_count = 0

    def opened(self, connection: object) -> None:
        self.opened_count += 1


@pytest.fixture
def door() -> Door:
    turn = Turn(FakeRuntime(), lambda _: None, ReceivePool(1_024))
    made = Door(
        turn,
        cast("Any", Log()),
        Sock(5),
        LISTENER,
        cast("Any", Handler()),
        Limits(),
        None,
        ConnectionTable(),
        lambda _: None,
    )
    made.fd_max = lambda: FD_MAX
    return made


def knock(door: Door, host: str = "127.0.0.1", times: int = 1) -> int:
    """Come so often, as long as the door is open; how many were let in."""
    before = cast("Handler", door.handler).opened_count
    for _ in range(times):
        if not door.paused:
            door.accepted(Sock(6), host, 40_000)
    return cast("Handler", door.handler).opened_count - before


def advance(door: Door, ms: float) -> None:
    runtime = door.turn.runtime
    assert isinstance(runtime, FakeRuntime)
    runtime.advance(ms)


def test_an_address_has_its_own_limit(door: Door) -> None:
    """In place of the one of all addresses, be it higher, lower or 0."""
    overrides = {"10.0.0.1": 3, "10.0.0.2": 0}
    door.limit(Limits(connections_per_ip_max=1, connections_per_ip_overrides=overrides))
    assert [knock(door, host, 5) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3")] == [3, 0, 1]
    warnings = cast("Log", door._log).warnings
    assert [warning["limit"] for warning in warnings] == [
        "max.connections.per.ip.overrides",
        "max.connections.per.ip.overrides",
        "max.connections.per.ip",
    ]


@pytest.mark.parametrize("field", ["connections_per_s_max", "listener_connections_per_s_max"])
def test_connections_beyond_the_rate_wait_in_the_backlog(door: Door, field: str) -> None:
    door.limit(replace(Limits(), **{field: 2}))
    assert knock(door, times=100) == 2 * WINDOW_S
    assert door.is_open is False
    advance(door, 499)
    assert door.paused
    advance(door, 1)
    assert door.is_open
    assert knock(door, times=100) == 1
    assert cast("Log", door._log).warnings == []


def test_another_rate_is_seen_by_a_closed_door(door: Door) -> None:
    """Within a second, however long the old rate would have it closed."""
    door.limit(Limits(connections_per_s_max=0))
    assert knock(door, times=9) == 1
    advance(door, 100_000)
    assert door.paused
    door.limit(Limits())
    advance(door, RATE_LOOK_MS)
    assert not door.paused


def test_brokers_are_not_kept_out_by_clients(door: Door) -> None:
    """The rate of all listeners exempts the listener between brokers, where there is another; its own holds."""
    door.listener = Listener(name="INSIDE", kind="broker", host="127.0.0.1", port=1, inter_broker=True)
    door.limit(Limits(connections_per_s_max=1))
    door._table.listeners = 2
    assert knock(door, times=100) == 100
    door.limit(Limits(connections_per_s_max=1, listener_connections_per_s_max=1))
    assert knock(door, times=100) == WINDOW_S


@pytest.mark.parametrize(("fd", "is_let_in"), [(6, True), (FD_MAX, True), (FD_MAX + 1, False), (199, False)])
def test_the_last_descriptors_are_not_for_connections(door: Door, fd: int, is_let_in: bool) -> None:
    sock = Sock(fd)
    door.accepted(sock, "127.0.0.1", 40_000)
    assert sock.closed is not is_let_in
    assert cast("Handler", door.handler).opened_count == int(is_let_in)


def test_a_crowd_does_not_flood_the_log(door: Door) -> None:
    for _ in range(1_000):
        door.accepted(Sock(FD_MAX + 1), "127.0.0.1", 40_000)
    runtime = door.turn.runtime
    assert isinstance(runtime, FakeRuntime)
    runtime.advance(INTERVAL_MS)
    first, summary = cast("Log", door._log).warnings
    assert (first["host"], first["limit"]) == ("127.0.0.1", "descriptors (RLIMIT_NOFILE)")
    assert summary["suppressed"] == 999
