"""The largest request of each API, and how long another connection waits meanwhile.

``python -m campaigns stalls``. Exit 1 if a request to this build stalls the probe.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from blumfeld.wire.api import API_BY_KEY
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.runs.servers import Server
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import kafka, start, this_build
from campaigns.raw_connection import ConnectionEnded, RawConnection
from campaigns.stalls import largest
from campaigns.stalls.largest import Case
from campaigns.stalls.measurement import Measured, Probe, measure

STALL_MS_MAX = 50.0
ELEMENTS = 1_000_000
BYTES_MAX = 100_000_000
READY_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if no request of ours stalls another connection for more than ``STALL_MS_MAX``."""
    parser = figures.options("stalls", __doc__, rounds=None)
    parser.add_argument("--only", default="", metavar="TEXT", help="requests whose title has this in it")
    parser.add_argument("--only-peer", action="store_true", help="measure Apache Kafka alone")
    parser.add_argument("--elements", type=int, default=ELEMENTS, help="elements of an array at most")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for blumfeld run")
    given = parser.parse_args(arguments)
    console = make_console(170)
    specs = [] if given.only_peer else [this_build(given.set)]
    specs += [kafka(given.peer.resolve())] if given.peer else []
    results: dict[str, dict[str, Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="blumfeld-stalls-") as folder:
        for spec in specs:
            by_title = results[spec.label] = {}
            for measured in _all(spec, Path(folder) / spec.label, given, console):
                by_title[measured.title] = measured
                figures.save(given.out, results)
    console.print(_table(results))
    ours = results.get("blumfeld", {}).values()
    slow = [m for m in ours if m.came == "died" or m.stall_ms > STALL_MS_MAX]
    console.print(
        f"{len(ours)} requests to this build, {len(slow)} stall it for more than {STALL_MS_MAX:.0f} ms"
    )
    return 1 if slow or not (ours or given.only_peer) else 0


def _all(spec: VariantSpec, folder: Path, given: argparse.Namespace, console: Console) -> Iterable[Measured]:
    """One server after the other for each API: what one request left behind is not the next one's."""
    server = start(spec, folder / "look")
    with WireClient("127.0.0.1", server.port) as client:
        advertised = client.versions()
    server.stop()
    for key, versions in sorted(advertised.items()):
        wanted = [
            case for case in _cases(key, versions, given.elements) if given.only.lower() in case.title.lower()
        ]
        if wanted:
            yield from _one_api(spec, folder / f"api-{key}", wanted, console)


def _cases(key: int, versions: tuple[int, int], elements: int) -> list[Case]:
    if key not in API_BY_KEY:
        return []
    cases = list(largest.cases(key, versions, elements, BYTES_MAX))
    return cases + (list(largest.batch_cases()) if key == 0 else [])


def _one_api(spec: VariantSpec, folder: Path, cases: Sequence[Case], console: Console) -> Iterable[Measured]:
    running: tuple[Server, Probe] | None = None
    try:
        for number, case in enumerate(cases):
            frame = case.make()
            if running is None:
                server = start(spec, folder / str(number))
                _prepare(server)
                running = server, Probe(server)
                time.sleep(1.0)
            outcome = measure(*running, case.title, frame)
            console.print(f"{spec.label} {_line(outcome)}", highlight=False)
            yield outcome
            if outcome.came in ("no answer", "died"):
                _stop(*running)
                running = None
    finally:
        if running is not None:
            _stop(*running)


def _stop(server: Server, probe: Probe) -> None:
    probe.stop()
    server.stop()


def _prepare(server: Server) -> None:
    """The topics that requests name, and a coordinator for the group."""
    topics = [CreatableTopic(name=largest.TOPIC, num_partitions=3, replication_factor=1)]
    for name, configs in largest.BATCH_TOPICS.items():
        wanted = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topics.append(CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=wanted))
    with RawConnection(server.address) as connection:
        connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5, CreateTopicsResponse)
        deadline = time.monotonic() + READY_S
        request = FindCoordinatorRequest(coordinator_keys=[largest.GROUP])
        while time.monotonic() < deadline:
            try:
                answer = connection.ask(request, 4, FindCoordinatorResponse)
            except ConnectionEnded:
                return
            if not answer.coordinators or not answer.coordinators[0].error_code:
                return
            time.sleep(0.1)


def _line(m: Measured) -> str:
    return (
        f"{m.title}: {m.sent_bytes / 1e6:.1f} MB, {m.came} {m.answer_bytes / 1e6:.1f} MB in {m.took_ms:.0f} ms,"
        f" probe {m.worst_ms:.0f} ms, loop {m.loop_ms:.0f} ms, peak {m.peak_bytes >> 20} MiB"
    )


def _table(results: dict[str, dict[str, Measured]]) -> Table:
    columns = [
        f"{label} {column}"
        for label in results
        for column in ("MB", "came", "ms", "worst delay", "its loop", "peak MiB")
    ]
    title = "The largest requests: worst delay of another connection"
    table = figures.table(title, ("request",), columns)
    for title in dict.fromkeys(title for titles in results.values() for title in titles):
        row = [title]
        for by_title in results.values():
            m = by_title.get(title)
            if m is None:
                row += ["–"] * 6
                continue
            row += [
                f"{m.sent_bytes / 1e6:.1f}",
                m.came,
                f"{m.took_ms:.0f}",
                f"{m.worst_ms:.0f}",
                f"{m.loop_ms:.0f}",
                str(m.peak_bytes >> 20),
            ]
        table.add_row(*row)
    return table


if __name__ == "__main__":
    sys.exit(main())
