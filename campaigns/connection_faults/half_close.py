"""Clients that close the sending half of their connection: they may still wait for answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from campaigns.connection_faults.fault import SHORT_IDLE, SHORT_IDLE_MS, Fault, Scene, Wrong
from campaigns.connection_faults.frames import (
    api_versions,
    connect,
    correlation_id_of,
    fetch,
    produce,
    receive_frame,
    reset,
    source_of,
)

PIPELINED = 30
WAIT_MS = 200
HOUR_MS = 3_600_000
GONE_S = 6.0


def after_requests(scene: Scene) -> str:
    """All answers come, in order, then the end; half a request behind them changes nothing."""
    count = scene.times(300, least=6)
    for nth in range(count):
        sock = connect(scene.address, source_of(nth))
        with sock:
            requests = [produce(scene.target.topic, b"x" * 100, -1, n) for n in range(PIPELINED)]
            requests.append(api_versions(PIPELINED))
            if nth % 10 == 0:  # one that waits holds up those behind it
                requests.append(fetch(scene.quiet_topic, 0, 1_000, WAIT_MS, 1, PIPELINED + 1))
                requests.append(api_versions(PIPELINED + 2))
            rest = api_versions()[: nth % 7]
            sock.sendall(b"".join(requests) + rest)
            sock.shutdown(socket.SHUT_WR)
            for expected in range(len(requests)):
                if (came := correlation_id_of(receive_frame(sock))) != expected:
                    raise Wrong(f"answer {came} came where {expected} was due")
            if sock.recv(1):
                raise Wrong("there was more behind the last answer")
    return f"{count} connections, {PIPELINED + 1} to {PIPELINED + 3} answers each, then the end"


def a_large_answer(scene: Scene) -> str:
    """An answer that the socket takes in many pieces comes whole."""
    count = scene.times(10, least=2)
    for nth in range(count):
        with connect(scene.address, source_of(nth)) as sock:
            sock.sendall(fetch(scene.big_topic, 0, scene.big_bytes))
            sock.shutdown(socket.SHUT_WR)
            time.sleep(0.05)
            came = len(receive_frame(sock))
            if came < scene.big_bytes // 2:
                raise Wrong(f"{came} bytes came of {scene.big_bytes}")
            if sock.recv(1):
                raise Wrong("there was more behind the answer")
    return f"{count} answers of {came >> 20} MiB, each whole, then the end"


def without_a_request(scene: Scene) -> str:
    """The broker closes too."""
    count = scene.times(1_000, least=20)
    for nth in range(count):
        with connect(scene.address, source_of(nth)) as sock:
            sock.sendall(api_versions()[: nth % 9])
            sock.shutdown(socket.SHUT_WR)
            if sock.recv(1):
                raise Wrong("it answered nothing with something")
    return f"{count} connections, each closed by the broker too"


def and_never_heard_of_again(scene: Scene) -> str:
    """A client that has died looks like one that waits; its fetch of an hour must not keep the connection so long."""
    count = scene.times(300, least=10)
    kept = []
    for nth in range(count):
        sock = connect(scene.address, source_of(nth))
        sock.sendall(fetch(scene.quiet_topic, 0, 1_000, HOUR_MS))
        sock.shutdown(socket.SHUT_WR)
        kept.append(sock)
    started = time.monotonic()
    ended = 0
    for sock in kept:
        sock.settimeout(max(0.05, GONE_S - (time.monotonic() - started)))
        try:
            ended += sock.recv(1) == b""
        except TimeoutError:
            pass
        except ConnectionResetError:
            ended += 1
    took_s = time.monotonic() - started
    for sock in kept:
        reset(sock)
    if ended < count:
        raise Wrong(
            f"{count - ended} of {count} were still there after {took_s:.1f} s (idle: {SHORT_IDLE_MS} ms)"
        )
    return f"{count} connections, all closed within {took_s:.1f} s (idle: {SHORT_IDLE_MS} ms)"


def faults() -> Iterator[Fault]:
    """All of them."""
    yield Fault("half-closed after requests", after_requests)
    yield Fault("half-closed before a large answer", a_large_answer)
    yield Fault("half-closed without a request", without_a_request)
    yield Fault(
        "half-closed, with a fetch of an hour",
        and_never_heard_of_again,
        settings=(SHORT_IDLE,),
    )
