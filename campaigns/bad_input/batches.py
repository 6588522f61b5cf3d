"""Cases of Produce: batches that are broken, too large, of the wrong kind, or bombs."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

from crc32c import crc32c

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import compress
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from campaigns.bad_input.case import Case
from campaigns.bad_input.target import CLOSED, Target, good_batch

BOMB_BYTES = 200 * 1024 * 1024
"""Beyond our bound of 100 MiB, and still less than 1 MiB when lz4 has packed it."""
HOURS_3_MS = 3 * 3600 * 1000
MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, COUNT_AT = 16, 17, 21, 23, 57


def changed(at: int, form: str, value: int, *, sealed: bool = True) -> bytearray:
    """A good batch of three records with one field of its header changed, and the CRC made right again."""
    batch = good_batch(b"one", b"two", b"three")
    struct.pack_into(form, batch, at, value)
    return _sealed(batch) if sealed else batch


def _sealed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return batch


def with_payload(codec: Codec, payload: bytes) -> bytearray:
    """A batch of one record whose records section is ``payload``, said to be of ``codec``."""
    batch = good_batch(b"")[:HEADER_BYTES] + payload
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, int(codec))
    return _sealed(batch)


def bomb(codec: Codec) -> bytearray:
    """A small batch whose records section is 200 MiB of zeros once it is decompressed."""
    if codec is Codec.GZIP:
        return with_payload(codec, _gzip_zeros(BOMB_BYTES))
    return with_payload(codec, compress(codec, bytes(BOMB_BYTES)))


def _gzip_zeros(size: int) -> bytes:
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(1 << 20)
    return b"".join([packer.compress(block) for _ in range(size >> 20)] + [packer.flush()])


def _said(title: str, expected: str, batch: Callable[[], bytearray], kafka: str = "") -> Case:
    return Case(f"Produce: {title}", expected, lambda target: target.refusal(batch()), kafka=kafka)


def _at_compacted(title: str, expected: str, batch: Callable[[], bytearray], kafka: str = "") -> Case:
    """Into a topic whose records the broker must look at."""

    def act(target: Target) -> str:
        topic = f"{target.tag}-compacted"
        if target.metadata(topic) != "NONE":
            target.make_topic(topic, {"cleanup.policy": "compact"})
        return target.refusal(batch(), topic=topic)

    return Case(f"Produce: {title}, compacted topic", expected, act, kafka=kafka)


def _bomb(codec: Codec) -> Case:
    def act(target: Target) -> str:
        topic = f"{target.tag}-recompressing"
        if target.metadata(topic) != "NONE":
            target.make_topic(topic, {"compression.type": "lz4"})
        return target.refusal(bomb(codec), topic=topic)

    title = f"Produce: a {codec.name.lower()} bomb, compression.type=lz4"
    return Case(title, "MESSAGE_TOO_LARGE", act, kafka="INVALID_RECORD, at the first record; has no bound")


def _acks_0(target: Target) -> str:
    """With acks 0 nobody can be told: the connection is closed, so that the client looks for news."""
    with target.connect() as connection:
        data = PartitionProduceData(records=bytes(changed(CRC_AT, ">I", 0, sealed=False)))
        topics = [TopicProduceData(name=target.topic, partition_data=[data])]
        connection.send_frame(connection.request(ProduceRequest(topic_data=topics), 9))
        return CLOSED if connection.ends() else "not closed"


def _of_time(timestamp_ms: Callable[[], int]) -> Callable[[], bytearray]:
    return lambda: build_batch([Record(b"k", b"v", (), timestamp_ms())])


def cases() -> Sequence[Case]:
    """All of them."""
    return (*_broken(), *_refused(), *_looked_into())


def _broken() -> Sequence[Case]:
    """No batch, or a header that can't be."""
    return (
        _said("a batch cut off", "INVALID_RECORD", lambda: good_batch(b"x" * 500)[:-100]),
        _said("less than a header", "INVALID_RECORD", lambda: good_batch(b"x")[:30]),
        _said("no batch", "INVALID_RECORD", bytearray),
        Case(
            "Produce: null instead of a batch",
            "INVALID_RECORD",
            lambda target: target.refusal(None),
            kafka="never answers",
        ),
        _said("two batches", "INVALID_RECORD", lambda: good_batch(b"x") + good_batch(b"y")),
        _said("random bytes", "CORRUPT_MESSAGE", lambda: bytearray(b"\x5a" * 300)),
        _said("a wrong CRC", "CORRUPT_MESSAGE", lambda: changed(CRC_AT, ">I", 12345, sealed=False)),
        _said("a negative batch length", "CORRUPT_MESSAGE", lambda: changed(8, ">i", -5)),
        _said("magic 0", "INVALID_RECORD", lambda: changed(MAGIC_AT, ">b", 0)),
        _said("magic 1", "INVALID_RECORD", lambda: changed(MAGIC_AT, ">b", 1)),
        _said("magic 9", "CORRUPT_MESSAGE", lambda: changed(MAGIC_AT, ">b", 9)),
        _said("a count that does not fit the offsets", "INVALID_RECORD", lambda: changed(COUNT_AT, ">i", 7)),
        _said("a negative count", "INVALID_RECORD", lambda: changed(COUNT_AT, ">i", -3)),
        _said("a control batch", "INVALID_RECORD", lambda: changed(ATTRIBUTES_AT, ">h", 0x20)),
        _said(
            "an unknown codec",
            "INVALID_RECORD",
            lambda: changed(ATTRIBUTES_AT, ">h", 6),
            kafka="UNKNOWN_SERVER_ERROR",
        ),
    )


