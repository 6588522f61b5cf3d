"""A door: who is let in when hardly a descriptor is left."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.net.accepted import AcceptedConnection
from blumfeld.net.accepting import Acceptor, ConnectionTable
from blumfeld.net.receive import ReceivePool
from blumfeld.net.sending import SendQueue
from blumfeld.net.turn import Turn
from blumfeld.spi.repeated_events import INTERVAL_MS
from blumfeld.spi.transport import ByteLayer, Limits, Listener
from blumfeld.testing.fake_runtime import FakeRuntime

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
    """Counts who was let in."""

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
