"""kafka-python as a steady producer. Arguments: BOOTSTRAP TOPIC PARTITIONS RECORDS_PER_SECOND.

It says and takes what :class:`campaigns.cluster.producers.Program` does.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import Any

from kafka import KafkaProducer

CONFIG = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 2,
    "request_timeout_ms": 2000,
    "delivery_timeout_ms": 300_000,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "retry_backoff_ms": 20,
}
SEND_AT_ONCE = 500


def main(bootstrap: str, topic: str, partitions: int, rate_per_s: float) -> None:
    """Send until stdin ends."""
    over = threading.Event()
    threading.Thread(target=_await_end, args=(over,), daemon=True).start()
    sent = [0] * partitions
    producer: Any = KafkaProducer(bootstrap_servers=bootstrap.split(","), **CONFIG)
    began = time.monotonic()
    while not over.is_set():
        due = int((time.monotonic() - began) * rate_per_s) - sum(sent)
        for _ in range(min(due, SEND_AT_ONCE)):
            partition = sum(sent) % partitions
            number = sent[partition]
            sent[partition] += 1
            future = producer.send(topic, b"%d %0100d" % (number, number), partition=partition)
            future.add_callback(partial(_acked, partition, number))
            future.add_errback(partial(_refused, partition, number))
        time.sleep(0.002)
    producer.flush()
    producer.close()
    print("sent", *sent, flush=True)


def _await_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def _acked(partition: int, number: int, metadata: Any) -> None:
    print(f"acked {partition} {number} {metadata.offset}\n", end="", flush=True)


def _refused(partition: int, number: int, error: BaseException) -> None:
    print(f"refused {partition} {number} {type(error).__name__}: {error}\n", end="", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
