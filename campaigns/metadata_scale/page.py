"""The figures of kills as Markdown, put between two marks of a page. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld_bench.result import Machine
from campaigns.figures import put_between
from campaigns.metadata_scale.serving import KILLED, FailOver, Serving

GIB = 1 << 30
NAMES = {
    ("blumfeld", "zookeeper"): "Blumfeld, ZooKeeper",
    ("blumfeld", "kraft"): "Blumfeld, KRaft",
    ("kafka", "zookeeper"): "Kafka 3.9.2, ZooKeeper",
    ("kafka", "kraft"): "Kafka 4.3.1, KRaft",
}
KILLS = (
    "| partitions | | killed | gone | first serves | all serve | all, behind *gone* |\n"
    "|--:|---|---|--:|--:|--:|--:|"
)
PHASES = (
    "| partitions | elected | tree read | decided, written | to the first produce | to the last | tree's share |\n"
    "|--:|--:|--:|--:|--:|--:|--:|"
)


def name_of(point: Serving) -> str:
    """Return a contender's name with its consensus."""
    return NAMES.get((point.contender, point.consensus), f"{point.contender}, {point.consensus}")


def with_figures(page: str, points: Sequence[Serving], machine: Machine) -> str:
    """Return the page with these figures in the place of those between its marks.

    :raises ValueError: the page has no marks
    """
    return put_between(page, _figures(points, machine))


def _figures(points: Sequence[Serving], machine: Machine) -> str:
    ordered = sorted(points, key=lambda point: (point.partitions, point.consensus, point.contender))
    timeouts = sorted({f"{point.session_timeout_ms / 1000:g} s" for point in points})
    lines = [
        f"Machine: {machine.cores} cores ({machine.cpu}), {machine.memory_bytes / GIB:.0f} GiB, {machine.kernel}, "
        f"Python {machine.python}.",
        f"Load when it ended: {machine.load_before:g}. Session timeout: {', '.join(timeouts)}. Each round, in seconds:",
        "",
        KILLS,
        *(_kill(point, killed) for point in ordered for killed in KILLED if _rows(point, killed)),
        "",
        "Phases of a controller's fail-over on ZooKeeper (Blumfeld): seconds, each from the end of the one before, but",
        "for the last two, which begin when all is written. *Tree's share* is that of the time behind *gone*.",
        "",
        PHASES,
        *(_phases(point, row) for point in ordered for row in _rows(point, "controller") if row.take_over_s),
    ]
    return "\n".join(lines)


def _rows(point: Serving, killed: str) -> list[FailOver]:
    return [row for row in point.failovers if row.killed == killed]


def _kill(point: Serving, killed: str) -> str:
    rows = _rows(point, killed)
    cells = [
        f"{point.partitions:,}",
        name_of(point),
        killed,
        *(
            ", ".join(f"{getattr(row, name):.2f}" for row in rows)
            for name in ("gone_s", "first_s", "served_s", "behind_s")
        ),
    ]
    return f"| {' | '.join(cells)} |"


def _phases(point: Serving, row: FailOver) -> str:
    load_s, decided_s = row.take_over_s.get("load_ms", 0.0), row.take_over_s.get("take_over_ms", 0.0)
    elected_s, at_work_s = (row.phases_s.get(name, row.gone_s) for name in ("elected", "at work"))
    seconds = (elected_s - row.gone_s, load_s, decided_s, row.first_s - at_work_s, row.served_s - at_work_s)
    share = load_s / row.behind_s if row.behind_s > 0 else 0.0
    cells = [f"{point.partitions:,}", *(f"{max(value, 0.0):.2f}" for value in seconds), f"{share:.0%}"]
    return f"| {' | '.join(cells)} |"
