"""Produce and fetch at several connection counts, in plain text, TLS, and SCRAM with ACLs, beside Apache Kafka.

``python -m campaigns secured-loop --peer kafka-peer``. Both servers run from the start to the end and take turns in
each load. The load generator is the C program beside this file. It makes the TLS handshakes; the logins are made here,
and it gets the connections. Nothing of either is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
from rich.console import Console

from blumfeld.client.frames import request_frame
from blumfeld.testing.process import NodeError
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.produce import ProduceResponse
from blumfeld.wire.schema import Message
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.terminal import make_console
from blumfeld_bench.usage import totals, tree
from campaigns import figures
from campaigns.bench.closed_loop import LINE
from campaigns.bench.rivals import KAFKA_WARM_UP_S
from campaigns.bench.secured_loop.servers import TOPICS, WAYS, SecuredServer, kafka, ours
from campaigns.raw_connection import RawConnection
from campaigns.raw_requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    batches_of,
    fetch_request,
    produce_request,
)
from campaigns.terminal import refused

SOURCE = Path(__file__).with_name("load.c")
CLIENT_ID = "secured-loop"
RECORD_BYTES = 100
FETCHED_RECORDS = 100
"""Records of the one batch that each fetch is answered with."""
ERROR_AT = {"produce": 17, "fetch": 27}
"""Place of the partition's error code in an answer of :data:`PRODUCE_VERSION` and :data:`FETCH_VERSION`, for a topic
whose name has one letter."""
BYTES_MIN = {"produce": 40, "fetch": FETCHED_RECORDS * RECORD_BYTES}
ACLS = 100_000
TABLE = (
    "| way in | load | connections | requests/s | | | p50, ms | | p99, ms | | | CPU, µs | |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    "| | | | ours | Kafka | ratio | ours | Kafka | ours | Kafka | ratio | ours | Kafka |"
)


@attrs.frozen
class Sample:
    """One round of one server under one load."""

    server: str
    way: str
    kind: str
    connections: int
    requests_per_s: float
    p50_us: float
    p99_us: float
    cpu_us: float
    """CPU time of the server for each request."""

    @property
    def load(self) -> tuple[str, str, int]:
        """Way in, kind and number of connections."""
        return self.way, self.kind, self.connections


@attrs.frozen
class Loads:
    """The load generator and its requests."""

    binary: Path
    folder: Path
    seconds: float

    def run(
        self, server: SecuredServer, way: str, kind: str, connections: int, seconds: float | None = None
    ) -> Sample:
        """Run one load. :raises RuntimeError: an answer with an error, or a lost connection"""
        pids = tree(server.process.pid)
        seconds = seconds or self.seconds
        with ExitStack() as stack:
            opened = [stack.enter_context(server.connect(way)) for _ in range(connections)]
            sockets = [str(connection.fileno()) for connection in opened]
            words = [f"{seconds:g}", str(int(way == "TLS")), str(ERROR_AT[kind]), str(BYTES_MIN[kind])]
            command = [str(self.binary), *words, str(self.folder / kind), *sockets]
            before_s = totals(pids).cpu_s
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=seconds + 120,
                check=False,
                pass_fds=[int(each) for each in sockets],
            )
            cpu_s = totals(pids).cpu_s - before_s
        match = LINE.search(done.stdout)
        if match is None:
            raise RuntimeError(f"{server.label}, {way}, {kind}, {connections}: {done.stdout}{done.stderr}")
        rate, _, p50_us, p99_us, _ = (float(value) for value in match.groups())
        cpu_us = cpu_s * 1e6 / max(1.0, rate * seconds)
        return Sample(server.label, way, kind, connections, rate, p50_us, p99_us, cpu_us)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all was measured, 2 for options or servers that can't be used."""
    parser = figures.options("secured-loop", __doc__, rounds=2)
    parser.add_argument("--connections", default="1,16,128")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each load")
    parser.add_argument("--acls", type=int, default=ACLS, help="ACLs on each server")
    parser.add_argument(
        "--warm-up", type=float, default=KAFKA_WARM_UP_S, help="seconds, of Kafka in each way in"
    )
    parser.add_argument("--transport", default="net_asyncio")
    parser.add_argument("--only", default="", metavar="TEXT", help="ways in whose name has this text")
    parser.add_argument("--page", type=Path, help="put the figures between the marks of this page")
    options = parser.parse_args(arguments)
    console = make_console()
    counts = [int(count) for count in options.connections.split(",")]
    ways = [way for way in WAYS if options.only in way]
    with tempfile.TemporaryDirectory(prefix="blumfeld-secured-loop-") as name, ExitStack() as stack:
        folder = Path(name)
        try:
            servers = _started(console, folder, options.peer, options.transport, options.acls, stack)
        except (NodeError, OSError) as error:
            return refused("secured-loop", error)
        loads = Loads(_prepared(folder), folder, options.seconds)
        for server in servers:
            _warm(
                loads,
                server,
                ways,
                options.warm_up if server is not servers[0] else min(2.0, options.warm_up),
            )
        samples = _measured(console, loads, servers, ways, counts, options.rounds)
    found = _figures(samples, options.rounds, options.seconds, options.acls)
    console.print(found, markup=False, soft_wrap=True)
    figures.save(options.out, samples)
    if options.page is not None:
        options.page.write_text(figures.put_between(options.page.read_text(), found))
    return 0


