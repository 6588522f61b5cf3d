"""Quotas over a minute: clients of librdkafka and Java take as much as they get, beside a neighbour without a quota.

A byte quota is held against the bytes of values: of a producer by the end of its topic, of a consumer as it counts
them. Frames and batches have about 2 % more. The quota of request time is held against the time that the broker counts
for it (``blumfeld_quota_counted_total``). Each client is measured behind its first seconds, in which it may use the
share that a new client has.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.testing.process import LOOPBACK, BrokerProcess, NodeError, free_port
from blumfeld.wire.messages import alter_client_quotas as wire
from blumfeld_bench.runs.machine import this_machine
from campaigns import figures
from campaigns.connection_faults.census import exposed
from campaigns.connection_faults.load import Background
from campaigns.quotas.clients import (
    QUIET,
    RECORD_BYTES,
    LibrdkafkaConsumer,
    LibrdkafkaProducer,
    Taking,
    java_consumer,
    java_producer,
)
from campaigns.terminal import console_of, print_wrong, refused

PRODUCED, CONSUMED, PERCENT = 1_000_000, 2_000_000, 5.0
WITHIN = 0.05
BEGIN_S = 12.0
"""Time until a client is measured: a JVM starts, and the first share is used up."""
ALONE_S = 20.0
KEPT_BYTES = 260_000_000
"""Bytes to consume: more than both consumers get."""
BATCH_BYTES = 16_384
"""Size of the batches that are consumed. An answer to Fetch ends within a batch, as Kafka's does, and that part is sent
again."""
NEIGHBOUR = "neighbour"
TOPICS = {"librdkafka": "lp", "Java": "jp", "both": "consumed", "time": "rt", NEIGHBOUR: NEIGHBOUR}
SAMPLE = re.compile(r'^blumfeld_quota_counted_total\{quota="request_percentage"\} (\S+)$', re.MULTILINE)
ADMIN_S = 30.0


@attrs.frozen
class Kept:
    """What one client got of its quota."""

    client: str
    quota: str
    limit: float
    measured: float

    @property
    def ratio(self) -> float:
        """What it got, for 1 that it may have."""
        return self.measured / self.limit


@attrs.frozen
class Neighbour:
    """The produces of a client without a quota."""

    beside: str
    produced: int
    p99_ms: float
    worst_ms: float


@attrs.define
class Found:
    """Everything of one run."""

    kept: list[Kept] = attrs.Factory(list)
    neighbours: list[Neighbour] = attrs.Factory(list)


class Stand:
    """A broker with quotas, its topics, and the neighbour."""

    def __init__(self, folder: Path, stack: ExitStack, seconds: float) -> None:
        self.seconds = seconds
        self._metrics = f"{LOOPBACK}:{free_port()}"
        settings = ("quotas.plugin=quotas", f'metrics.bind="{self._metrics}"')
        broker = BrokerProcess(folder, settings=settings)
        stack.callback(broker.stop)
        broker.start()
        self.bootstrap = broker.address
        client: Any = import_module("confluent_kafka.admin")
        self._kafka: Any = import_module("confluent_kafka")
        self._admin = client.AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        made = self._admin.create_topics([client.NewTopic(topic, 1, 1) for topic in TOPICS.values()])
        for answer in made.values():
            answer.result(ADMIN_S)
        self.neighbour = stack.enter_context(Background(self.bootstrap, [NEIGHBOUR]))
        self.found = Found()

    def limit(self, client_id: str, **values: float) -> None:
        """Give a client id quotas, as ``kafka-configs`` does."""
        entity = [wire.EntityData(entity_type="client-id", entity_name=client_id)]
        ops = [wire.OpData(key=key, value=value) for key, value in values.items()]
        host, _, port = self.bootstrap.rpartition(":")
        with BlockingConnection(host, int(port), "quotas", ADMIN_S) as connection:
            request = wire.AlterClientQuotasRequest(entries=[wire.RequestEntryData(entity=entity, ops=ops)])
            (entry,) = connection.ask(request, wire.AlterClientQuotasResponse, 1).entries
        if entry.error_code:
            raise RuntimeError(f"the quota was refused: {entry.error_message}")

    def fill(self) -> None:
        """Write what the consumers read."""
        batches = {"linger.ms": 5, "batch.size": BATCH_BYTES}
        producer = self._kafka.Producer({"bootstrap.servers": self.bootstrap, **batches, **QUIET})
        for _ in range(KEPT_BYTES // RECORD_BYTES):
            while True:
                try:
                    producer.produce(TOPICS["both"], bytes(RECORD_BYTES))
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(120)

    def end_bytes(self, topic: str, record_bytes: int) -> Callable[[], float]:
        """Return a function that says how many bytes of values the topic has."""
        consumer = self._kafka.Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends", **QUIET})
        place = self._kafka.TopicPartition(topic, 0)
        return lambda: consumer.get_watermark_offsets(place, timeout=ADMIN_S)[1] * record_bytes

    def counted(self) -> float:
        """Return the request time that was counted, in seconds of a thread and per cent."""
        found = SAMPLE.search(exposed(self._metrics))
        return float(found.group(1)) if found else 0.0

    def watch(self, beside: str, seconds: float) -> None:
        """Watch the neighbour alone for a while."""
        self.neighbour.mark()
        time.sleep(seconds)
        self._seen(beside)

    def _seen(self, beside: str) -> None:
        seen = self.neighbour.mark()
        if seen.errors:
            raise RuntimeError(f"the neighbour failed: {seen.errors[0]}")
        self.found.neighbours.append(Neighbour(beside, seen.produced, seen.p99_ms, seen.worst_ms))

    def measure(
        self,
        beside: str,
        meters: Mapping[tuple[str, str, float], Callable[[], float]],
        clients: Sequence[Taking],
    ) -> None:
        """Let clients that were started come to rest, and measure all of them for the same time.

        :param meters: (client, quota, limit) → what it has had until now
        """
        time.sleep(BEGIN_S)
        self.neighbour.mark()
        before = {name: (time.monotonic(), meter()) for name, meter in meters.items()}
        time.sleep(self.seconds)
        kept = []
        for (client, quota, limit), meter in meters.items():
            now_s, now = time.monotonic(), meter()
            began_s, had = before[client, quota, limit]
            kept.append(Kept(client, quota, limit, (now - had) / (now_s - began_s)))
        for each in clients:
            each.check()
        self._seen(beside)
        self.found.kept += kept


def bytes_of_all(stand: Stand, peer: Path | None) -> None:
    """Producers and consumers of both clients at once."""
    makers: dict[tuple[str, str], Callable[[], Taking]] = {
        ("librdkafka", "producer_byte_rate"): lambda: LibrdkafkaProducer(
            stand.bootstrap, TOPICS["librdkafka"], "librdkafka-p", RECORD_BYTES, 5
        ).start(),
        ("librdkafka", "consumer_byte_rate"): lambda: LibrdkafkaConsumer(
            stand.bootstrap, TOPICS["both"], "librdkafka-c"
        ).start(),
    }
    if peer is not None:
        makers["Java", "producer_byte_rate"] = lambda: java_producer(
            peer, stand.bootstrap, TOPICS["Java"], "Java-p", RECORD_BYTES
        )
        makers["Java", "consumer_byte_rate"] = lambda: java_consumer(
            peer, stand.bootstrap, TOPICS["both"], "Java-c"
        )
    with ExitStack() as stack:
        meters: dict[tuple[str, str, float], Callable[[], float]] = {}
        clients: list[Taking] = []
        for (client, quota), make in makers.items():
            produces = quota == "producer_byte_rate"
            limit = float(PRODUCED if produces else CONSUMED)
            stand.limit(f"{client}-{'p' if produces else 'c'}", **{quota: limit})
            taking = stack.enter_context(closing(make()))
            meters[client, quota, limit] = (
                stand.end_bytes(TOPICS[client], RECORD_BYTES) if produces else taking.taken_bytes
            )
            clients.append(taking)
        stand.measure("clients above their byte quotas", meters, clients)


def time_of(stand: Stand, client: str, peer: Path | None) -> None:
    """A producer of small records, one in each request as far as the client goes, above its share of the thread."""
    client_id = f"{client}-t"
    stand.limit(client_id, request_percentage=PERCENT)
    taking: Taking
    if client == "Java":
        assert peer is not None
        taking = java_producer(peer, stand.bootstrap, TOPICS["time"], client_id, 10, "batch.size=0")
    else:
        taking = LibrdkafkaProducer(stand.bootstrap, TOPICS["time"], client_id, 10, 0).start()
    with closing(taking):
        meters = {(client, "request_percentage", PERCENT): stand.counted}
        stand.measure(f"{client} above its request time", meters, [taking])


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every client got what it may have, within 5 %; else 1."""
    parser = figures.options("quotas", __doc__, rounds=None)
    parser.add_argument("--seconds", type=float, default=60.0, help="that each client is measured for")
    options = parser.parse_args(arguments)
    peer = None if options.peer is None else options.peer.resolve()
    console = console_of()
    with tempfile.TemporaryDirectory(prefix="blumfeld-quotas-") as folder, ExitStack() as stack:
        try:
            stand = Stand(Path(folder), stack, options.seconds)
        except (NodeError, OSError) as error:
            return refused("quotas", error)
        stand.fill()
        stand.neighbour.go()
        stand.watch("nobody", ALONE_S)
        bytes_of_all(stand, peer)
        for client in ("librdkafka", *(["Java"] if peer is not None else [])):
            time_of(stand, client, peer)
        stand.watch("nobody, behind them", ALONE_S)
    figures.save(options.out, stand.found)
    return told(console, stand.found, options.seconds)


def told(console: Console, found: Found, seconds: float) -> int:
    """Print both tables. Returns 1 if a client got more or less than it may have."""
    title = f"Over {seconds:g} s, load {this_machine().load_before:g}"
    table = figures.table(title, ("client", "quota"), ("may have", "got", "ratio"))
    for kept in found.kept:
        numbers = (f"{kept.limit:,.0f}", f"{kept.measured:,.1f}", f"{kept.ratio:.3f}")
        table.add_row(kept.client, kept.quota, *numbers)
    console.print(table)
    table = figures.table(
        "Produces of a neighbour without a quota", ("beside",), ("produced", "p99 ms", "worst ms")
    )
    for row in found.neighbours:
        table.add_row(row.beside, f"{row.produced:,}", f"{row.p99_ms:.1f}", f"{row.worst_ms:.1f}")
    console.print(table)
    wrong = [
        f"{kept.client}: {kept.ratio:.3f} of its {kept.quota}"
        for kept in found.kept
        if abs(kept.ratio - 1) > WITHIN
    ]
    print_wrong(console, wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
