"""Sentences about a run and about its limits, the same for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blumfeld_bench.result import Machine, Placement, Result, Variant
from blumfeld_bench.statistics.cells import (
    BUSY_SHARE,
    CEILING_SHARE,
    CPU_PER_REQUEST,
    PRODUCE_P99,
    RATE,
    REACHED_SHARE,
    Cell,
    StepCells,
)
from blumfeld_bench.workload import Consume, Produce, Step, Transaction

ROUNDS_FEW = 5
LOADED_SHARE = 0.5
"""A load average above this share of the cores, before the run began, means that other processes used the machine."""

LATE_SHARE = 0.5
"""If the driver's lateness is more than this share of a latency, the latency describes the driver for a good part."""

NOT_CLAIMED = (
    "A ratio holds for this machine, this workload and these versions: server and driver share its cores, and loopback "
    "is no network.",
    "Percentiles of a closed loop are those of a full server: they compare, but nobody should run there.",
    "An interval says what these rounds say of each other. What differs between days or machines is not in it.",
)


def run_words(result: Result) -> str:
    """Return one line that says what was run."""
    quick = ", quick" if result.quick else ""
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    order = ", interleaved" if len(result.variants) > 1 else ""
    order += ", server and driver on cores of their own" if result.pinned else ""
    order += ", the driver's processes first on a core" if result.driver_first else ""
    placed = placement_words(result)
    order += f", {placed}" if placed else ""
    return (
        f"{result.workload.name}: {rounds}{order}, {result.workload.driver} driver, seed {result.seed}{quick}, "
        f"{result.created}, blumfeld {result.blumfeld}"
    )


def placement_words(result: Result) -> str:
    """Return scheduler class and cores of the driver and of the servers; empty for a result without them."""
    drivers = {round_result.driver.placement for round_result in result.measured} - {None}
    servers = {round_result.server_placement for round_result in result.measured} - {None}
    sides = (("driver", drivers), ("server", servers))
    return ", ".join(
        f"{side} {' or '.join(sorted(_placed(placement) for placement in placements if placement is not None))}"
        for side, placements in sides
        if placements
    )


def _placed(placement: Placement) -> str:
    cores = ", ".join(map(str, placement.cores))
    return f"{placement.policy} on {'core' if len(placement.cores) == 1 else 'cores'} {cores}"


def machine_words(machine: Machine) -> str:
    """Return one line about the machine."""
    kind = "virtual" if machine.virtual else "not virtual, as far as it tells"
    return (
        f"{machine.cpu}, {machine.cores} cores ({kind}), {machine.memory_bytes / 2**30:.0f} GiB, {machine.kernel}, "
        f"Python {machine.python}; load before the run {machine.load_before:.2f}"
    )


def variant_words(variant: Variant) -> str:
    """Return a variant's transport and the meaning of its acks, in full."""
    return (
        f"{variant.label}: {variant.network or variant.kind}; an ack is {variant.durability or 'not known'}"
    )


def brief(text: str) -> str:
    """Return the first clause, for a table cell; the whole text stands elsewhere."""
    head = min((text.partition(mark)[0] for mark in (": ", "; ")), key=len)
    return head + ")" * (head.count("(") - head.count(")"))


def load_words(step: Step) -> str:
    """Return a step's load in words."""
    parts = []
    if step.produce is not None:
        parts.append(_produce_words(step.produce))
    if step.consume is not None:
        parts.append(_consume_words(step.consume))
    if step.idle_connections:
        parts.append(f"{step.idle_connections:,} idle connections beside it")
    if step.page_cache == "cold":
        parts.append("the data is not in the page cache")
    parts.append(f"{step.warm_up_s:g} s of warm-up, {step.measure_s:g} s measured")
    return "; ".join(parts) + "."


