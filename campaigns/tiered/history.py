"""A history of many gigabytes of which the disk keeps a twentieth, read from offset 0 while writes go on.

The load is the campaigns' own, with records of 100 kB whose bytes follow from their number. One reader goes from offset
0 to the end of each partition. The ledger of the load says what it must find: each record once, in order, byte by byte.
Beside it the bench's driver measures a consumer at the end of another topic: of one that isn't tiered, of one that is,
and of that while the reader goes on. Resident memory and the files of the cache are looked at all the time.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from blumfeld_bench.drivers.contract import unseen
from blumfeld_bench.drivers.driver import WireDriver
from blumfeld_bench.drivers.wire_client import EARLIEST_LOCAL, WireClient
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.runs.servers import Server
from blumfeld_bench.runs.turn import HOST, Place, Runner
from blumfeld_bench.statistics.cells import END_TO_END_P99, open_round
from blumfeld_bench.workload import Consume, Produce, Step, Topic, Workload
from campaigns.bench.rivals import start, this_build
from campaigns.clients.load.acknowledged_records import Account, AcknowledgedRecords
from campaigns.clients.load.load import Load
from campaigns.clients.load.log_contents import UnreadableError, log_ends, read_partition
from campaigns.clients.load.producers import CUT_SHORT_S, Librdkafka
from campaigns.figures import ratio
from campaigns.waits import await_true

TOPIC, PLAIN, LIVE = "history", "plain", "live"
PARTITIONS = 4
RECORD_BYTES = 100_000
SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX = 1 << 20, 32 << 20
REMOTE_SHARE = 0.95
"""The least share of the records that the store alone has when the reader begins."""
SLOWLY_PER_S = 20.0
"""Records a second while the history is read."""
OPEN_MAX = 400
"""Records without an acknowledgement: 40 MB."""
SETTLE_S = 600.0
READ_S = 1200.0
LOOK_S = 0.2
CACHE_BYTES = 64 << 20
RSS_MAX_BYTES = 400 << 20
TAIL_PER_S = 2000.0
"""Records of 1 KiB a second to the topic with a consumer at its end."""
TAIL_S = 4.0
BLOCK = random.Random(30).randbytes(1 << 20)
CONFIG = (
    "storage.plugin=storage_tiered",
    f"storage.options.cache_bytes={CACHE_BYTES}",
    'config."remote.log.manager.task.interval.ms"=500',
    'config."log.retention.check.interval.ms"=500',
    'config."log.initial.task.delay.ms"=100',
)


def record_of(partition: int, number: int) -> bytes:
    """Return the record with this number in its partition. Each has other bytes."""
    head = b"%d %d " % (number, partition)
    at = (number * 7919 + partition * 104_729) % (len(BLOCK) - RECORD_BYTES)
    return head + BLOCK[at : at + RECORD_BYTES - len(head)]


class LargeRecords(Librdkafka):
    """The producer of the history. It may be slowed down, and waits for acknowledgements where the machine is slower
    than its rate."""

    pace_per_s: float | None = None
    load: Load | None = None

    @property
    def rate_per_s(self) -> float:
        """As :meth:`Librdkafka.rate_per_s`."""
        if self.load is not None and sum(self.sent) - acked_records(self.load) > OPEN_MAX:
            return 0.0
        return super().rate_per_s if self.pace_per_s is None else self.pace_per_s

    def record(self, nth: int, number: int) -> tuple[bytes | None, bytes]:
        """As :meth:`Librdkafka.record`."""
        return None, record_of(nth % len(self.sent), number)


def acked_records(load: Load) -> int:
    """Return the number of acknowledged records."""
    return sum(map(len, load.acknowledged_records.offsets))


class HistoryReport(msgspec.Struct, kw_only=True):
    """One run."""

    gigabytes: float
    """Bytes that the reader found acknowledged."""
    written_s: float
    settled_s: float
    """From then until the store alone has :data:`REMOTE_SHARE`."""
    remote_share: float
    local_bytes: int
    """Bytes of the topic's logs on the disk when the reader begins."""
    read_s: float
    """Without the pauses."""
    account: Account
    rss_max_bytes: int
    cache_max_bytes: int
    plain_p99_ms: list[float]
    tail_p99_ms: list[float]
    beside_p99_ms: list[float]
    """While the reader goes on."""
    wrong: list[str]

    def ratio(self, first: list[float], second: list[float]) -> str:
        """Return the second over the first, with the bench's interval."""
        if not first or not second:
            return "–"
        median, (low, high) = ratio(first, second)
        return f"{median:.2f}× ({low:.2f} to {high:.2f})"


