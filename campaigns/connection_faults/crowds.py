"""Thousands of connections: idle, come and gone."""

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
    receive_frame,
    reset,
    source_of,
)

IDLE = 10_000
SPARE_FDS = 500
"""Descriptors that we, and the broker, need for other things."""
HOLD_S = 10.0
CLOSED_WITHIN_S = 15.0
STORM = 20_000
LONG_BACKLOG = 'config."socket.listen.backlog.size"=4096'
"""With Kafka's 50, a client that finds it full tries again after a second: then the storm is none."""


def raise_fd_limit() -> int:
    """Our own soft limit as high as it may be; that limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _open_idle(scene: Scene) -> list[socket.socket]:
    """As many as are asked for, or as the limits of us and the broker allow; every tenth has asked something."""
    count = min(scene.times(IDLE, least=40), raise_fd_limit() - SPARE_FDS)
    count = min(count, resource.prlimit(scene.broker.pid, resource.RLIMIT_NOFILE)[0] - SPARE_FDS)
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
    """Connect; close or reset."""
    count = scene.times(STORM, least=100)
    for nth in range(count):
        sock = connect(scene.address, source_of(nth))
        sock.close() if nth % 2 else reset(sock)
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


def faults() -> Iterator[Fault]:
    """All of them."""
    yield Fault("idle connections", idle, settings=(LONG_BACKLOG,), settle_s=20.0)
    yield Fault("idle connections, closed by the broker", closed_when_idle, settings=(SHORT_IDLE,))
    yield Fault("a storm: connect, close or reset", storm, settings=(LONG_BACKLOG,))
    yield Fault("a storm: connect, garbage, reset", storm_of_garbage, settings=(LONG_BACKLOG,))
