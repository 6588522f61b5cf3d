"""Clients that die in the middle of something: their connection is closed, or reset."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from campaigns.connection_faults.fault import Fault, Scene
from campaigns.connection_faults.frames import (
    announced,
    api_versions,
    connect,
    fetch,
    produce,
    receive,
    reset,
    source_of,
)

PARKED_MS = 2_000
SEND_TIMEOUT_S = 0.5
RECEIVE_TIMEOUT_S = 10.0
MIB = 1 << 20


@dataclass(frozen=True)
class Point:
    """The point at which a client dies: it has sent this, and received so many bytes."""

    title: str
    data: Callable[[Scene], bytes]
    receive_bytes: int = 0
    connections: int = 1_000
    """In one repetition, at full scale."""
    at_once: int = 10
    """Connections that die together; fewer where each is large."""


def points() -> Iterator[Point]:
    """Every place in an exchange where the next byte may be missing."""
    yield Point("in the size field", lambda _: b"\x00\x00")
    yield Point("in the header", lambda scene: produce(scene.target.topic, b"x")[:9])
    yield Point("in the body", lambda scene: produce(scene.target.topic, b"x" * 5_000)[:3_000])
    yield Point("in a frame of 1 MB", lambda scene: _large(scene, MIB, 300_000), connections=500)
    yield Point("in a frame of 100 MB", lambda scene: _large(scene, 100_000_000, 65_536), connections=500)
    yield Point(
        "20 MB into a frame of 100 MB",
        lambda scene: _large(scene, 100_000_000, 20 * MIB),
        connections=20,
        at_once=2,
    )
    yield Point("while its answer is sent", _many_bytes, receive_bytes=1_000, connections=500)
    yield Point("while a fetch is parked", lambda scene: fetch(scene.quiet_topic, 0, MIB, _parked_ms(scene)))
    yield Point("with 100 requests open", _pipelined, connections=300)
    yield Point("with its requests behind a parked one", _behind_a_parked_one, connections=500)


def _parked_ms(scene: Scene) -> int:
    return scene.times(PARKED_MS, least=300)


def _large(scene: Scene, size_bytes: int, sent_bytes: int) -> bytes:
    beginning = produce(scene.target.topic, b"x" * 1_000)[4:]
    return announced(size_bytes) + beginning + bytes(sent_bytes - len(beginning))


def _many_bytes(scene: Scene) -> bytes:
    return fetch(scene.big_topic, 0, scene.big_bytes)


def _pipelined(scene: Scene) -> bytes:
    frame = produce(scene.target.topic, b"x" * 100)
    return (frame * 9 + api_versions()) * 10


def _behind_a_parked_one(scene: Scene) -> bytes:
    return fetch(scene.quiet_topic, 0, MIB, _parked_ms(scene)) + api_versions() * 500


def client_dies(point: Point, end: Callable[[socket.socket], None]) -> Callable[[Scene], str]:
    """Clients come to the point, some at once, and their connections end.

    A kill of their process is a close: the kernel sends FIN, or RST where not everything was read.
    """

    def act(scene: Scene) -> str:
        data = point.data(scene)
        count = scene.times(point.connections, least=point.at_once)
        for first in range(0, count, point.at_once):
            kept = [_come_so_far(scene, first + nth, data, point) for nth in range(point.at_once)]
            for sock in kept:
                end(sock)
        return f"{count} connections"

    return act


def _come_so_far(scene: Scene, nth: int, data: bytes, point: Point) -> socket.socket:
    sock = connect(scene.address, source_of(nth))
    sock.settimeout(SEND_TIMEOUT_S)
    with contextlib.suppress(TimeoutError):  # the broker need not read on while answers are open
        sock.sendall(data)
    sock.settimeout(RECEIVE_TIMEOUT_S)
    receive(sock, point.receive_bytes)
    return sock


def faults() -> Iterator[Fault]:
    """Each point, in both ways."""
    for point in points():
        yield Fault(f"killed {point.title}", client_dies(point, socket.socket.close))
        yield Fault(f"reset {point.title}", client_dies(point, reset))
