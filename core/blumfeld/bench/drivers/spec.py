"""What a driver process is told, and what it says: JSON, one message a line.

Told on stdin: a :class:`ProcessSpec`; then, when all processes said :class:`Ready`, a :class:`Begin`. Said on
stdout: ``Ready``, a ``Lap`` twice a second, ``Done``; or ``Failed``. All times are CLOCK_MONOTONIC in ns,
which the processes of a machine share. Latencies stay in the process until it is ``Done``: a driver that
packs them up while it measures would show its own work in the tail.
"""

from __future__ import annotations

import base64
from array import array

import msgspec

from blumfeld.bench.plan.workload import Step
from blumfeld.bench.result import Placement

LAP_NS = 500_000_000
"""Laps also end at the edges of the measured part."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process's share of a step."""

    host: str
    port: int
    topic: str
    leaders: tuple[tuple[str, int], ...]
    """Host and port, by partition."""
    step: Step
    seed: int
    index: int
    """Of this process."""
    processes: int
    requests_max: int = 0
    """Produce requests, after which it is over, whatever the step says; 0: no such end."""
    goes_first: bool = False
    """Run under SCHED_RR: before every process of the ordinary policy."""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """When it starts. The same instants for all processes."""

    begin_ns: int
    """The warm-up begins."""
    measure_ns: int
    """The measured part begins."""
    end_ns: int
    """It ends; what is still open is drained."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """All connections stand."""

    placement: Placement | None = None
    """How the scheduler treats the process that says so."""


class Counts(msgspec.Struct, kw_only=True):
    """What one process saw in one lap."""

    records: int = 0
    """Acknowledged; with acks=0, sent."""
    bytes: int = 0
    requests: int = 0
    received_records: int = 0
    received_bytes: int = 0
    fetches: int = 0
    """Fetch answers that had records."""
    busy_ns: int = 0
    user_s: float = 0.0
    system_s: float = 0.0
    acks: int = 0
    """How many latencies of produce acks the process had at the lap's end."""
    ends: int = 0
    """Likewise, of end-to-end latencies."""


class Lap(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What happened since the last one."""

    from_ns: int
    to_ns: int
    counts: Counts
    sample: tuple[int, ...] = ()
    """Some of its latencies, for a live view: produce acks, or end-to-end where nothing is produced."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The end, after the drain. Latencies in the order in which they were seen, in ns, packed (see
    :func:`pack`); negative where the intended time lies before the measured part, so that they belong to the
        series only.
    """

    acks: str
    """Intended time to answer, one for each request: that of its first record, which waited longest."""
    ends: str
    """Intended time to arrival at a consumer, one for each batch, likewise."""
    late: str
    """Due to sent, of requests that nothing else held up."""
    errors: int
    error: str | None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The step can't be run."""

    message: str


Said = Ready | Lap | Done | Failed


def pack(values: array[int]) -> str:
    """Numbers of 64 bits as text."""
    return base64.b64encode(values.tobytes()).decode()


def unpack(text: str) -> array[int]:
    """What was packed."""
    values = array("q")
    values.frombytes(base64.b64decode(text))
    return values


def share(total: int, index: int, processes: int) -> range:
    """Which of ``total`` things belong to process ``index``: as even as it goes, none twice."""
    return range(total * index // processes, total * (index + 1) // processes)
