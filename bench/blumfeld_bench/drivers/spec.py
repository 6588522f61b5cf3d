"""Messages between a driver process and its parent: JSON, one message a line.

On stdin the process reads a :class:`ProcessSpec` and, once all processes have sent :class:`Ready`, a :class:`Begin`.
On stdout it sends ``Ready``, a ``Lap`` twice a second, and ``Done``; or ``Failed``. All times are CLOCK_MONOTONIC in
ns, which the processes of a machine share. Latencies stay in the process until it is ``Done``: packing them while it
measures would add the driver's own work to the tail.
"""

from __future__ import annotations

import base64
from array import array

import msgspec

from blumfeld_bench.result import Placement
from blumfeld_bench.workload import Step

LAP_NS = 500_000_000
"""Length of a lap. Laps also end at the edges of the measured part."""


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One process's share of a step."""

    host: str
    port: int
    topic: str
    leaders: tuple[tuple[str, int], ...]
    """Host and port of the leader, by partition."""
    step: Step
    seed: int
    index: int
    """Number of this process among the step's processes, from 0."""
    processes: int
    requests_max: int = 0
    """Produce requests after which the load ends, whatever the step says; 0: no such end."""
    command_config: str = ""
    """Path of the file that says how to log in; empty for PLAINTEXT."""
    goes_first: bool = False
    """Run under SCHED_RR, before every process of the ordinary policy."""


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """Instants of the load, the same for all processes."""

    begin_ns: int
    """Start of the warm-up."""
    measure_ns: int
    """Start of the measured part."""
    end_ns: int
    """End of the measured part; open requests are drained afterwards."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """All connections stand."""

    placement: Placement | None = None
    """Scheduling of the process that sends this."""


class Counts(msgspec.Struct, kw_only=True):
    """Counts of one process in one lap."""

    records: int = 0
    """Records acknowledged; with acks=0, records sent."""
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
    """Number of produce latencies that the process had at the lap's end."""
    ends: int = 0
    """Number of end-to-end latencies that the process had at the lap's end."""


class Lap(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Counts since the lap before."""

    from_ns: int
    to_ns: int
    counts: Counts
    sample: tuple[int, ...] = ()
    """Some of the lap's latencies, for the live view: produce acks, or end-to-end where nothing is produced."""


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Final report after the drain.

    Latencies are in ns, in the order in which they occurred, packed by :func:`pack`. They are negative where the
    intended time lies before the measured part; those belong to the series only.
    """

    acks: str
    """Latencies from intended time to answer, one for each request: that of its first record, which waited longest."""
    ends: str
    """Latencies from intended time to arrival at a consumer, one for each batch: that of its first record."""
    late: str
    """Delays from due to sent, for requests that only the driver itself held up."""
    errors: int
    error: str | None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The step can't be run."""

    message: str


Said = Ready | Lap | Done | Failed


def pack(values: array[int]) -> str:
    """Encode 64-bit numbers as text."""
    return base64.b64encode(values.tobytes()).decode()


def unpack(text: str) -> array[int]:
    """Decode the text of :func:`pack`."""
    values = array("q")
    values.frombytes(base64.b64decode(text))
    return values


def share(total: int, index: int, processes: int) -> range:
    """Return the part of ``total`` things that belongs to process ``index``: parts are disjoint and as even as
    possible.
    """
    return range(total * index // processes, total * (index + 1) // processes)