class Sampler:
    """Looks at the server's resident memory and at the files of its cache."""

    def __init__(self, server: Server) -> None:
        self.rss_max_bytes = self.cache_max_bytes = 0
        self._server = server
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Look no more."""
        self._done.set()
        self._thread.join(10)

    def _run(self) -> None:
        cache = self._server.folder / "data" / "remote-chunk-cache"
        while not self._done.wait(LOOK_S):
            self.rss_max_bytes = max(self.rss_max_bytes, self._server.totals().rss_bytes)
            self.cache_max_bytes = max(self.cache_max_bytes, bytes_of(cache, "*"))


def bytes_of(folder: Path, pattern: str) -> int:
    """Return the bytes of files, as far as they are there."""
    total = 0
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


class Reader:
    """Reads each partition from offset 0 to the end that it has then. Each record must be the one that was sent."""

    def __init__(self, bootstrap: str) -> None:
        self.logs: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        """(offset, number) of each record, by partition."""
        self.wrong: list[str] = []
        self.read_s = 0.0
        self._bootstrap = bootstrap
        self._goes_on = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether it is at the end of all partitions."""
        return not self._thread.is_alive()

    def go_on(self) -> None:
        """Read."""
        self._goes_on.set()

    def pause(self) -> None:
        """Read no more for a while."""
        self._goes_on.clear()

    def finish(self) -> None:
        """Read to the end."""
        self.go_on()
        self._thread.join(READ_S)
        if not self.is_done:
            self.wrong.append(f"the reader wasn't at the end in {READ_S:.0f} s")

    def _run(self) -> None:
        for partition in range(PARTITIONS):
            try:
                self._read(partition)
            except UnreadableError as error:
                self.wrong.append(f"reader: {error}")

    def _read(self, partition: int) -> None:
        log, since = self.logs[partition], self._wait()
        # Writes go on, so that a reader is told of no end: it stops at that of the moment when it began.
        end = log_ends(self._bootstrap, TOPIC, PARTITIONS)[TOPIC, partition]
        for message in read_partition(self._bootstrap, TOPIC, partition, limit_s=READ_S):
            if not self._goes_on.is_set():
                self.read_s += time.monotonic() - since
                since = self._wait()
            value = message.value() or b""
            digits = value.partition(b" ")[0]
            number = int(digits) if digits.isdigit() else -1
            if value != record_of(partition, number):
                self.wrong.append(f"{TOPIC}-{partition}: other bytes at {message.offset()}")
            log.append((message.offset() or 0, number))
            if len(log) >= end:
                break
        self.read_s += time.monotonic() - since

    def _wait(self) -> float:
        self._goes_on.wait()
        return time.monotonic()


