"""Clients that read, or write, far too slowly."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

from blumfeld.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from campaigns.connection_faults.fault import Fault, Scene, Wrong
from campaigns.connection_faults.frames import (
    api_versions,
    connect,
    correlation_id_of,
    fetch,
    framed,
    produce,
    receive_frame,
    reset,
    source_of,
)

READERS = 20
READ_BYTES_PER_S = 1_024
READS_PER_S = 4
RSS_GROWTH_BYTES_MAX = 48 << 20
"""While they read: 20 answers of 50 MB are 1 GB."""
BROKER_RESOURCE = 4
DESCRIBE_CONFIGS_VERSION = 4
SETTINGS_ASKED = 500
"""By each reader: answers of some 17 KB."""
WRITE_EVERY_S = 0.05
ANSWER_TIMEOUT_S = 20.0


def readers_of_much(scene: Scene) -> str:
    """Each asks for all of the big topic and reads 1 KiB/s, then resets."""
    return _read_slowly(scene, fetch(scene.big_topic, 0, scene.big_bytes), READERS)


def readers_of_many(scene: Scene) -> str:
    """Each pipelines requests whose answers are parts of files, small, or lie in memory, and hardly reads."""
    some = fetch(scene.big_topic, 0, 1_000_000) + api_versions() * 20
    return _read_slowly(scene, some * scene.times(300, least=30), READERS)


def readers_of_memory(scene: Scene) -> str:
    """Each pipelines requests whose answers lie in memory: all settings of the broker, with their documentation."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    return _read_slowly(scene, framed(request, DESCRIBE_CONFIGS_VERSION) * SETTINGS_ASKED, READERS)


def _read_slowly(scene: Scene, data: bytes, readers: int) -> str:
    before = scene.broker.rss_bytes()
    kept = []
    for nth in range(readers):
        sock = connect(scene.address, source_of(nth))
        sock.settimeout(0.05)
        with contextlib.suppress(TimeoutError):  # the broker stops reading, as it must
            sock.sendall(data)
        kept.append(sock)
    highest = read = 0
    seconds = max(0.75, 10.0 * scene.scale)
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until or (not read and now < until + ANSWER_TIMEOUT_S):
        for sock in kept:
            with contextlib.suppress(TimeoutError):
                read += len(sock.recv(READ_BYTES_PER_S // READS_PER_S))
        highest = max(highest, scene.broker.rss_bytes())
        time.sleep(1 / READS_PER_S)
    for sock in kept:
        reset(sock)
    grown = highest - before
    if not read:
        raise Wrong("nothing came")
    if grown > RSS_GROWTH_BYTES_MAX:
        raise Wrong(f"the broker's memory grew by {grown >> 20} MiB")
    return f"{readers} readers for {seconds:.0f} s: memory grew by {grown / (1 << 20):.1f} MiB meanwhile"


def writers(scene: Scene) -> str:
    """A byte at a time, all of them at once; each gets its answer."""
    count = scene.times(300, least=30)
    data = produce(scene.target.topic, b"slow", -1, 3)
    kept = [connect(scene.address, source_of(nth), ANSWER_TIMEOUT_S) for nth in range(count)]
    for sock in kept:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for at in range(len(data)):
        due = time.monotonic() + WRITE_EVERY_S * min(1.0, scene.scale * 2)
        for sock in kept:
            sock.send(data[at : at + 1])
        time.sleep(max(0.0, due - time.monotonic()))
    for sock in kept:
        with sock:
            if correlation_id_of(receive_frame(sock)) != 3:
                raise Wrong("another answer came")
    return f"{count} connections, {len(data)} bytes each one at a time, all answered"


def writers_who_give_up(scene: Scene) -> str:
    """A byte at a time, and a reset before the frame is whole."""
    count = scene.times(300, least=30)
    data = produce(scene.target.topic, b"slow" * 10_000)
    kept = [connect(scene.address, source_of(nth)) for nth in range(count)]
    for at in range(40):
        for sock in kept:
            sock.send(data[at : at + 1])
        time.sleep(0.01)
    for sock in kept:
        reset(sock)
    return f"{count} connections, 40 bytes one at a time, then reset"


def faults() -> Iterator[Fault]:
    """All of them."""
    yield Fault("slow readers of a large answer", readers_of_much)
    yield Fault("slow readers of many answers", readers_of_many)
    # They ask for work, 2 ms an answer, and get their share: others wait for a few of each, not for all.
    yield Fault("slow readers of much memory", readers_of_memory, stall_ms=8_000.0)
    yield Fault("slow writers", writers)
    yield Fault("slow writers who give up", writers_who_give_up)