def _started(
    console: Console, folder: Path, peer: Path | None, transport: str, acls: int, stack: ExitStack
) -> list[SecuredServer]:
    (folder / "ours").mkdir()
    servers = [ours(folder / "ours", transport)]
    if peer is not None:
        (folder / "kafka").mkdir()
        servers.append(kafka(peer.resolve(), folder / "kafka"))
    for server in servers:
        stack.callback(server.process.kill)
        server.process.start()
        began_s = time.monotonic()
        server.prepare(acls)
        console.print(f"[dim]{server.label} has {acls:,} ACLs after {time.monotonic() - began_s:.1f} s[/dim]")
        host, _, port = server.bootstrap.rpartition(":")
        with WireClient(host, int(port), 30.0) as client:
            for topic in TOPICS.values():
                client.create_topic(topic, 1)
                client.wait_for_leaders(topic)
    return servers


def _prepared(folder: Path) -> Path:
    """Build the load generator, and write the requests beside it."""
    binary = folder / "load"
    command = ["gcc", "-O2", str(SOURCE), "-o", str(binary), "-lssl", "-lcrypto"]
    subprocess.run(command, check=True, timeout=120)
    for kind, request in (("produce", _produce(TOPICS["produce"], 1)), ("fetch", _fetch())):
        version = PRODUCE_VERSION if kind == "produce" else FETCH_VERSION
        (folder / kind).write_bytes(request_frame(request, version, 1, CLIENT_ID))
    return binary


def _produce(topic: str, count: int) -> Message:
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(offset=at, timestamp=now_ms, key=None, value=os.urandom(RECORD_BYTES)) for at in range(count)
    ]
    return produce_request(topic, bytes(build_batch(records)), acks=1)


def _fetch() -> Message:
    return fetch_request(TOPICS["fetch"], 0)


def _warm(loads: Loads, server: SecuredServer, ways: Sequence[str], seconds: float) -> None:
    """Write the batch that is fetched, see that both requests are answered as the load generator expects, and warm."""
    with RawConnection(server.bootstrap, 30.0) as connection:
        written = connection.ask(_produce(TOPICS["fetch"], FETCHED_RECORDS), PRODUCE_VERSION, ProduceResponse)
        assert not written.responses[0].partition_responses[0].error_code
        read = connection.ask(_fetch(), FETCH_VERSION, FetchResponse)
        assert len(batches_of(read)) == 1
    for way in ways:
        for kind in TOPICS:
            loads.run(server, way, kind, 16, seconds / 2)


def _measured(
    console: Console,
    loads: Loads,
    servers: Sequence[SecuredServer],
    ways: Sequence[str],
    counts: Sequence[int],
    rounds: int,
) -> list[Sample]:
    samples = []
    for number in range(rounds):
        for way in ways:
            for kind in TOPICS:
                for count in counts:
                    order = servers if number % 2 == 0 else servers[::-1]
                    samples += [loads.run(server, way, kind, count) for server in order]
        console.print(f"[dim]round {number + 1} of {rounds}[/dim]")
    return samples


def table_of(samples: Sequence[Sample]) -> str:
    """Return the medians as Markdown: the first server beside the second."""
    rows = [TABLE]
    for load in dict.fromkeys(sample.load for sample in samples):
        by_server = [
            [sample for sample in samples if (sample.server, sample.load) == (name, load)]
            for name in dict.fromkeys(sample.server for sample in samples)
        ]
        rows.append(_row(load, by_server))
    return "\n".join(rows)


def _row(load: tuple[str, str, int], by_server: Sequence[Sequence[Sample]]) -> str:
    def cells(field: str, scale: float, form: str, *, compared: bool = False) -> list[str]:
        values = [figures.median(series, field) / scale for series in by_server]
        shown = [format(value, form) for value in values] + ["–"] * (2 - len(values))
        if compared:
            shown.append(f"{values[0] / values[1]:.2f}" if len(values) == 2 else "–")
        return shown

    way, kind, connections = load
    return "| {} |".format(
        " | ".join(
            [
                way,
                kind,
                str(connections),
                *cells("requests_per_s", 1, ",.0f", compared=True),
                *cells("p50_us", 1_000, ".2f"),
                *cells("p99_us", 1_000, ".2f", compared=True),
                *cells("cpu_us", 1, ".0f"),
            ]
        )
    )


def _figures(samples: Sequence[Sample], rounds: int, seconds: float, acls: int) -> str:
    machine = this_machine()
    return "\n".join(
        [
            f"Machine: {machine.cores} cores ({machine.cpu}), {machine.kernel}, Python {machine.python}; load when it",
            f"ended: {machine.load_before:g}. Medians of {rounds} interleaved rounds of {seconds:g} s, {acls:,} ACLs.",
            "",
            table_of(samples),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