class History:
    """One run in a new folder.

    :param rate_per_s: records a second while the history is written
    :param rounds: of the three tails
    """

    def __init__(
        self, folder: Path, gigabytes: float, rate_per_s: float, rounds: int, *, read_in_place: bool
    ) -> None:
        self._folder = folder
        self._bytes = round(gigabytes * 1e9)
        self._rate_per_s = rate_per_s
        self._rounds = rounds
        self._in_place = read_in_place
        step = Step(
            name="tail",
            produce=Produce(
                connections=2,
                rate_per_s=TAIL_PER_S,
                record_bytes_min=1024,
                record_bytes_max=1024,
                batch_records=2,
                in_flight=5,
            ),
            consume=Consume(),
            warm_up_s=1.0,
            measure_s=TAIL_S,
        )
        self._tails = Workload(
            name="tails", description=step.name, topic=Topic(partitions=PARTITIONS), steps=(step,)
        )
        self._runner = Runner(self._tails, WireDriver(self._tails), seed=1)

    def run(self) -> HistoryReport:
        """Write, read, and hold it against the ledger.

        :raises ServerError: the node doesn't start
        :raises NoLoadError: it takes no records
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        store = (self._folder / "store").as_uri()
        settings = [*CONFIG, f"storage.options.store={store}"]
        settings.append(f"storage.options.file.read_in_place={str(self._in_place).lower()}")
        server = start(this_build(settings), self._folder / "server")
        try:
            return self._measured(server)
        finally:
            server.stop()

    def _measured(self, server: Server) -> HistoryReport:
        bootstrap, producers = f"{HOST}:{server.port}", list[LargeRecords]()

        def make(*given: object) -> LargeRecords:
            limits = {"queue.buffering.max.kbytes": 64 << 10, "message.max.bytes": 2 << 20}
            producers.append(LargeRecords(*given, **limits))  # type: ignore[arg-type]
            return producers[-1]

        load = Load(bootstrap, PARTITIONS, self._rate_per_s, TOPIC, make)
        producers[0].load = load
        self._make_topics(server, load)
        began = time.monotonic()
        sampler = Sampler(server)
        load.start()
        try:
            records = self._bytes // RECORD_BYTES
            await_true(lambda: acked_records(load) >= records or bool(load.wrong), READ_S, 0.2)
            written_s = time.monotonic() - began
            producers[0].pace_per_s = SLOWLY_PER_S
            share = self._settle(server)
            settled_s = time.monotonic() - began - written_s
            local = bytes_of(server.folder / "data", f"{TOPIC}-*/*.log")
            reader = Reader(bootstrap)
            plain, tail, beside = self._measure_tails(server, reader)
            reader.finish()
            load.finish()
        finally:
            load.finish(CUT_SHORT_S)
            sampler.finish()
        account = self.account(load, reader)
        wrong = [*load.wrong, *reader.wrong]
        wrong += [f"{count} records were given up: {error}" for error, count in load.given_up.items()]
        if share < REMOTE_SHARE:
            wrong.append(f"after {SETTLE_S:.0f} s the store alone has {share:.3f}, less than {REMOTE_SHARE}")
        for name, found, allowed in (
            ("resident memory", sampler.rss_max_bytes, RSS_MAX_BYTES),
            ("the cache", sampler.cache_max_bytes, CACHE_BYTES),
        ):
            if found > allowed:
                wrong.append(f"{name}: {found:,} bytes; allowed: {allowed:,}")
        return HistoryReport(
            gigabytes=account.acked * RECORD_BYTES / 1e9,
            written_s=written_s,
            settled_s=settled_s,
            remote_share=share,
            local_bytes=local,
            read_s=reader.read_s,
            account=account,
            rss_max_bytes=sampler.rss_max_bytes,
            cache_max_bytes=sampler.cache_max_bytes,
            plain_p99_ms=plain,
            tail_p99_ms=tail,
            beside_p99_ms=beside,
            wrong=wrong,
        )

    def _make_topics(self, server: Server, load: Load) -> None:
        room = round(self._bytes * (1 - REMOTE_SHARE) / PARTITIONS)
        segment = min(max(room // 4, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)
        # Beside what is kept there are the active segment and one that is being copied.
        kept = max(room - 2 * segment, 1)
        tiered = {"remote.storage.enable": "true", "file.delete.delay.ms": "1000"}
        sizes = {"segment.bytes": str(segment), "local.retention.bytes": str(kept)}
        load.make_topic(1, tiered | sizes)
        with WireClient(HOST, server.port) as client:
            small = {"segment.bytes": str(4 << 20)}
            client.create_topic(PLAIN, PARTITIONS, 1, small)
            client.create_topic(LIVE, PARTITIONS, 1, tiered | small | {"local.retention.bytes": "1"})
            for topic in (PLAIN, LIVE):
                client.wait_for_leaders(topic)

    def _settle(self, server: Server) -> float:
        """Wait until the store alone has its share. Return the share."""
        share = 0.0
        with WireClient(HOST, server.port) as client:
            leaders = client.leaders(TOPIC)

            def settled() -> bool:
                nonlocal share
                starts = client.offsets(TOPIC, leaders, EARLIEST_LOCAL)
                share = sum(starts) / max(sum(client.latest_offsets(TOPIC, leaders)), 1)
                return share >= REMOTE_SHARE

            await_true(settled, SETTLE_S, 0.2)
        return share

    def _measure_tails(self, server: Server, reader: Reader) -> tuple[list[float], list[float], list[float]]:
        """Measure the three tails in turns. Rounds end when the reader is at the end."""
        plain: list[float] = []
        tail: list[float] = []
        beside: list[float] = []
        for nth in range(self._rounds):
            without = self._p99_ms(server, PLAIN, nth), self._p99_ms(server, LIVE, nth)
            reader.go_on()
            read_beside = self._p99_ms(server, LIVE, nth)
            if reader.is_done:
                break
            reader.pause()
            plain.append(without[0])
            tail.append(without[1])
            beside.append(read_beside)
        return plain, tail, beside

    def _p99_ms(self, server: Server, topic: str, nth: int) -> float:
        place, (step,) = Place(server.port, topic, server), self._tails.steps
        turn = Turn(round=nth, position=0, variant=topic)
        return (END_TO_END_P99.of(open_round(self._runner.measure(place, step, turn, unseen))) or 0.0) / 1e3

    @staticmethod
    def account(load: Load, reader: Reader) -> Account:
        """Hold what was read against the ledger, as far as the reader came: writes went on."""
        account = Account()
        for partition, log in enumerate(reader.logs):
            end = log[-1][0] if log else -1
            acked = load.acknowledged_records.offsets[partition]
            reached = AcknowledgedRecords(PARTITIONS)
            reached.offsets[partition] = {number: at for number, at in acked.items() if at <= end}
            reached.check(partition, log, account)
            if [offset for offset, _ in log] != list(range(end + 1)):
                reached.wrong.append(
                    f"{TOPIC}-{partition}: offsets aren't 0 to {end}, each once and in order"
                )
            load.wrong += reached.wrong
        return account
