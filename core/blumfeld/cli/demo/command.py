"""The verb itself: options, the live view, the table at the end, the exit status."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from blumfeld.cli.command_config import CommandConfig, librdkafka_login
from blumfeld.cli.demo.feed import FeedError, FeedMessage, captured_feed, synthetic_feed
from blumfeld.cli.demo.ledger import Progress as Counters
from blumfeld.cli.demo.ledger import TopicError
from blumfeld.client.security.command_config import CommandConfigError
from blumfeld.testing.process import BrokerProcess

if TYPE_CHECKING:
    from blumfeld.cli.demo.pipeline import Run

PARTITIONS = 4


def demo(
    feed: Annotated[
        Path | None, typer.Option(help="A capture: '<nanoseconds> <JSON>' a line, plain or gzip.")
    ] = None,
    messages: Annotated[int, typer.Option(min=1, help="Messages of the synthetic feed.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic feed.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0, help="Messages per second; 0 is as many as the client can.")
    ] = 20_000,
    kill: Annotated[bool, typer.Option(help="kill -9 the broker halfway and start it again.")] = False,
    manifest: Annotated[Path | None, typer.Option(help="Compose the broker from this manifest.")] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="Use a running broker instead of starting one.")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Stream a market feed through a broker with librdkafka, and check that nothing was lost, doubled or changed."""
    console = Console()
    if kill and bootstrap:
        typer.echo("blumfeld: --kill needs a broker that the demo started: leave out --bootstrap", err=True)
        raise typer.Exit(2)
    if command_config and not bootstrap:
        typer.echo("blumfeld: --command-config is for a running broker: name it with --bootstrap", err=True)
        raise typer.Exit(2)
    if find_spec("confluent_kafka") is None:
        typer.echo("blumfeld: confluent_kafka is not installed: pip install confluent-kafka", err=True)
        raise typer.Exit(2)
    try:
        count = sum(1 for _ in captured_feed(feed)) if feed else messages
        if count == 0:
            raise FeedError(f"{feed}: the file holds no message")
    except FeedError as error:
        typer.echo(f"blumfeld: {error}", err=True)
        raise typer.Exit(2) from error
    try:
        login = librdkafka_login(command_config)
    except CommandConfigError as error:
        typer.echo(f"blumfeld: {error}", err=True)
        raise typer.Exit(2) from error
    source = captured_feed(feed) if feed else synthetic_feed(messages, seed)
    with tempfile.TemporaryDirectory(prefix="blumfeld-demo-") as folder:
        broker = None if bootstrap else BrokerProcess(Path(folder), manifest)
        try:
            wrong = _run(console, source, count, rate or None, kill, broker, bootstrap, login)
        except TopicError as error:
            typer.echo(f"blumfeld: {error}", err=True)
            raise typer.Exit(2) from error
    for line in wrong:
        console.print(f"[red]✗ {line}[/red]")
    if wrong:
        raise typer.Exit(1)
    console.print("[green]✓ everything that went in came out, once, in order, unchanged[/green]")


def _run(
    console: Console,
    source: Iterator[FeedMessage],
    count: int,
    rate: float | None,
    kill: bool,
    broker: BrokerProcess | None,
    bootstrap: str | None,
    login: Mapping[str, Any],
) -> list[str]:
    from blumfeld.cli.demo.pipeline import Pipeline

    if broker is not None:
        broker.start()
        console.print(broker.ready_line, highlight=False)
    pipeline = Pipeline(broker.address if broker else bootstrap or "", PARTITIONS, rate, login)
    outage_s = 0.0

    def crash() -> None:
        nonlocal outage_s
        assert broker is not None
        began = time.perf_counter()
        broker.kill()
        broker.start()
        outage_s = time.perf_counter() - began

    done = threading.Event()
    try:
        pipeline.create_topic()
        view = threading.Thread(target=_show, args=(console, pipeline.progress, count, done), daemon=True)
        view.start()
        run = pipeline.run(source, crash if kill else None, count)
        done.set()
        view.join()
        rss = broker.rss_bytes() if broker else 0
    finally:
        done.set()
        status = broker.stop() if broker else 0
    console.print(_table(run, outage_s, rss, broker))
    wrong = run.ledger.verdict() + run.trouble
    if run.lag != 0:
        wrong.append(f"the group's lag is {run.lag}, not 0")
    if status != 0:
        wrong.append(f"the broker stopped with status {status}")
    return wrong


def _show(console: Console, progress: Counters, count: int, done: threading.Event) -> None:
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=not console.is_terminal) as bars:
        sent = bars.add_task("sent", total=count)
        received = bars.add_task("received", total=count)
        for last in itertools.chain(iter(lambda: done.wait(0.1), True), [True]):
            bars.update(sent, completed=progress.sent)
            bars.update(received, completed=progress.received)
            if last:
                break
        bars.update(received, completed=progress.received)


def _table(run: Run, outage_s: float, rss_bytes: int, broker: BrokerProcess | None) -> Table:
    ledger = run.ledger
    into, out = ledger.digest()
    ordered = sorted(run.latencies_s)
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("messages", f"{ledger.count_sent:,} sent, {ledger.count_received:,} received")
    megabytes = ledger.bytes_sent / 1e6
    table.add_row("volume", f"{megabytes:,.1f} MB in {run.seconds:.1f} s: {megabytes / run.seconds:.1f} MB/s")
    table.add_row("rate", f"{ledger.count_sent / run.seconds:,.0f} messages/s")
    shares = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    table.add_row("end to end", "  ".join(f"{name} {_quantile_ms(ordered, q):.2f} ms" for name, q in shares))
    table.add_row("group lag", str(run.lag))
    table.add_row("SHA-256 in", into)
    table.add_row("SHA-256 out", out + (" ✓" if into == out else " ✗"))
    if outage_s:
        table.add_row(
            "kill -9",
            f"back after {outage_s * 1000:.0f} ms; {ledger.count_repeated:,} records were read again",
        )
    if rss_bytes:
        table.add_row("broker memory", f"{rss_bytes / 1e6:.0f} MB resident")
    if broker is not None:
        table.add_row("broker", broker.ready_line)
    return table


def _quantile_ms(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else 0.0
