"""No descriptor is left: nobody new is let in, those who are there are served, nothing spins or floods the log."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.produce import ProduceResponse
from campaigns.bad_input.target import good_batch, name_of
from campaigns.connection_faults.census import cpu_s, fds_by_kind
from campaigns.connection_faults.fault import Fault, Scene, Wrong
from campaigns.connection_faults.frames import (
    API_VERSIONS_VERSION,
    connect,
    is_served,
    reset,
    source_of,
)
from campaigns.raw_connection import RawConnection
from campaigns.raw_requests import PRODUCE_VERSION, produce_request
from campaigns.waits import await_true

FD_LIMIT = 200
CROWD = 400
CPU_SHARE_MAX = 0.15
"""Share of one core, beyond what the background load takes without the fault."""
LOG_LINES_PER_S_MAX = 20.0
SEGMENT_BYTES = 1 << 20
ROLLING_BATCHES = 4
AGAIN_S = 30.0
HEARD_S = 5.0


@dataclass(frozen=True)
class _Use:
    cpu_s: float
    seconds: float
    requests: int
    """Requests of the background load: on a busy machine one while has more of them than another."""
    log_lines_per_s: float

    def more_of_a_core(self, usual: _Use) -> float:
        """Return the share of a core beyond what as much time, or as many requests, usually take."""
        for_requests = usual.cpu_s / usual.requests * self.requests if usual.requests else 0.0
        return (self.cpu_s - max(usual.cpu_s / usual.seconds * self.seconds, for_requests)) / self.seconds


def _use(scene: Scene, seconds: float) -> _Use:
    """Measure the broker's share of a core, and the lines of its log, for a while."""
    started, lines = time.monotonic(), _log_lines(scene)
    cpu = cpu_s(scene.broker.pid)
    before = scene.background.mark()
    time.sleep(seconds)
    seen = scene.background.mark()
    if wrong := [*before.wrong_but_quiet(), *seen.wrong_but_quiet()]:
        raise Wrong("; ".join(wrong))
    took_s = time.monotonic() - started
    lines_per_s = (_log_lines(scene) - lines) / took_s
    return _Use(cpu_s(scene.broker.pid) - cpu, took_s, seen.produced + seen.fetched, lines_per_s)


def _log_lines(scene: Scene) -> int:
    return scene.broker.log_path.read_bytes().count(b"\n")


def exhausted(scene: Scene) -> str:
    """The limit is lowered for a while, and a crowd comes."""
    pid = scene.broker.pid
    limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    topic = scene.target.make_topic(f"rolls-{time.time_ns():x}", {"segment.bytes": str(SEGMENT_BYTES)})
    seconds = max(0.8, 5.0 * scene.scale)
    usual = _use(scene, seconds)
    with RawConnection(scene.address) as first:
        first.ask(ApiVersionsRequest(), API_VERSIONS_VERSION, ApiVersionsResponse)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (FD_LIMIT, limit[1]))
        crowd = _crowd(scene)
        try:
            said = _while_exhausted(scene, first, topic, usual, seconds)
        finally:
            for sock in crowd:
                reset(sock)
            _served_again(scene)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
    return said


def _while_exhausted(scene: Scene, first: RawConnection, topic: str, usual: _Use, seconds: float) -> str:
    _heard(scene)
    now = _use(scene, seconds)
    let_in = fds_by_kind(scene.broker.pid)["socket"]
    rolled = _roll(first, topic)
    more = now.more_of_a_core(usual)
    if more > CPU_SHARE_MAX:
        raise Wrong(f"it takes {more:.0%} of a core more than usual")
    if now.log_lines_per_s > LOG_LINES_PER_S_MAX:
        raise Wrong(f"it writes {now.log_lines_per_s:.1f} lines/s to its log")
    if rolled:
        raise Wrong(f"a segment could not roll: {rolled}")
    if let_in >= CROWD:
        raise Wrong(f"{let_in} sockets are open: nobody was kept out")
    return (
        f"limit {FD_LIMIT}, {CROWD} came, {let_in} sockets open; {more:+.1%} of a core,"
        f" {now.log_lines_per_s:.1f} log lines/s; {ROLLING_BATCHES} segments rolled"
    )


def _roll(first: RawConnection, topic: str) -> str:
    """Fill segments on a connection that was there before: empty, or what went wrong."""
    request = produce_request(topic, good_batch(bytes(SEGMENT_BYTES - 1_000)))
    for _ in range(ROLLING_BATCHES):
        answer = first.ask(request, PRODUCE_VERSION, ProduceResponse)
        if code := answer.responses[0].partition_responses[0].error_code:
            return name_of(code)
    return ""


def _crowd(scene: Scene) -> list[socket.socket]:
    """They knock; we don't wait for those who are not let in."""
    host, _, port = scene.address.rpartition(":")
    crowd = []
    for nth in range(CROWD):
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((source_of(nth), 0))
        with contextlib.suppress(BlockingIOError):
            sock.connect((host, int(port)))
        crowd.append(sock)
        time.sleep(0.001)
    return crowd


def _heard(scene: Scene) -> None:
    """Let a busy broker finish with the crowd: each address that it refuses is a line. A flood has no end."""

    def is_quiet() -> bool:
        lines = _log_lines(scene)
        time.sleep(0.2)
        return _log_lines(scene) == lines

    await_true(is_quiet, HEARD_S)


def _served_again(scene: Scene) -> None:
    """Wait until somebody new is served, now that the crowd has left."""

    def is_served_now() -> bool:
        with contextlib.suppress(OSError), connect(scene.address, timeout_s=1.0) as sock:
            return is_served(sock)
        return False

    if not await_true(is_served_now, AGAIN_S, pause_s=0.1):
        raise Wrong(f"nobody new is served {AGAIN_S:.0f} s after the crowd has left")


def faults() -> Iterator[Fault]:
    """One."""
    yield Fault("no descriptor is left", exhausted, files_may_stay=True)
