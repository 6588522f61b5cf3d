"""The well-behaved load, a program of its own: ``python -m …background ADDRESS TOPIC…``.

For each topic one connection produces and one fetches, each in a thread. It takes one command a line and answers each
with a line of JSON. ``go`` opens the connections. ``mark`` says what was seen since the last answer. ``pause`` says the
same, once all that was produced has been fetched and the connections are closed. The program ends with its input.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time

from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.produce import ProduceResponse
from campaigns.bad_input.target import good_batch
from campaigns.raw_connection import RawConnection
from campaigns.raw_requests import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request, records_of

PAUSE_BETWEEN_S = 0.005
"""Between two records of a topic."""
FETCH_WAIT_MS = 50
TIMEOUT_S = 30.0
_STAMP = struct.Struct(">q")


class Pair:
    """A producer and a consumer of one topic of one partition."""

    def __init__(self, address: str, topic: str) -> None:
        self.errors: list[str] = []
        self.acked_ms: list[float] = []
        self.seen_ms: list[float] = []
        self._address = address
        self._topic = topic
        self._produced = self._fetched = 0
        self._pauses = threading.Event()
        self._threads: list[threading.Thread] = []

    def go(self) -> None:
        """Begin, on connections of its own."""
        self._pauses.clear()
        self._threads = [
            threading.Thread(
                target=self._guarded, args=(work, RawConnection(self._address, TIMEOUT_S)), daemon=True
            )
            for work in (self._produce, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def pause(self) -> None:
        """Come to rest: all that was produced is fetched, and the connections are closed."""
        self._pauses.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            if thread.is_alive():
                self.errors.append(f"{self._topic}: {self._produced} produced, {self._fetched} fetched")

    def _guarded(self, work: object, connection: RawConnection) -> None:
        try:
            with connection:
                work(connection)  # type: ignore[operator]
        except Exception as error:
            self.errors.append(f"{self._topic}: {type(error).__name__}: {error}")
            self._pauses.set()

    def _produce(self, connection: RawConnection) -> None:
        while not self._pauses.is_set():
            started_ns = time.monotonic_ns()
            request = produce_request(self._topic, good_batch(_STAMP.pack(started_ns) * 12))
            answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
            if code := answer.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"produce: error {code}")
            self.acked_ms.append((time.monotonic_ns() - started_ns) / 1e6)
            self._produced += 1
            time.sleep(PAUSE_BETWEEN_S)

    def _consume(self, connection: RawConnection) -> None:
        producer = self._threads[0]
        while producer.is_alive() or (not self.errors and self._fetched < self._produced):
            request = fetch_request(self._topic, self._fetched, max_wait_ms=FETCH_WAIT_MS)
            self._take(connection.ask(request, FETCH_VERSION, FetchResponse))

    def _take(self, answer: FetchResponse) -> None:
        now_ns = time.monotonic_ns()
        for partition in (part for topic in answer.responses for part in topic.partitions):
            if partition.error_code:
                raise RuntimeError(f"fetch: error {partition.error_code}")
        for record in records_of(answer, self._fetched):
            if record.offset != self._fetched:
                raise RuntimeError(f"fetch: offset {record.offset}, not {self._fetched}")
            self._fetched += 1
            self.seen_ms.append((now_ns - _STAMP.unpack_from(record.value or b"")[0]) / 1e6)


def report(pairs: list[Pair]) -> str:
    """Return what was seen since the last report, as JSON."""
    acked: list[float] = []
    seen: list[float] = []
    for pair in pairs:
        pair.acked_ms, mine = [], pair.acked_ms
        pair.seen_ms, arrived = [], pair.seen_ms
        acked += mine
        seen += arrived
    acked.sort()
    return json.dumps(
        {
            "produced": len(acked),
            "fetched": len(seen),
            "p99_ms": acked[len(acked) * 99 // 100] if acked else 0.0,
            "worst_ms": max(acked, default=0.0),
            "worst_end_to_end_ms": max(seen, default=0.0),
            "errors": [error for pair in pairs for error in pair.errors],
        }
    )


def main(address: str, topics: list[str]) -> None:
    """Serve commands until the end of input."""
    pairs = [Pair(address, topic) for topic in topics]
    for line in sys.stdin:
        command = line.strip()
        for pair in pairs if command != "mark" else ():
            pair.go() if command == "go" else pair.pause()
        print(report(pairs), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
