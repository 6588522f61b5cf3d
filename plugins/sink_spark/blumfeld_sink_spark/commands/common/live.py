"""Runs an archive in a terminal: shows batches as they are done, and stops between two batches at a signal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event as StopEvent
from types import FrameType
from typing import TYPE_CHECKING

import msgspec
import typer

from blumfeld_sink_spark.commands.common.shown import counted
from blumfeld_sink_spark.spark.run.progress import Back, BatchDone, Notice, Step, Totals, Waiting

if TYPE_CHECKING:
    from rich.table import Table

    from blumfeld_sink_spark.settings import ArchiveSettings
    from blumfeld_sink_spark.spark.run.driver import Mode
    from blumfeld_sink_spark.spark.run.progress import Event

SHOWN_PARTITIONS = 12


def run(settings: ArchiveSettings, mode: Mode, *, as_json: bool) -> None:
    """Runs an archive, shows its progress, and prints its totals at the end.

    SIGTERM and Ctrl-C stop it after the batch at hand. After SIGTERM it returns, after Ctrl-C it raises. A second
    Ctrl-C doesn't wait for the batch, which the next start runs again.

    :raises KeyboardInterrupt: it was stopped by Ctrl-C
    """
    with _signals() as (stop, caught):
        view = _JsonView() if as_json else (_LiveView() if sys.stderr.isatty() else _LineView())
        with view:
            view.show(Step(text="loading PySpark and Arrow"))
            from blumfeld_sink_spark.spark.run.driver import archive  # takes most of a second

            totals = archive(settings, mode, stop, view.show)
        view.end(totals)  # after the view has closed, because its drawing goes with it
    if signal.SIGINT in caught:
        raise KeyboardInterrupt


@contextmanager
def _signals() -> Iterator[tuple[StopEvent, list[int]]]:
    stop, caught = StopEvent(), list[int]()

    def ask(number: int, frame: FrameType | None) -> None:
        if number in caught and number == signal.SIGINT:
            raise KeyboardInterrupt  # the second one: the next start runs the batch at hand again
        caught.append(number)
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop, caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _JsonView:
    """JSON lines on stdout, for scripts: steps, notices, outages, batches, totals."""

    _away = False

    def __enter__(self) -> _JsonView:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def show(self, event: Event) -> None:
        if self._begins(event) or not isinstance(event, Waiting):
            typer.echo(msgspec.json.encode({type(event).__name__.lower(): event}))

    def _begins(self, event: Event) -> bool:
        """Returns whether an outage begins with this event. The driver repeats it; a log needs it once."""
        begins = isinstance(event, Waiting) and not self._away
        self._away = isinstance(event, Waiting) or (self._away and not isinstance(event, Back))
        return begins

    def end(self, totals: Totals) -> None:
        typer.echo(msgspec.json.encode({"totals": totals}))


class _LineView(_JsonView):
    """One line for each event, for logs."""

    def show(self, event: Event) -> None:
        if self._begins(event) or not isinstance(event, Waiting):
            typer.echo(line_of(event), err=True)

    def end(self, totals: Totals) -> None:
        typer.echo(summary(totals))


class _LiveView(_LineView):
    """A table in the terminal that is redrawn with each batch."""

    def __enter__(self) -> _LiveView:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True)
        self._live = Live("", console=self._console, refresh_per_second=4, transient=True)
        self._live.start()
        self._totals = Totals()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, event: Event) -> None:
        from rich.text import Text

        begins = self._begins(event)
        if isinstance(event, Step | Waiting):
            self._live.update(Text(line_of(event)))
        if begins or isinstance(event, Notice | Back):
            self._console.print(line_of(event), highlight=False, markup=False)
        if not isinstance(event, BatchDone):
            return
        self._totals.add(event)
        self._live.update(self._table(event))

    def _table(self, done: BatchDone) -> Table:
        from rich.table import Table

        table = Table(
            "", "this batch", "all", title=f"{done.query}, batch {done.batch}", title_justify="left"
        )
        every = self._totals
        table.add_row("messages", f"{done.messages:,}", f"{every.messages:,}")
        rates = [
            (_rate(each.messages, seconds), _rate(each.bytes_in / 1e6, seconds))
            for each, seconds in ((done, done.seconds), (every, every.batch_seconds))
        ]
        table.add_row("messages/s", *(f"{messages:,.0f}" for messages, _ in rates))
        table.add_row("MB/s", *(f"{megabytes:.1f}" for _, megabytes in rates))
        table.add_row("files", f"{done.files:,}", f"{every.files:,}")
        ratio = f"{every.bytes_in / every.bytes_out:.1f}" if every.bytes_out else ""
        table.add_row("ratio", f"{done.ratio:.1f}", ratio)
        table.add_row("gaps", str(done.gaps), str(every.gaps))
        table.add_row("quarantine", str(done.quarantined), str(every.quarantined))
        for place, behind in lags(done)[:SHOWN_PARTITIONS]:
            table.add_row(f"lag {place}", f"{behind:,}", "")
        return table


def _rate(number: float, seconds: float) -> float:
    return number / seconds if seconds else 0.0


def lags(done: BatchDone) -> list[tuple[str, int]]:
    """Returns (partition, offsets behind), the largest lag first."""
    partition_lags = [
        (f"{topic}-{partition}", behind)
        for topic, partitions in done.lag.items()
        for partition, behind in partitions.items()
    ]
    return sorted(partition_lags, key=lambda each: (-each[1], each[0]))


def line_of(event: Event) -> str:
    """Returns an event as one line."""
    if isinstance(event, Notice):
        return event.text
    if isinstance(event, Step):
        return f"{event.text}…"
    if isinstance(event, Back):
        return f"it works again, after {event.away_s:,.0f} s"
    if isinstance(event, Waiting):
        if not event.next_s:
            return f"waiting: {event.text}"
        return f"waiting, away for {event.away_s:,.0f} s, asking again in {event.next_s:.0f} s: {event.text}"
    behind = sum(each for _, each in lags(event))
    rate = _rate(event.bytes_in / 1e6, event.seconds)
    line = (
        f"batch {event.batch}: {event.messages:,} messages in {event.seconds:.1f} s "
        f"({event.messages_per_s:,.0f}/s, {rate:.1f} MB/s), {counted(event.files, 'file')}, ratio {event.ratio:.1f}, "
        f"lag {behind:,}"
    )
    if event.gaps or event.quarantined:
        line += f", {counted(event.gaps, 'gap')}, {event.quarantined:,} in quarantine"
    return line


def summary(totals: Totals) -> str:
    """Returns a run's totals as one line."""
    rows = ", ".join(f"{count:,} {table}" for table, count in sorted(totals.rows.items())) or "no rows"
    ratio = f", {totals.bytes_in / totals.bytes_out:.1f}x smaller" if totals.bytes_out else ""
    return (
        f"{totals.messages:,} messages in {counted(totals.batches, 'batch', 'batches')} of "
        f"{totals.batch_seconds:.1f} s, in all {totals.seconds:.1f} s: {rows}; "
        f"{counted(totals.files, 'file')} of {totals.bytes_out:,} bytes{ratio}; {counted(totals.gaps, 'gap')}, "
        f"{totals.quarantined:,} in quarantine"
    )
