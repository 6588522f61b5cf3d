"""The cleaner's effect on producers: times to an ack while it works, beside those while it rests, in turns.

``python -m campaigns while-compacting``. A broker has one topic with steady produce requests, and several compacted
ones full of old values. A round is a quiet period, then a period in which one of the compacted topics is released to
the cleaner; it lasts until that topic is clean. Times count from a request's due time, so a late one delays the next
ones.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Table

from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.batches.records import Record
from blumfeld_bench.drivers.frames import ProduceFrame
from blumfeld_bench.drivers.wire_client import WireClient
from campaigns.raw_connection import RawConnection

MIB = 1 << 20
NEVER, AT_ONCE = "1.0", "0.0"
"""Values of ``min.cleanable.dirty.ratio``: never clean the topic; clean it as soon as a segment is sealed."""
CLEAN_TIMEOUT_S = 300.0
BACKOFF_MS = 200
SEGMENT_BYTES = 16 * MIB
VALUE_BYTES = 200
BATCH_RECORDS = 10


@attrs.define
class Phase:
    """Times to an ack, in ms."""

    times_ms: list[float] = attrs.field(factory=list)
    seconds: float = 0.0

    def percentile(self, share: float) -> float:
        """Return a percentile of the times; ``share`` is from 0 to 1."""
        ordered = sorted(self.times_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(prog="python -m campaigns while-compacting", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="quiet and cleaning phases (default 5)")
    parser.add_argument("--mib", type=int, default=64, help="of each compacted topic (default 64)")
    parser.add_argument("--keys", type=int, default=50_000, help="different ones in it (default 50000)")
    parser.add_argument("--rate", type=float, default=500.0, help="requests a second (default 500)")
    parser.add_argument("--quiet", type=float, default=5.0, help="seconds of a quiet phase (default 5)")
    parser.add_argument("--limit", type=float, help="log.cleaner.io.max.bytes.per.second")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="blumfeld-while-compacting-") as folder:
        settings = [f'config."log.cleaner.backoff.ms"={BACKOFF_MS}']
        if asked.limit:
            settings.append(f'config."log.cleaner.io.max.bytes.per.second"={asked.limit}')
        broker = BrokerProcess(Path(folder), settings=settings)
        broker.start()
        try:
            phases = measure(broker, asked.rounds, asked.mib, asked.keys, asked.rate, asked.quiet)
        finally:
            broker.stop()
    show(phases, asked.rounds * asked.mib)


def measure(
    broker: BrokerProcess, rounds: int, mib: int, keys: int, rate_per_s: float, quiet_s: float
) -> tuple[Phase, Phase]:
    """Return the phases (quiet, cleaning), each over all rounds."""
    host, port = broker.address.split(":")
    with WireClient(host, int(port)) as client:
        client.create_topic("live", 1)
        client.wait_for_leaders("live")
        for number in range(rounds):
            config = {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": NEVER,
                "segment.bytes": str(SEGMENT_BYTES),
            }
            client.create_topic(f"old-{number}", 1, config=config)
            client.wait_for_leaders(f"old-{number}")
            fill(broker, f"old-{number}", mib * MIB, keys)
    quiet, cleaning = Phase(), Phase()
    for number in range(rounds):
        until = time.monotonic() + quiet_s
        produce(broker, quiet, rate_per_s, lambda until=until: time.monotonic() > until)  # type: ignore[misc]
        let_be_cleaned(broker, f"old-{number}")
        produce(broker, cleaning, rate_per_s, lambda number=number: is_clean(broker, f"old-{number}"))  # type: ignore[misc]
    return quiet, cleaning


def fill(broker: BrokerProcess, topic: str, size_bytes: int, keys: int) -> None:
    """Write values of evenly drawn keys, and enough records after them that all of them are in sealed segments."""
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20, "batch.size": 262_144})
    chance = random.Random(topic)
    value = chance.randbytes(VALUE_BYTES)
    for number in range((size_bytes + SEGMENT_BYTES) // (VALUE_BYTES + 20)):
        producer.produce(topic, value, key=b"%08d" % chance.randrange(keys))
        if number % 5000 == 0:
            producer.flush()
    producer.flush()


def let_be_cleaned(broker: BrokerProcess, topic: str) -> None:
    """Lower the topic's dirty ratio, so that the cleaner takes it from now on."""
    host, port = broker.address.split(":")
    with WireClient(host, int(port)) as client:
        client.set_topic_config(topic, "min.cleanable.dirty.ratio", AT_ONCE)


def is_clean(broker: BrokerProcess, topic: str) -> bool:
    """Whether the broker has written the topic's cleaner checkpoint."""
    found = next(broker.folder.rglob("cleaner-offset-checkpoint"), None)
    return found is not None and f"{topic} 0 " in found.read_text()


def produce(broker: BrokerProcess, phase: Phase, rate_per_s: float, ended: Callable[[], bool]) -> None:
    """Produce on one connection with acks=1, a request each ``1/rate_per_s`` seconds."""
    frame = ProduceFrame("live", 0, 1, [Record(b"k", bytes(100)) for _ in range(BATCH_RECORDS)])
    began = time.monotonic()
    sent = 0
    with RawConnection(broker.address) as connection:
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
            connection.receive_frame()
            phase.times_ms.append((time.monotonic() - intended) * 1000)
            sent += 1
    phase.seconds += time.monotonic() - began


def show(phases: tuple[Phase, Phase], mib: int) -> None:
    """Print the measured times."""
    table = Table(title="times to an ack, ms")
    for column in ("", "requests", "seconds", "p50", "p99", "p99.9", "highest", "mean"):
        table.add_column(column, justify="right" if column else "left")
    for name, phase in zip(("quiet", "cleaning"), phases, strict=True):
        values = [phase.percentile(share) for share in (0.5, 0.99, 0.999)]
        values += [max(phase.times_ms), statistics.fmean(phase.times_ms)]
        shown = [f"{value:.2f}" for value in values]
        table.add_row(name, str(len(phase.times_ms)), f"{phase.seconds:.1f}", *shown)
    console = Console()
    console.print(table)
    console.print(
        f"cleaned {mib} MiB in {phases[1].seconds:.1f} s, while {BACKOFF_MS} ms at most went by before each round"
    )


if __name__ == "__main__":
    main()
