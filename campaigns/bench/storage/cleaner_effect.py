"""The cleaner's effect on producers: times to an ack while it works, beside those while it rests, in turns.

``python -m campaigns while-compacting``. A broker has one topic with steady produce requests, and several compacted
ones full of old values. A round is a quiet period, then a period in which one of the compacted topics is released to
the cleaner; it lasts until that topic is clean. Times count from a request's due time, so a late one delays the next
ones.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from blumfeld.client.blocking_connection import FrameSocket
from blumfeld.wire.batches.records import Record
from blumfeld_bench.drivers.frames import ProduceFrame
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.runs.servers import Server
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import start, this_build
from campaigns.bench.storage.compacted_log import MIB, Shape, cleaned_end_offset, release, write

CLEAN_TIMEOUT_S = 300.0
ANSWER_TIMEOUT_S = 15.0
BACKOFF_MS = 200
SEGMENT_BYTES = 16 * MIB
VALUE_BYTES = 200
BATCH_RECORDS = 10


@attrs.define
class Phase:
    """Times to an ack, in ms."""

    times_ms: list[float] = attrs.field(factory=list)
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print a table."""
    parser = figures.options("while-compacting", __doc__, peer=False, rounds=5)
    parser.add_argument("--mib", type=int, default=64, help="of each compacted topic (default 64)")
    parser.add_argument("--keys", type=int, default=50_000, help="different ones in it (default 50000)")
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second (default 500)")
    parser.add_argument("--quiet", type=float, default=5.0, help="seconds of a quiet phase (default 5)")
    parser.add_argument("--limit", type=float, help="log.cleaner.io.max.bytes.per.second")
    options = parser.parse_args(arguments)
    settings = [f'config."log.cleaner.backoff.ms"={BACKOFF_MS}']
    if options.limit:
        settings.append(f'config."log.cleaner.io.max.bytes.per.second"={options.limit}')
    # Records beyond the topic's size: so that all of it is in sealed segments.
    records = (options.mib * MIB + SEGMENT_BYTES) // (VALUE_BYTES + 20)
    shape = Shape("old", records, options.keys, VALUE_BYTES, segment_bytes=SEGMENT_BYTES, batch_bytes=262_144)
    with tempfile.TemporaryDirectory(prefix="blumfeld-while-compacting-") as folder:
        server = start(this_build(settings), Path(folder) / "server")
        try:
            phases = measure(server, shape, options.rounds, options.rate, options.quiet)
        finally:
            server.stop()
    show(phases, options.rounds * options.mib)
    figures.save(options.out, phases)


def measure(
    server: Server, shape: Shape, rounds: int, rate_per_s: float, quiet_s: float
) -> tuple[Phase, Phase]:
    """Return the phases (quiet, cleaning), each over all rounds."""
    with WireClient("127.0.0.1", server.port) as client:
        client.create_topic("live", 1)
        client.wait_for_leaders("live")
    topics = [f"old-{number}" for number in range(rounds)]
    for topic in topics:
        write(shape, server.port, topic)
    data, quiet, cleaning = server.folder / "data", Phase(), Phase()
    for topic in topics:
        until = time.monotonic() + quiet_s
        produce(server.port, quiet, rate_per_s, lambda until=until: time.monotonic() > until)  # type: ignore[misc]
        release(server.port, topic)
        produce(server.port, cleaning, rate_per_s, lambda topic=topic: cleaned_end_offset(data, topic) > 0)  # type: ignore[misc]
    return quiet, cleaning


def produce(port: int, phase: Phase, rate_per_s: float, ended: Callable[[], bool]) -> None:
    """Produce on one connection with acks=1, a request each ``1/rate_per_s`` seconds."""
    frame = ProduceFrame("live", 0, 1, [Record(b"k", bytes(100)) for _ in range(BATCH_RECORDS)])
    connection = FrameSocket("127.0.0.1", port, ANSWER_TIMEOUT_S)
    began = time.monotonic()
    sent = 0
    while True:
        intended = began + sent / rate_per_s
        if sent % 50 == 0:
            if ended():
                break
            if time.monotonic() - began > CLEAN_TIMEOUT_S:
                raise TimeoutError("the cleaner did not come to its end")
        left = intended - time.monotonic()
        if left > 0:
            time.sleep(left)
        frame.number(sent)
        connection.send(bytes(frame.data))
        connection.receive()
        phase.times_ms.append((time.monotonic() - intended) * 1000)
        sent += 1
    connection.close()
    phase.seconds += time.monotonic() - began


def show(phases: tuple[Phase, Phase], mib: int) -> None:
    """Print the measured times."""
    columns = ("requests", "seconds", "p50", "p99", "p99.9", "highest", "mean")
    table = figures.table("times to an ack, ms", ("",), columns)
    for name, phase in zip(("quiet", "cleaning"), phases, strict=True):
        values = [figures.percentile(phase.times_ms, share) for share in (0.5, 0.99, 0.999, 1.0)]
        shown = [f"{value:.2f}" for value in (*values, statistics.fmean(phase.times_ms))]
        table.add_row(name, str(len(phase.times_ms)), f"{phase.seconds:.1f}", *shown)
    console = make_console()
    console.print(table)
    console.print(
        f"cleaned {mib} MiB in {phases[1].seconds:.1f} s, while {BACKOFF_MS} ms at most went by before each round"
    )


if __name__ == "__main__":
    main()