def _produce_words(load: Produce) -> str:
    if load.transaction is not None:
        return _transaction_words(load, load.transaction)
    least, most = load.record_bytes_min, load.record_bytes_max
    size = f"{least:,} B" if least == most else f"{least:,}–{most:,} B"
    connections = _count(load.connections, "connection")
    if load.rate_per_s:
        verb = "offers" if load.connections == 1 else "offer"
        text = f"{connections} {verb} {load.rate_per_s:,.0f} records/s of {size}, whatever the server does"
    else:
        verb = "writes" if load.connections == 1 else "write"
        text = f"{connections} {verb} records of {size} as fast as they are answered (closed loop)"
    text += f", {load.in_flight} in flight" if load.in_flight > 1 else ""
    text += f", {load.batch_records} records a batch" if load.batch_records > 1 else ""
    text += f", {load.keys:,} keys" if load.keys else ""
    return f"{text}, acks={'all' if load.acks == -1 else load.acks}"


def _transaction_words(load: Produce, transaction: Transaction) -> str:
    records = load.batch_records * transaction.partitions
    return (
        f"{_count(load.connections, 'producer')}, each one transaction after the other: {_count(records, 'record')} of "
        f"{load.record_bytes_max:,} B in {_count(transaction.partitions, 'partition')}, "
        f"transaction.version {transaction.version}; an ack is the answer that the transaction is committed"
    )


def _consume_words(load: Consume) -> str:
    where = "from the beginning" if load.start == "earliest" else "what arrives"
    each = f" of {load.members} members" if load.members > 1 else ""
    verb = "reads" if load.groups == 1 else "read"
    return f"{_count(load.groups, 'group')}{each} {verb} {where}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def mark_of(cell: Cell) -> str:
    """Return the mark that qualifies a cell, such as "saturated"; empty if nothing does."""
    marks = []
    if cell.is_the_drivers:
        marks.append("the driver's limit, not the broker's")
    if cell.saturated:
        marks.append("saturated")
    if cell.errors:
        marks.append(f"{cell.errors:,} errors")
    return "; ".join(marks)


def offered_share(cell: Cell) -> float | None:
    """Return the reached share of an offered rate; None in a closed loop."""
    rate = cell.median(RATE)
    offered = cell.step.produce.rate_per_s if cell.step.produce else 0.0
    return rate / offered if rate is not None and offered else None


def offered_words(cell: Cell) -> str:
    """Return the reached share of an offered rate in words; empty in a closed loop."""
    share = offered_share(cell)
    return f"{share:.1%}" if share is not None else ""


def ack_words(durability: str, acks: int) -> str:
    """Return the part of a durability text (``acks=1: …; acks=all: …``) that applies to ``acks``; any other text is
    returned whole.
    """
    leader_text, separator, every = durability.removeprefix("acks=1: ").partition("; acks=all: ")
    if acks == 0:
        return "none: acks=0"
    return (every if acks == -1 else leader_text) if separator else durability


def durability_words(cell: Cell) -> str:
    """Return the meaning of an ack in this step; empty where nothing is produced."""
    return ack_words(cell.variant.durability, cell.step.produce.acks) if cell.step.produce else ""


def ceiling_words(cell: Cell) -> str:
    """Return the rate as a share of the driver's ceiling; empty if that wasn't measured."""
    share = cell.ceiling_share
    return f"{share:.0%}" if share is not None else ""


def late_words(cell: Cell) -> str:
    """Return the driver's own lateness, which its latencies contain; empty in a closed loop."""
    return f"{cell.late_us:,.0f}" if cell.late_us is not None else ""


def nodes_words(cell: Cell) -> str:
    """Return CPU time and resident memory of each node of a cluster in its last round; empty for a single server."""
    nodes = cell.rounds[-1].measured.server_nodes if cell.rounds else ()
    return " | ".join(
        f"{node.user_s + node.system_s:.1f} s, {node.rss_bytes / 1e6:,.0f} MB" for node in nodes
    )


