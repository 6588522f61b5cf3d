"""The result file of a comparison: everything that a run saw, so that reports and reruns need nothing else.

One JSON document. Histograms are stored whole (HdrHistogram's compressed V2 form, base64, in nanoseconds).
Percentiles are computed from them and not stored.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from blumfeld_bench.workload import Workload

FORMAT = 1


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that a run took place on."""

    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    virtual: bool
    """The CPU reports a hypervisor."""
    load_before: float
    """One-minute load average when the run began: the work of other processes."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One of the compared variants."""

    label: str
    """Name on every row; unique in the run."""
    kind: str
    """``manifest``, ``foreign``, or ``running``. A ``running`` broker was started by somebody else and has data of its
    own.
    """
    given: str
    """The variant as it was typed."""
    manifest: str | None = None
    """Text of the manifest, for kind ``manifest``."""
    overrides: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    """Start command; ``{port}`` and ``{folder}`` are filled in for each round. With several nodes, for each node those
    of :mod:`blumfeld.testing.cluster`.
    """
    nodes: int = 1
    """Number of nodes; each is a process of its own, started by ``command``."""
    warm_up_s: float = 0.0
    """Seconds of extra load before the first step of a round, for servers that compile as they run, such as a JVM."""
    versions: dict[str, str] = {}
    """Version by name: the server's and its plug-ins'."""
    network: str = ""
    """Transport of the server's sockets, in the words of ``blumfeld plan``."""
    durability: str = ""
    """Meaning of an ack, in words."""
    command_config: str = ""
    """Path of the file that says how to log in; empty for PLAINTEXT."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a step, one second long or less."""

    at_s: float
    """End of the piece, counted from the start of the measured part; negative in the warm-up."""
    records_per_s: float
    bytes_per_s: float
    p50_us: float
    p99_us: float
    max_us: float
    """Largest latency of produce acks, or end-to-end where nothing is produced; 0 where nothing was seen."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A process's scheduling policy and cores, read from the kernel while the step ran."""

    policy: str
    """``SCHED_OTHER`` is the default policy; a ``SCHED_RR`` process runs before all of those."""
    cores: tuple[int, ...]
    """Cores that the process may run on."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """CPU, memory and context switches of the server's processes in the measured part of a step. Of a cluster, of all
    nodes together.
    """

    user_s: float
    system_s: float
    rss_bytes: int
    """Resident memory at the end of the measured part."""
    rss_max_bytes: int
    voluntary_switches: int
    involuntary_switches: int


class DriverUsage(msgspec.Struct, frozen=True, kw_only=True):
    """CPU use of the driver's processes. A figure taken near the driver's limits describes the driver, not the
    server.
    """

    user_s: float
    system_s: float
    busy: float
    """Share of time (0 to 1) in which the busiest driver process had something to do."""
    late_us_p99: float
    """Delay, p99, between a request's due time and its sending, where only the driver itself caused it."""
    placement: Placement | None = None
    """``None`` in results of earlier builds."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one round of one variant."""

    variant: str
    step: str
    round: int
    position: int
    """Place in the order that was really run, counted from 0 over the whole run."""
    seconds: float
    """Real length of the measured part."""
    offered_per_s: float
    """Offered records a second; 0 in a closed loop."""
    records_per_s: float
    """Records a second that were acknowledged, or received where nothing is produced."""
    bytes_per_s: float
    """Bytes a second of record values, counted as ``records_per_s`` is."""
    received_bytes_per_s: float = 0.0
    """Bytes a second of record values, received by all groups together."""
    requests: int
    """Requests answered in the measured part: produce, plus fetches whose answer had records. A whole transaction
    counts as one."""
    errors: int
    error: str | None = None
    """The first error, in words."""
    transactions_per_s: float = 0.0
    """Transactions a second that were committed; 0 in a step without transactions."""
    produce_ack: str | None = None
    """Histogram from a record's intended send time to the answer, ns. Of transactions: from the first request to the
    answer that the transaction is committed."""
    end_to_end: str | None = None
    """Histogram from a record's intended send time to its arrival in a consumer, ns."""
    series: tuple[Point, ...] = ()
    server: Usage | None
    """The server's use of CPU and memory. ``None`` if the bench did not start it: its processes aren't known."""
    server_nodes: tuple[Usage, ...] = ()
    """The same for each node of a cluster, in the order of their ids; empty for a single server."""
    driver: DriverUsage
    server_placement: Placement | None = None
    """Scheduling of the server's first process; ``None`` for a server that the bench did not start."""
    ready_s: float = 0.0
    """Time from the start of the server's process to its first ApiVersions answer, in this round."""


class SystemCalls(msgspec.Struct, frozen=True, kw_only=True):
    """System calls of a step, counted in a pass of its own because counting slows the server."""

    variant: str
    step: str
    requests: int
    by_name: dict[str, int]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A step that could not be measured; the run went on."""

    variant: str
    step: str
    """Name of the step; empty if all remaining steps of the round were lost."""
    round: int
    error: str


class Ceiling(msgspec.Struct, frozen=True, kw_only=True):
    """Rate of the driver alone in a step, against a server that answers at no cost."""

    step: str
    records_per_s: float
    bytes_per_s: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    format: int = FORMAT
    blumfeld: str
    created: str
    """Start of the run: UTC, ISO 8601."""
    seed: int
    quick: bool
    rounds: int
    machine: Machine
    workload: Workload
    variants: tuple[Variant, ...]
    """All variants; the first is the baseline of every comparison."""
    ceilings: tuple[Ceiling, ...]
    measured: tuple[Measured, ...]
    system_calls: tuple[SystemCalls, ...] = ()
    system_calls_missing: str = ""
    """Reason why system calls weren't counted; empty where they were counted or not asked for."""
    skipped: dict[str, str] = {}
    """Reason by variant for those that could not run this workload."""
    left_out: tuple[str, ...] = ()
    """Steps of the workload that a quick run had no time for. ``workload`` holds only the steps that ran, with the
    lengths they ran with.
    """
    failures: tuple[Failure, ...] = ()
    interrupted: bool = False
    """The run ended before all rounds were done; measurements and verdict cover the rounds up to then."""
    pinned: bool = False
    """The server was bound to one core and the driver to the others; otherwise the kernel placed both."""
    driver_first: bool = False
    """The driver was asked to run before the server whenever both want a core (SCHED_RR). On a machine with few cores
    that favours a server with one thread: see docs/bench.md.
    """


def save_result(result: Result, path: Path) -> None:
    """Write a result to a file; the file is replaced whole or not at all."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
    draft.replace(path)


def load_result(path: Path) -> Result:
    """Read a result from a file.

    :raises ValueError: the file is no result, or its format is unknown to this build
    """
    data = path.read_bytes()
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if int(bytes(head["format"])) != FORMAT:
            raise ValueError(f"{path} has format {bytes(head['format']).decode()}; this build reads {FORMAT}")
        return msgspec.json.decode(data, type=Result)
    except (msgspec.DecodeError, KeyError) as error:
        raise ValueError(f"{path} is not a result of blumfeld bench: {error}") from error
