"""Thousands of connections: idle, come and gone, refused."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator

from campaigns.connection_faults.fault import SHORT_IDLE, Fault, Scene, Wrong
from campaigns.connection_faults.frames import (
    api_versions,
    connect,
    is_served,
    receive_frame,
    reset,
    source_of,
)
from campaigns.waits import await_true

IDLE = 10_000
SPARE_FDS = 500
"""Descriptors that we, and the broker, need for other things."""
HOLD_S = 10.0
CLOSED_WITHIN_S = 15.0
CONNECTIONS_MAX = 60
PER_IP_MAX = 20
LEFT_S = 30.0
STORM = 20_000
LONG_BACKLOG = 'config."socket.listen.backlog.size"=4096'
"""With Kafka's 50, a client that finds it full tries again after a second: then the storm is none."""


def raise_fd_limit() -> int:
    """Our own soft limit as high as it may be; that limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def fd_limit_of(pid: int) -> int:
    """The soft limit of a process."""
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


def _open_idle(scene: Scene) -> list[socket.socket]:
    """As many as are asked for, or as the limits of us and the broker allow; every tenth has asked something."""
    count = min(scene.times(IDLE, least=40), raise_fd_limit() - SPARE_FDS)
    count = min(count, fd_limit_of(scene.broker.pid) - SPARE_FDS)
    kept = []
    for nth in range(count):
        sock = connect(scene.address, source_of(nth))
        if nth % 10 == 0:
            sock.sendall(api_versions())
            receive_frame(sock)
        kept.append(sock)
    return kept


def idle(scene: Scene) -> str:
    """Opened, held while others are served, closed by their clients."""
    before = scene.broker.rss_bytes()
    kept = _open_idle(scene)
    scene.background.mark()
    time.sleep(HOLD_S * scene.scale)
    each = (scene.broker.rss_bytes() - before) / len(kept)
    seen = scene.background.mark()
    held = scene.count().connections
    for nth, sock in enumerate(kept):
        if nth % 2:
            sock.close()
        else:
            reset(sock)
    if held < len(kept):
        raise Wrong(f"of {len(kept)} idle connections the broker kept {held}")
    return (
        f"{len(kept)} connections, {each:.0f} B of RSS each; p99 of the others meanwhile {seen.p99_ms:.1f} ms"
    )


def closed_when_idle(scene: Scene) -> str:
    """Closed by the broker, after its idle time."""
    kept = _open_idle(scene)
    started = time.monotonic()
    for sock in kept:
        sock.settimeout(max(0.01, CLOSED_WITHIN_S - (time.monotonic() - started)))
        try:
            if sock.recv(1):
                raise Wrong("something came on an idle connection")
        except TimeoutError:
            raise Wrong(f"not all were closed within {CLOSED_WITHIN_S:.0f} s") from None
        finally:
            sock.close()
    took_s = time.monotonic() - started
    return f"{len(kept)} connections, closed by the broker {took_s:.1f} s after the last was opened"


def storm(scene: Scene) -> str:
    """Connect, close."""
    count = scene.times(STORM, least=100)
    for nth in range(count):
        connect(scene.address, source_of(nth)).close()
    return f"{count} connections"


def storm_of_resets(scene: Scene) -> str:
    """Connect, reset."""
    count = scene.times(STORM, least=100)
    for nth in range(count):
        reset(connect(scene.address, source_of(nth)))
    return f"{count} connections"


def storm_of_garbage(scene: Scene) -> str:
    """Connect, send what is no frame, reset."""
    count = scene.times(STORM // 4, least=100)
    garbage = (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\x00\x00\x00\x08garbage!", bytes(50))
    for nth in range(count):
        sock = connect(scene.address, source_of(nth))
        sock.sendall(garbage[nth % len(garbage)])
        if nth % 3:
            with contextlib.suppress(ConnectionResetError):
                sock.recv(1)
        reset(sock)
    return f"{count} connections"


def beyond_the_limit(scene: Scene) -> str:
    """``max.connections``: who comes when it is full is closed at once; who leaves makes room."""
    return _crowd(scene, CONNECTIONS_MAX - scene.count().connections, same_source=False)


def beyond_the_limit_of_an_address(scene: Scene) -> str:
    """``max.connections.per.ip``: one address is full, others are let in."""
    return _crowd(scene, PER_IP_MAX, same_source=True)


def _crowd(scene: Scene, room: int, same_source: bool) -> str:
    for _ in range(turns := scene.times(20, least=2)):
        kept = [
            connect(scene.address, "127.0.2.1" if same_source else source_of(nth)) for nth in range(2 * room)
        ]
        served = [is_served(sock) for sock in kept]
        if served != [True] * room + [False] * room:
            raise Wrong(f"{sum(served)} of {2 * room} connections were served, not the first {room}")
        if same_source:
            with connect(scene.address, "127.0.2.2") as other:
                if not is_served(other):
                    raise Wrong("another address was not served")
        for sock in kept:
            sock.close()
        _until_connections(scene, PER_IP_MAX if same_source else CONNECTIONS_MAX - room)
    return f"{turns} times {2 * room} connections: {room} served, {room} closed"


def _until_connections(scene: Scene, count: int) -> None:
    if not await_true(lambda: scene.count().connections <= count, LEFT_S):
        raise Wrong("who has left still counts")


def faults() -> Iterator[Fault]:
    """All of them."""
    yield Fault("idle connections", idle, settings=(LONG_BACKLOG,), settle_s=20.0)
    yield Fault(
        "idle connections, closed by the broker",
        closed_when_idle,
        settings=(SHORT_IDLE,),
    )
    yield Fault("a storm: connect, close", storm, settings=(LONG_BACKLOG,))
    yield Fault("a storm: connect, reset", storm_of_resets, settings=(LONG_BACKLOG,))
    yield Fault("a storm: connect, garbage, reset", storm_of_garbage, settings=(LONG_BACKLOG,))
    yield Fault(
        "beyond max.connections",
        beyond_the_limit,
        settings=(f'config."max.connections"={CONNECTIONS_MAX}',),
    )
    yield Fault(
        "beyond max.connections.per.ip",
        beyond_the_limit_of_an_address,
        settings=(f'config."max.connections.per.ip"={PER_IP_MAX}',),
    )
