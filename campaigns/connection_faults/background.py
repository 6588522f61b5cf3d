"""The well-behaved load, a program of its own: ``python -m …background ADDRESS TOPIC…``.

For each topic one connection produces and one fetches, each in a thread. It takes one command a line and answers each
with a line of JSON: ``mark`` what was seen since the last mark; ``pause`` the same, once all that was produced has been
fetched and nothing is open (the connections stay); ``go``, what is seen from then on is for the next mark; ``quit``.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from typing import cast

from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from campaigns.bad_input.target import FETCH_VERSION, PRODUCE_VERSION, good_batch
from campaigns.raw_connection import RawConnection

PAUSE_BETWEEN_S = 0.005
"""Between two records of a topic."""
KEEP_ALIVE_S = 0.3
"""Between two requests of a paused connection, so that it is never idle for long."""
FETCH_WAIT_MS = 50
TIMEOUT_S = 30.0
_STAMP = struct.Struct(">q")


class Pair:
    """A producer and a consumer of one topic of one partition."""

    def __init__(self, address: str, topic: str) -> None:
        self.topic = topic
        self.running = threading.Event()
        self.running.set()
        self.over = False
        self.errors: list[str] = []
        self.acked_ms: list[float] = []
        self.seen_ms: list[float] = []
        self.produced = self.fetched = 0
        self.paused = [threading.Event(), threading.Event()]
        self._connections = [RawConnection(address, TIMEOUT_S) for _ in range(2)]
        for work in (self._produce, self._consume):
            threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except Exception as error:
            self.errors.append(f"{self.topic}: {type(error).__name__}: {error}")
            for paused in self.paused:
                paused.set()

    def _keep_alive(self, nth: int) -> None:
        while not self.running.is_set() and not self.over:
            self._connections[nth].ask(ApiVersionsRequest(), 2, ApiVersionsResponse)
            self.paused[nth].set()
            self.running.wait(KEEP_ALIVE_S)
        self.paused[nth].clear()

    def _produce(self) -> None:
        while not self.over:
            if not self.running.is_set():
                self._keep_alive(0)
            started_ns = time.monotonic_ns()
            data = PartitionProduceData(index=0, records=bytes(good_batch(_STAMP.pack(started_ns) * 12)))
            topic_data = TopicProduceData(name=self.topic, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic_data])
            answer = self._connections[0].ask(request, PRODUCE_VERSION, ProduceResponse)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise RuntimeError(f"produce: error {code}")
            self.acked_ms.append((time.monotonic_ns() - started_ns) / 1e6)
            self.produced += 1
            time.sleep(PAUSE_BETWEEN_S)

    def _consume(self) -> None:
        while not self.over:
            if not self.running.is_set() and self.paused[0].is_set() and self.fetched == self.produced:
                self._keep_alive(1)
            wanted = FetchPartition(fetch_offset=self.fetched, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic=self.topic, partitions=[wanted])]
            request = FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=topics)
            answer = self._connections[1].ask(request, FETCH_VERSION, FetchResponse)
            self._take(answer)

    def _take(self, answer: FetchResponse) -> None:
        now_ns = time.monotonic_ns()
        for partition in (part for topic in answer.responses for part in topic.partitions):
            if partition.error_code:
                raise RuntimeError(f"fetch: error {partition.error_code}")
            data = cast("memoryview", partition.records or memoryview(b""))
            for record in (r for batch in split_batches(data, allow_partial=True) for r in records(batch)):
                if record.offset < self.fetched:
                    continue
                if record.offset != self.fetched:
                    raise RuntimeError(f"fetch: offset {record.offset}, not {self.fetched}")
                self.fetched += 1
                self.seen_ms.append((now_ns - _STAMP.unpack_from(record.value or b"")[0]) / 1e6)


def report(pairs: list[Pair]) -> str:
    """What was seen since the last report, as JSON."""
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


def pause(pairs: list[Pair]) -> None:
    """Come to rest: all produced is fetched, nothing is open."""
    for pair in pairs:
        pair.running.clear()
    for pair in pairs:
        for paused in pair.paused:
            if not paused.wait(TIMEOUT_S):
                pair.errors.append(f"{pair.topic}: {pair.produced} produced, {pair.fetched} fetched")


def go(pairs: list[Pair]) -> None:
    """Go on; everybody does when this returns."""
    for pair in pairs:
        pair.running.set()
    while any(paused.is_set() for pair in pairs if not pair.errors for paused in pair.paused):
        time.sleep(0.001)


def main(address: str, topics: list[str]) -> None:
    """Serve commands until ``quit`` or the end of input."""
    pairs = [Pair(address, topic) for topic in topics]
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            break
        if command == "pause":
            pause(pairs)
        elif command == "go":
            go(pairs)
        print(report(pairs if command != "go" else []), flush=True)
    for pair in pairs:
        pair.over = True


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
