"""The result as a table, for the terminal and as Markdown: a row for each event, with protocols and servers side by
side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from blumfeld_bench.rebalance.findings import (
    Key,
    cautions_of,
    keys_of,
    median_of,
    ratio_of,
    samples_of,
    verdicts_of,
)
from blumfeld_bench.rebalance.result import RebalanceResult
from blumfeld_bench.report.narrative import machine_words
from blumfeld_bench.report.table import item, plain_table

FIXED = ("members", "event", "protocol")
FIGURES = ("stable s", "converged s", "member's pause s", "partition's pause s", "CPU s")
LEGEND = (
    "stable, converged: from the event (of a killed member: from the end of its session) until the last change "
    "of ownership, and until all members were told. Pauses: median / most; a member's, of those who stayed; a "
    "partition's, of those that moved, the session included. CPU: of the server, above rest. Medians of rounds; in "
    "brackets the median ratio to the first server."
)


def rows_of(result: RebalanceResult) -> tuple[list[str], list[list[str]]]:
    """Return the head, and a row for each event, protocol and server."""
    rows = []
    for key in keys_of(result):
        for nth, variant in enumerate(result.variants):
            fixed = [f"{key.size:,}", key.scenario, key.protocol] if nth == 0 else ["", "", ""]
            rows.append([*fixed, variant.label, *_figures(result, variant.label, key)])
    return [*FIXED, "server", *FIGURES], rows


def _figures(result: RebalanceResult, variant: str, key: Key) -> list[str]:
    samples = samples_of(result, variant, key)
    if not samples:
        return ["not measured", *[""] * (len(FIGURES) - 1)]
    ratio = ratio_of(result, variant, key)
    stable = _seconds(median_of(samples, lambda sample: sample.stable_s))
    cpu_s = median_of(samples, lambda sample: sample.cpu_s)
    members = [median_of(samples, lambda sample: sample.members_pause.p50)]
    members.append(median_of(samples, lambda sample: sample.members_pause.most))
    moved = [median_of(samples, lambda sample: sample.moved_pause.p50)]
    moved.append(median_of(samples, lambda sample: sample.moved_pause.most))
    return [
        stable if ratio is None else f"{stable} ({ratio:.2f}×)",
        _seconds(median_of(samples, lambda sample: sample.converged_s)),
        " / ".join(_seconds(value) for value in members),
        " / ".join(_seconds(value) for value in moved),
        "not known" if cpu_s is None else f"{cpu_s:.3f}",
    ]


def _seconds(value: float | None) -> str:
    return "" if value is None else "0" if value == 0 else f"{value:.2f}"


def settings_words(result: RebalanceResult) -> Iterator[str]:
    """Yield the equal conditions: the settings that each server reported, and the members' behaviour."""
    settings = result.settings
    configs = sorted({tuple(sorted(entry.items())) for entry in result.configs.values()})
    same = len({tuple((key, str(value)) for key, value in entry) for entry in configs}) == 1
    for config in configs[:1] if same else configs:
        yield "; ".join(f"{key}={value}" for key, value in config)
    yield (
        f"members: session timeout {settings.session_timeout_ms} ms, heartbeats every "
        f"{settings.heartbeat_interval_ms} ms (KIP-848: at the interval that the server returns), rebalance timeout "
        f"{settings.rebalance_timeout_ms} ms, {settings.partitions_per_member} partitions each of one topic, one "
        "connection each; eager: range, cooperative: cooperative-sticky, KIP-848: uniform"
    )


def run_words(result: RebalanceResult) -> str:
    """Return the time and the size of the run in words."""
    names = " and ".join(variant.label for variant in result.variants)
    return f"Rebalances of {names}: {result.rounds} rounds in turns, {result.created}, {result.seconds / 60:.0f} min"


def sentences_of(result: RebalanceResult) -> Iterator[tuple[str, bool]]:
    """Yield the verdicts, each with whether it is a difference."""
    for verdict in verdicts_of(result):
        yield f"{verdict.step}: {verdict.sentence}", verdict.different


def rebalance_table(result: RebalanceResult) -> RenderableType:
    """Return the table for the terminal."""
    head, rows = rows_of(result)
    table = plain_table()
    for nth, title in enumerate(head):
        table.add_column(title, justify="left" if 0 < nth <= len(FIXED) else "right")
    for row in rows:
        table.add_row(*row)
    parts: list[RenderableType] = [Text(run_words(result), style="bold")]
    parts += [Text(machine_words(result.machine), style="dim")]
    parts += [item(words, "dim") for words in settings_words(result)]
    parts += [Text(), table, Text(), Text(LEGEND, style="dim")]
    parts += [Text("\nVerdict", style="bold")]
    parts += [item(words, "bold" if different else "") for words, different in sentences_of(result)]
    warned = list(cautions_of(result))
    if warned:
        parts += [Text("\nKeep in mind", style="bold yellow"), *(item(words) for words in warned)]
    return Group(*parts)


def markdown_of(result: RebalanceResult, plots: Sequence[tuple[str, str]]) -> str:
    """Return the table as a Markdown page with its plots.

    :param plots: (file, description) of each plot
    """
    head, rows = rows_of(result)
    lines = [f"# {run_words(result)}", "", machine_words(result.machine), ""]
    lines += [f"* {words}" for words in settings_words(result)]
    lines += ["", "## What came out", ""]
    lines += [f"* {'**' + words + '**' if different else words}" for words, different in sentences_of(result)]
    lines += [f"* Keep in mind: {words}" for words in cautions_of(result)]
    lines += ["", *(f"![{alt}]({file})" for file, alt in plots), ""]
    lines += ["## Figures", "", LEGEND, "", _line(head)]
    lines += ["|" + "|".join("---" if 0 < nth <= len(FIXED) else "--:" for nth in range(len(head))) + "|"]
    lines += [_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
