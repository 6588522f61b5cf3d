"""A result file: all that a run saw, so that a report needs nothing else and the run can be made again.

One JSON document. Histograms are whole (HdrHistogram's compressed V2 form, base64, in nanoseconds):
percentiles are made from them, never stored instead of them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from blumfeld.bench.plan.workload import Workload

FORMAT = 1


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it ran."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    virtual: bool
    """Under a hypervisor, as far as the kernel tells."""
    load_before: float
    """The one-minute load average when the run began: what else went on."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One of those compared."""

    label: str
    """Unique in the run; on every row."""
    kind: str
    """``manifest``, ``foreign``, or ``running``: a foreign one that somebody else started, with data of its own.
    """
    given: str
    """As it was typed."""
    manifest: str | None = None
    """The text of the manifest, for ``manifest``."""
    overrides: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """What starts it; ``{port}`` and ``{folder}`` are filled in for each round."""
    warm_up_s: float = 0.0
    """Load before the first step of a round, beyond the steps' own: a JVM needs it."""
    versions: dict[str, str] = {}
    """Name → version: the server's, its plug-ins'."""
    network: str = ""
    """What drives its sockets, as ``plan`` says it."""
    durability: str = ""
    """What an ack means, in words."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One second, or less, of a step."""

    at_s: float
    """The end of it, since the step's measured part began; negative in the warm-up."""
    records_per_s: float
    bytes_per_s: float
    p50_us: float
    p99_us: float
    max_us: float
    """Of produce acks, or of end-to-end where nothing is produced; 0 where nothing was seen."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """How the kernel's scheduler treats a process, read from the process itself while the step ran."""

    policy: str
    """``SCHED_OTHER`` is what every process has; ``SCHED_RR`` runs before all of those."""
    cores: tuple[int, ...]
    """The process may run on these."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the server's processes used in the measured part of a step."""

    user_s: float
    system_s: float
    rss_bytes: int
    """At its end."""
    rss_max_bytes: int
    voluntary_switches: int
    involuntary_switches: int


class DriverUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver's processes used: a result near its own limits is the driver's."""

    user_s: float
    system_s: float
    busy: float
    """Share of time (0 to 1) in which the busiest of its processes had something to do."""
    late_us_p99: float
    """How late requests left after their intended time for want of the driver's own time, p99."""
    placement: Placement | None = None
    """``None`` in results of earlier builds."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one round of one variant."""

    variant: str
    step: str
    round: int
    position: int
    """Place within the whole run, counted from 0: the order that was really run."""
    seconds: float
    """Of the measured part, as it really was."""
    offered_per_s: float
    """Records a second; 0 in a closed loop."""
    records_per_s: float
    """Acknowledged, or received where nothing is produced."""
    bytes_per_s: float
    """Of record values, likewise."""
    received_bytes_per_s: float = 0.0
    """Of record values, by all groups together."""
    requests: int
    """Answered in the measured part: produce, plus fetch answers that had records."""
    errors: int
    error: str | None = None
    """The first one, in words."""
    produce_ack: str | None = None
    """Histogram: intended send time to answer, ns."""
    end_to_end: str | None = None
    """Histogram: intended send time to the record in a consumer's hands, ns."""
    series: tuple[Point, ...] = ()
    server: Usage | None
    """None for a server that somebody else started: its processes aren't known."""
    driver: DriverUsage
    server_placement: Placement | None = None
    """How the scheduler treats the server's first process. ``None`` for a server that the bench did not start."""
    ready_s: float = 0.0
    """From the start of the server's process to its first ApiVersions answer, in this round."""


class SystemCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Counted apart from the measured rounds, since counting slows the server."""

    variant: str
    step: str
    requests: int
    by_name: dict[str, int]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A step that could not be measured; the run went on."""

    variant: str
    step: str
    """Empty: all steps that were left of the round."""
    round: int
    error: str


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver alone reaches in a step, against a server that answers at no cost."""

    step: str
    records_per_s: float
    bytes_per_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    format: int = FORMAT
    blumfeld: str
    created: str
    """UTC, ISO 8601."""
    seed: int
    quick: bool
    rounds: int
    machine: Machine
    workload: Workload
    variants: tuple[Variant, ...]
    """The first is what the others are compared with."""
    ceilings: tuple[Ceiling, ...]
    measured: tuple[Measured, ...]
    system_calls: tuple[SystemCalls, ...] = ()
    system_calls_missing: str = ""
    """Why they weren't counted; empty where they were, or nobody asked."""
    skipped: dict[str, str] = {}
    """Variant → why it could not run this workload."""
    left_out: tuple[str, ...] = ()
    """Steps of the workload that a quick run had no time for; ``workload`` has those that were run, as they
    were.
    """
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False
    """Ended before all rounds were run: what is here was measured, and the verdict is of that."""
    pinned: bool = False
    """The server was bound to one core and the driver to the others; otherwise the kernel placed both."""
    driver_first: bool = False
    """The run was asked for a driver that runs before the server whenever both want a core (SCHED_RR). On a machine
    with few cores that favours a server with one thread: see docs/bench.md.
    """


def save_result(result: Result, path: Path) -> None:
    """Write it, whole or not at all."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    draft.replace(path)


def load_result(path: Path) -> Result:
    """Read one.

    :raises ValueError: it is none, or of a format that this build doesn't know
    """
    data = path.read_bytes()
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if int(bytes(head["format"])) != FORMAT:
            raise ValueError(f"{path} has format {bytes(head['format']).decode()}; this build reads {FORMAT}")
        return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, KeyError) as error:
        raise ValueError(f"{path} is not a result of blumfeld bench: {error}") from error