def _refused() -> Sequence[Case]:
    """A good batch that may not go there, or not like that."""
    return (
        Case(
            "Produce: zstd in version 6",
            "UNSUPPORTED_COMPRESSION_TYPE",
            lambda target: target.refusal(good_batch(b"x", codec=Codec.ZSTD), version=6),
        ),
        _said("a record of 2 MB", "MESSAGE_TOO_LARGE", lambda: good_batch(b"x" * 2_000_000)),
        _said(
            "a time 3 h ahead", "INVALID_TIMESTAMP", _of_time(lambda: int(time.time() * 1000) + HOURS_3_MS)
        ),
        Case(
            "Produce: acks 5",
            "INVALID_REQUIRED_ACKS",
            lambda target: target.refusal(good_batch(b"x"), acks=5),
        ),
        Case("Produce: a wrong CRC with acks 0", CLOSED, _acks_0),
    )


def _looked_into() -> Sequence[Case]:
    """Records that the broker must look at, because of what the topic is."""
    return (
        _at_compacted("a null key", "INVALID_RECORD", lambda: build_batch([Record(None, b"v")])),
        _at_compacted(
            "gzip that is none",
            "INVALID_RECORD",
            lambda: with_payload(Codec.GZIP, b"no gzip at all"),
            kafka="UNKNOWN_SERVER_ERROR",
        ),
        _at_compacted(
            "lz4 cut off",
            "INVALID_RECORD",
            lambda: with_payload(Codec.LZ4, compress(Codec.LZ4, b"a" * 999)[:20]),
            kafka="UNKNOWN_SERVER_ERROR",
        ),
        _at_compacted(
            "records that are none", "INVALID_RECORD", lambda: with_payload(Codec.NONE, b"\x7f" * 40)
        ),
        _at_compacted(
            "a snappy block that claims 4 GiB",
            "INVALID_RECORD",
            lambda: with_payload(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(64)),
            kafka="UNKNOWN_SERVER_ERROR",
        ),
        _bomb(Codec.GZIP),
        _bomb(Codec.LZ4),
        _bomb(Codec.ZSTD),
    )
