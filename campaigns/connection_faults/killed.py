"""Clients that die in the middle of something: their process is killed, or they reset the connection."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from campaigns.connection_faults import victim
from campaigns.connection_faults.fault import Fault, Scene, Wrong
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
VICTIMS_TIMEOUT_S = 300.0
MIB = 1 << 20


@dataclass(frozen=True)
class Point:
    """Where a client is when it dies: it has sent this, and received so many bytes."""

    title: str
    data: Callable[[Scene], bytes]
    receive_bytes: int = 0
    connections: int = 1_000
    """In one repetition, at full scale."""
    at_once: int = 10
    """Connections of one process that is killed; fewer where each is large."""


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
    one = produce(scene.target.topic, b"x" * 100)
    return (one * 9 + api_versions()) * 10


def _behind_a_parked_one(scene: Scene) -> bytes:
    return fetch(scene.quiet_topic, 0, MIB, _parked_ms(scene)) + api_versions() * 500


def process_killed(point: Point) -> Callable[[Scene], str]:
    """The client's process is killed: FIN, or RST where it has not read everything."""

    def act(scene: Scene) -> str:
        order = {
            "address": scene.address,
            "data": point.data(scene).hex(),
            "receive_bytes": point.receive_bytes,
            "connections": point.at_once,
            "processes": scene.times(point.connections // point.at_once, least=2),
            "linger_s": 0.002,
        }
        command = [sys.executable, "-m", victim.__name__]
        given = json.dumps(order).encode()
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=VICTIMS_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise Wrong(f"not every client came so far: {done.stderr.decode()[-300:]}")
        return f"{int(done.stdout)} connections"

    return act


def connection_reset(point: Point) -> Callable[[Scene], str]:
    """The client closes with RST."""

    def act(scene: Scene) -> str:
        data = point.data(scene)
        count = scene.times(point.connections, least=point.at_once)
        for nth in range(count):
            sock = connect(scene.address, source_of(nth))
            sock.settimeout(SEND_TIMEOUT_S)
            with contextlib.suppress(TimeoutError):  # it need not read on while answers are open
                sock.sendall(data)
            sock.settimeout(10.0)
            receive(sock, point.receive_bytes)
            reset(sock)
        return f"{count} connections"

    return act


def faults() -> Iterator[Fault]:
    """Each point, in both ways."""
    for point in points():
        yield Fault(f"killed {point.title}", process_killed(point))
        yield Fault(f"reset {point.title}", connection_reset(point))
