"""Compacted topics that are full of old values, and what is seen of a cleaner on the disk."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import attrs

from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import records
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient

TOPIC = "cleaned"
MIB = 1 << 20
TOMBSTONE_EVERY = 20
PRODUCE_TIMEOUT_S = 300.0


@attrs.frozen
class Shape:
    """Content of a topic."""

    name: str
    records: int
    keys: int
    value_bytes: int
    codec: str = "none"
    """Compression, by librdkafka's name."""
    segment_bytes: int = 64 * MIB
    batch_bytes: int = 16_384


SHAPES = (
    Shape("100 B values, each key 5 times", 5_000_000, 1_000_000, 100),
    Shape("1,000 B values, each key 5 times", 1_000_000, 200_000, 1_000),
    Shape("1,000 B values, each key once", 500_000, 500_000, 1_000),
    Shape("100 B values, each key 5 times, lz4", 2_000_000, 400_000, 100, "lz4", segment_bytes=16 * MIB),
)


def write(shape: Shape, port: int, topic: str = TOPIC) -> None:
    """Write a topic. No cleaner takes it up until :func:`release`.

    :raises DriverError: the broker refused a request
    """
    with WireClient("127.0.0.1", port) as client:
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(shape.segment_bytes),
            "min.cleanable.dirty.ratio": "1.0",
            "file.delete.delay.ms": "1000",
        }
        client.create_topic(topic, 1, config=config)
        client.wait_for_leaders(topic)
    _produce(shape, port, topic)


def _produce(shape: Shape, port: int, topic: str) -> None:
    """Write keys in random order with poorly compressible values; every twentieth record is a tombstone."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "batch.size": shape.batch_bytes,
            "linger.ms": 50,
            "compression.type": shape.codec,
            "queue.buffering.max.messages": 1_000_000,
            "max.in.flight.requests.per.connection": 1,
        }
    )
    luck = random.Random(shape.records)
    filler = luck.randbytes(64 * 1024)
    if shape.codec != "none":
        filler = filler.hex().encode()  # hex digits compress to about half
    refused: list[str] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            refused.append(str(error))

    for number in range(shape.records):
        key = b"key-%010d" % luck.randrange(shape.keys)
        at = luck.randrange(len(filler) - shape.value_bytes)
        value = None if number % TOMBSTONE_EVERY == 0 else filler[at : at + shape.value_bytes]
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(PRODUCE_TIMEOUT_S) or refused:
        raise DriverError(f"the topic could not be written: {refused[:1]}")


def release(port: int, topic: str = TOPIC) -> None:
    """Let a server's cleaner take a topic up at its next check.

    :raises DriverError: the server refused
    """
    with WireClient("127.0.0.1", port) as client:
        client.set_topic_config(topic, "min.cleanable.dirty.ratio", "0.01")


def log_files(data: Path) -> list[Path]:
    """Return the segments of the topic's partition, oldest first."""
    return sorted((data / f"{TOPIC}-0").glob("*.log"))


def cleaned_end_offset(data: Path, topic: str = TOPIC) -> int:
    """Return the partition's offset in the cleaner checkpoint; 0 if there is none yet."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return 0
    entries = [line.split() for line in lines[2:]]
    return next((int(offset) for name, _, offset in entries if name == topic), 0)


def survivors(data: Path) -> tuple[int, str]:
    """Return the number of the partition's records, and a digest of each one's offset, key and value in order."""
    digest, count = hashlib.sha256(), 0
    for file in log_files(data):
        for batch in split_batches(memoryview(file.read_bytes())):
            for record in records(batch):
                count += 1
                digest.update(b"%d %b %b\n" % (record.offset, record.key or b"", record.value or b"-"))
    return count, digest.hexdigest()[:16]
