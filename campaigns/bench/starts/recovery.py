"""Start after a kill and after a clean stop on a full data directory: time until all partitions serve, peak memory.

``python -m campaigns recovery --peer kafka-peer --size-mb 10000 --partitions 1000``. Every server is filled with the
same batches over the wire, killed with SIGKILL, and started on copies of its data directory; rivals interleaved.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import error_name
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from campaigns.bench.starts import restarts
from campaigns.bench.starts.restarts import CLEAN, KILLED

TOPIC = "recovery"
PRODUCE_VERSION = 8
RECORDS_PER_BATCH = 16
REQUEST_BYTES = 1 << 20
"""Approximate size of one Produce request."""
PRODUCER_ID = 10_000
"""One producer id for all batches: a request may hold batches of one producer only."""
LEADERS_TIMEOUT_S = 600.0
POLL_S = 0.02


@attrs.frozen
class Logs:
    """A topic full of batches; see :class:`campaigns.bench.starts.restarts.Data`."""

    size_bytes: int
    partitions: int
    batch_bytes: int
    idempotent: bool = False
    """Give batches producer ids and sequence numbers, as Kafka's own producer does."""
    kinds: Sequence[str] = (KILLED, CLEAN)
    quiet_s: float = 0.0

    @property
    def title(self) -> str:
        """The size of the topic."""
        size_gb = self.batches * self.batch_bytes * self.partitions / 1e9
        kind = " of idempotent producers" if self.idempotent else ""
        return f"{size_gb:.2f} GB in {self.partitions} partitions, {self.batch_bytes}-byte batches{kind}"

    @property
    def batches(self) -> int:
        """Number of batches in each partition."""
        return max(self.size_bytes // self.partitions // self.batch_bytes, 1)

    @property
    def end_offset(self) -> int:
        """End offset of each partition."""
        return self.batches * RECORDS_PER_BATCH

    def fill(self, port: int, kind: str) -> None:
        """Create the topic and write it, one batch for each partition in turn, acks=1."""
        with WireClient("127.0.0.1", port, LEADERS_TIMEOUT_S) as client:
            client.create_topic(TOPIC, self.partitions)
            client.wait_for_leaders(TOPIC)
        at_once = max(REQUEST_BYTES // self.batch_bytes, 1)
        began_ms = time.time_ns() // 1_000_000
        with BlockingConnection("127.0.0.1", port, TOPIC, LEADERS_TIMEOUT_S) as connection:
            for number in range(self.batches):
                batch = bytes(self._batch(number, began_ms + number))
                for start in range(0, self.partitions, at_once):
                    _produce(connection, batch, range(start, min(start + at_once, self.partitions)))

    def _batch(self, number: int, time_ms: int) -> bytearray:
        value = bytes(max((self.batch_bytes - 61) // RECORDS_PER_BATCH - 12, 1))
        records = [Record(timestamp=time_ms, key=None, value=value) for _ in range(RECORDS_PER_BATCH)]
        if not self.idempotent:
            return build_batch(records)
        sequence = number * RECORDS_PER_BATCH
        return build_batch(records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence)

    def await_all(self, port: int, kind: str) -> None:
        """Return when every partition has a leader that answers with the end offset that was written."""
        deadline = time.monotonic() + LEADERS_TIMEOUT_S
        while True:
            try:
                with WireClient("127.0.0.1", port, LEADERS_TIMEOUT_S) as client:
                    ends = client.latest_offsets(TOPIC, client.leaders(TOPIC))
                if len(ends) == self.partitions:
                    break
            except DriverError as error:
                if time.monotonic() > deadline:
                    raise DriverError(f"not all partitions are back: {error}") from error
            time.sleep(POLL_S)
        wrong = [f"{TOPIC}-{at} ends at {end}" for at, end in enumerate(ends) if end != self.end_offset]
        if wrong:
            raise DriverError(f"{wrong[0]}, not {self.end_offset} ({len(wrong)} such)")

    def copy(self, source: Path, target: Path) -> None:
        """Copy a data directory. The topic's ``.log`` files become hard links, so that ten gigabytes need not be
        written for each round. That is safe: a start after a crash reads them, and changes nothing in sound files.
        """

        def copy(old: str, new: str) -> None:
            path = Path(old)
            if path.suffix == ".log" and path.parent.name.startswith(f"{TOPIC}-"):
                os.link(old, new)
            else:
                shutil.copy2(old, new)

        shutil.copytree(source, target, copy_function=copy)

    def unchanged(self, folder: Path) -> dict[str, int]:
        """Return the size of the topic's ``.log`` files below ``folder``, by path."""
        logs = sorted(folder.rglob(f"{TOPIC}-*/*.log"))
        return {str(path.relative_to(folder)): path.stat().st_size for path in logs}


def _produce(connection: BlockingConnection, batch: bytes, partitions: Sequence[int]) -> None:
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    request = ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
    for partition in answer.responses[0].partition_responses:
        if partition.error_code:
            raise DriverError(f"{TOPIC}-{partition.index}: {error_name(partition.error_code)}")


def main() -> None:
    """Measure, print the table, write the result."""
    parser = restarts.options("recovery", __doc__)
    parser.add_argument("--size-mb", type=int, default=200, help="the folder takes three times as much")
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--batch-bytes", type=int, default=16_384)
    parser.add_argument(
        "--idempotent", action="store_true", help="batches as an idempotent producer sends them"
    )
    options = parser.parse_args()
    logs = Logs(options.size_mb * 1_000_000, options.partitions, options.batch_bytes, options.idempotent)
    restarts.main(options, lambda: logs)


if __name__ == "__main__":
    main()
