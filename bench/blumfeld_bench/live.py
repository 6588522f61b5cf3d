"""The display of a running bench: a live view on a terminal, a line for each measured step elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.report.table import NOTHING, figure_text
from blumfeld_bench.result import Measured
from blumfeld_bench.runs.watcher import SessionPlan, Watcher
from blumfeld_bench.statistics.cells import (
    CPU_PER_REQUEST,
    END_TO_END_P50,
    END_TO_END_P99,
    PRODUCE_P50,
    PRODUCE_P99,
    RATE,
    Measure,
)

BARS = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 48
REFRESHES_PER_S = 2
"""Redraws a second. Few, because the view runs on the machine that is measured."""
ROWS_SHOWN = 16
VERDICTS_SHOWN = 6
SHOWN: tuple[Measure, ...] = (
    RATE,
    PRODUCE_P50,
    PRODUCE_P99,
    END_TO_END_P50,
    END_TO_END_P99,
    CPU_PER_REQUEST,
)


@contextmanager
def watching(console: Console) -> Iterator[Watcher]:
    """Yield the watcher that fits this console. The view vanishes at the end; printed lines stay."""
    if not console.is_terminal:
        yield Lines(console)
        return
    view = View()
    with Live(
        get_renderable=view.render,
        console=console,
        refresh_per_second=REFRESHES_PER_S,
        transient=True,
    ):
        yield view


class Lines(Watcher):
    """A watcher that prints a line for each event: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def planned(self, plan: SessionPlan) -> None:
        """Print how much there is to do."""
        super().planned(plan)
        self._say(f"{len(plan.turns)} turns, {plan.rounds} rounds, about {duration(plan.estimate_s)}")
        if plan.left_out:
            self._say(f"no time for {', '.join(plan.left_out)}")

    def doing(self, what: str) -> None:
        """Print the present work."""
        super().doing(what)
        if self.turn is None or not what.startswith("starting "):
            self._say(what)

    def skipped(self, variant: str, why: str) -> None:
        """Print why a variant is skipped."""
        super().skipped(variant, why)
        self._say(f"{variant} is left out: {why}")

    def measured(self, measured: Measured) -> None:
        """Print the figures of a step, and the time that is left."""
        super().measured(measured)
        latest_round = self.rounds[measured.step, measured.variant][-1]
        figures = (
            f"{measure.title} {figure_text(value)} {measure.unit}".rstrip()
            for measure in SHOWN[1:]
            if (value := measure.of(latest_round)) is not None
        )
        rate = f"{measured.records_per_s:,.0f} records/s"
        where = f"round {measured.round + 1}, {measured.variant}, {measured.step}"
        self._say(f"{where}: {', '.join([rate, *figures])}; {duration(self.left_s)} left")

    def step_failed(self, turn: Turn, step: str, error: str) -> None:
        """Print which step is missing."""
        super().step_failed(turn, step, error)
        self._say(f"not measured: {self.failures[-1]}")

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class View(Watcher):
    """A watcher that redraws a live view twice a second."""

    def render(self) -> RenderableType:
        """Return the whole view as it is now."""
        if self.plan is None:
            return Text("starting")
        parts: list[RenderableType] = [self._head(self.plan), self._now(), self._table(self.plan)]
        if self.verdicts:
            parts.append(Text("so far (it decides nothing yet)", style="dim"))
            parts += [Text(f"  {sentence}") for sentence in self._sentences()]
        parts += [Text(f"not measured: {line}", style="red") for line in self.failures[-3:]]
        parts += [Text(f"{name} is left out: {why}", style="red") for name, why in sorted(self.skips.items())]
        return Group(*parts)

    def _head(self, plan: SessionPlan) -> RenderableType:
        whole = self.spent_s + self.left_s
        left = f"{duration(self.left_s)} left" if self.left_s else "longer than thought"
        grid = Table.grid(padding=(0, 2, 0, 0))
        bar = ProgressBar(total=max(whole, 0.1), completed=self.spent_s, width=30)
        quick = " (quick)" if plan.quick else ""
        grid.add_row(Text(f"{plan.workload.name}{quick}", style="bold"), bar, Text(left))
        return grid

    def _now(self) -> RenderableType:
        if self.plan is None or self.turn is None or not self.step:
            return Text(self.what or "starting", style="dim")
        round_of = f"round {self.turn.round + 1} of {self.plan.rounds}"
        phase = "measuring" if self.measuring else "warm-up"
        position = f"{min(self.elapsed_s, self.step_lasts_s):.0f} of {self.step_lasts_s:.0f} s"
        line = Text.assemble(
            f"{round_of}, ",
            (self.turn.variant, "bold cyan"),
            f", {self.step}: ",
            (phase, "green" if self.measuring else "yellow"),
            f", {position}",
        )
        return Group(line, *self._sparks())

    def _sparks(self) -> Iterator[Text]:
        points = tuple(self.points)[
            -SPARK_COLUMNS:
        ]  # one atomic copy: the session's thread goes on appending
        if not points:
            return
        rates = [point.records_per_s for point in points]
        yield Text.assemble(("  rate ", "dim"), spark(rates), f" {rates[-1]:,.0f} records/s")
        tails = [point.p99_us for point in points]
        if any(tails):
            yield Text.assemble(("  p99  ", "dim"), spark(tails), f" {figure_text(tails[-1] / 1000)} ms")

    def _table(self, plan: SessionPlan) -> RenderableType:
        pairs = [(step.name, variant.label) for step in plan.workload.steps for variant in plan.variants]
        rows = [pair for pair in pairs if pair in self.rounds][-ROWS_SHOWN:]
        if not rows:
            return Text()
        shown = [measure for measure in SHOWN if any(self.median(*row, measure) is not None for row in rows)]
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
        table.add_column("step")
        table.add_column("variant")
        for title in (
            "rounds",
            *(f"{measure.title} {measure.unit if measure is not RATE else ''}" for measure in shown),
        ):
            table.add_column(title.strip(), justify="right")
        last = ""
        for step, variant in rows:
            figures = (_figure(self.median(step, variant, measure)) for measure in shown)
            done = str(len(self.rounds[step, variant]))
            table.add_row(Text(step if step != last else ""), Text(variant), done, *figures)
            last = step
        return table

    def _sentences(self) -> Iterator[str]:
        several = self.plan is not None and len(self.plan.workload.steps) > 1
        ordered = sorted(self.verdicts, key=lambda entry: not entry.different)[:VERDICTS_SHOWN]
        for verdict in ordered:
            yield f"{verdict.step}: {verdict.sentence}" if several else verdict.sentence


def _figure(value: float | None) -> str:
    return NOTHING if value is None else figure_text(value)


def spark(values: Iterable[float]) -> str:
    """Return a bar for each value, scaled from 0 to the highest."""
    values = list(values)
    most = max(values, default=0.0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[min(len(BARS) - 1, int(max(value, 0.0) / most * len(BARS)))] for value in values)


def duration(seconds: float) -> str:
    """Return a duration in words: 45 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