def cautions(result: Result, steps: Sequence[StepCells]) -> list[str]:
    """Return the warnings that a reader needs before the figures, gravest first; empty if there are none."""
    sentences = [
        f"{label} could not run this workload: {why}" for label, why in sorted(result.skipped.items())
    ]
    if result.interrupted:
        sentences.append("Interrupted: what follows is of the rounds that were run.")
    sentences += [
        f"{failure.step or 'the rest of the round'}, {failure.variant}, round {failure.round + 1} "
        f"was not measured: {failure.error}"
        for failure in result.failures
    ]
    if result.left_out:
        sentences.append(f"A quick run had no time for these steps: {', '.join(result.left_out)}.")
    sentences += _durability_caution(result)
    sentences += _unreached_cautions(steps)
    sentences += [
        f"{cells.step.name}, {cell.variant.label}: {cell.errors:,} errors, the first: {cell.first_error or 'unnamed'}"
        for cells in steps
        for cell in cells.cells
        if cell.errors
    ]
    sentences += _driver_cautions(steps)
    sentences += _late_cautions(steps)
    if result.driver_first:
        sentences.append(
            "The driver ran before the servers (SCHED_RR), which costs a server with many threads more."
        )
    if result.system_calls_missing:
        sentences.append(f"System calls were not counted: {result.system_calls_missing}")
    closed = [cells.step.name for cells in steps if cells.cells and cells.cells[0].saturated]
    if closed:
        sentences.append(f"Closed loop, so latencies are a saturated server's: {', '.join(closed)}.")
    if result.rounds < ROUNDS_FEW:
        sentences.append(
            f"{_count(result.rounds, 'round')}: intervals are wide, and {ROUNDS_FEW} or more are better."
        )
    if result.machine.load_before > LOADED_SHARE * result.machine.cores:
        sentences.append(
            f"The machine was busy before the run began: load {result.machine.load_before:.2f} on "
            f"{result.machine.cores} cores."
        )
    return sentences


def _durability_caution(result: Result) -> Iterator[str]:
    for acks in sorted({step.produce.acks for step in result.workload.steps if step.produce} - {0}):
        by_meaning: dict[str, list[str]] = {}
        for variant in result.variants:
            by_meaning.setdefault(ack_words(variant.durability, acks), []).append(variant.label)
        if len(by_meaning) > 1:
            each = (
                f"{', '.join(labels)}: {meaning or 'not known'}" for meaning, labels in by_meaning.items()
            )
            name = "all" if acks == -1 else acks
            yield (f"An ack (acks={name}) is not the same thing for all of them. {' | '.join(each)}.")


def _unreached_cautions(steps: Sequence[StepCells]) -> Iterator[str]:
    for cells in steps:
        shares = ((cell, offered_share(cell)) for cell in cells.cells)
        short = [cell for cell, share in shares if share is not None and share < REACHED_SHARE]
        if short:
            said = ", ".join(f"{cell.variant.label} {offered_words(cell)}" for cell in short)
            yield (
                f"{cells.step.name}: the offered rate was not reached ({said}): a queue grew for as long as the step "
                "lasted, and latencies say how long that was."
            )


def _driver_cautions(steps: Sequence[StepCells]) -> Iterator[str]:
    for cells in steps:
        limited = [cell for cell in cells.cells if cell.is_the_drivers]
        if not limited:
            continue
        labels = ", ".join(cell.variant.label for cell in limited)
        share = max(cell.ceiling_share or 0.0 for cell in limited)
        why = (
            f"{share:.0%} of what the driver reaches alone"
            if share > CEILING_SHARE
            else f"its busiest process works {max(cell.busy for cell in limited):.0%} of the time"
        )
        yield (f"{cells.step.name}: the driver's limit, not the broker's, for {labels} ({why}).")


def _late_cautions(steps: Sequence[StepCells]) -> Iterator[str]:
    """Yield the steps in which the driver's own lateness is a large part of the latency shown."""
    for cells in steps:
        late = [
            f"{cell.variant.label} {cell.late_us:,.0f} of {p99:,.0f} µs"
            for cell in cells.cells
            if cell.late_us is not None
            and (p99 := cell.median(PRODUCE_P99)) is not None
            and cell.late_us > LATE_SHARE * p99
        ]
        if late:
            yield (
                f"{cells.step.name}: the driver itself sent late for want of a core (p99: {'; '.join(late)}). "
                "That is in the latencies of the ack."
            )


def marks_legend() -> str:
    """Return the meaning of the marks."""
    return (
        f"“The driver's limit”: within {1 - CEILING_SHARE:.0%} of what the driver reaches against a server that costs "
        f"nothing, or its busiest process at work for more than {BUSY_SHARE:.0%} of the time. “Saturated”: a closed "
        f"loop. {CPU_PER_REQUEST.title}: server's CPU time, user and kernel. An interval that holds 1 is no difference."
    )
