"""Batches that hold more than the loop looks at: the same outcome as on the loop, in the same order."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

from blumfeld.broker.replicas.rules import record_rules
from blumfeld.broker.replicas.rules.append_rules import TooMuchAtOnce
from blumfeld.broker.replicas.rules.record_rules import (
    LOOK_BYTES_MAX,
    LOOK_PACKED_BYTES_MAX,
    LOOK_RECORDS_MAX,
    RECORD_ERRORS_MAX,
    WALKED_MAX,
    conformed,
    conformed_off_the_loop,
)
from blumfeld.config.values import TopicConfig
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatch, split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.batches.varint import append_varint
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import XERIAL_HEADER, compress
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceResponse
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.batches import declaring, produce
from tests.broker.harness import BrokerHarness, FakeExchange, failing, refusal

VERSION = 9
MANY = LOOK_RECORDS_MAX + 1


def packed(
    count: int = 4, size: int = LOOK_BYTES_MAX, key: bytes | None = b"k", **options: object
) -> bytearray:
    """A batch of some kB that holds a megabyte."""
    content = [Record(key, bytes(size), (), EPOCH_MS)] * count
    return build_batch(content, codec=Codec.ZSTD, **options)  # type: ignore[arg-type]


def small(value: bytes = b"v") -> bytearray:
    return build_batch([Record(b"k", value, (), EPOCH_MS)])


@pytest.fixture
def broker() -> BrokerHarness:
    harness = BrokerHarness()
    harness.create_topic("t", cleanup_policy="compact")
    harness.create_topic("plain", compression_type="lz4")
    return harness


def answer(harness: BrokerHarness, exchange: FakeExchange) -> tuple[int, int]:
    response: ProduceResponse = harness.response(exchange, produce(None), VERSION)
    one = response.responses[0].partition_responses[0]
    return one.error_code, one.base_offset


def stored(harness: BrokerHarness, topic: str = "t") -> list[bytes]:
    log = harness.log_of(topic)
    read = log.read(0, 1 << 30, log.written_end_offset, True)
    data = b"".join(bytes(part) for part in read.parts)  # type: ignore[union-attr, arg-type]
    return [bytes(r.value or b"") for b in split_batches(memoryview(data)) for r in records(b)]


def batches_alive() -> int:
    return sum(isinstance(one, RecordBatch) for one in gc.get_objects())


def test_a_refused_batch_is_gone_at_once(broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when garbage is collected, which is after a thousand of them. Here all lack their keys."""

    async def offload(work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)  # the simulated one is in a circle with the error

    monkeypatch.setattr(broker.runtime, "offload", offload)
    frame = broker.frame(produce(packed(key=None), topic="t"), VERSION)
    gc.collect()
    gc.disable()
    try:
        before = batches_alive()
        for _ in range(3):
            exchange = broker.begin(frame)
            broker.runtime.advance(10)
            assert answer(broker, exchange)[0] == ErrorCode.INVALID_RECORD
            del exchange
        assert batches_alive() == before
    finally:
        gc.enable()


def test_it_is_placed_in_a_later_turn_and_the_frame_may_go(broker: BrokerHarness) -> None:
    frame = broker.frame(produce(packed(), topic="t"), VERSION)
    exchange = broker.begin(frame)
    frame[:] = bytes(len(frame))  # the next turn's requests
    assert not exchange.settled
    assert not exchange.next_may_start, "the connection's next batch may not overtake it"
    broker.runtime.run_turn()
    assert answer(broker, exchange) == (0, 0)
    assert exchange.next_may_start
    assert stored(broker) == [bytes(LOOK_BYTES_MAX)] * 4


def test_another_connection_does_not_wait(broker: BrokerHarness) -> None:
    first = broker.begin(broker.frame(produce(packed(), topic="t"), VERSION))
    second = broker.begin(broker.frame(produce(small(b"other"), topic="t"), VERSION), broker.connect())
    broker.runtime.run_turn()
    assert answer(broker, second) == (0, 0)
    assert answer(broker, first) == (0, 1)


def test_several_of_one_request_keep_their_order(broker: BrokerHarness) -> None:
    request = produce(packed(1, LOOK_BYTES_MAX + 1), topic="t")
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=0, records=bytes(packed(1, LOOK_BYTES_MAX + n))) for n in (2, 3)
    ]
    broker.send(request, VERSION)
    assert [len(value) - LOOK_BYTES_MAX for value in stored(broker)] == [1, 2, 3]


def test_a_retry_is_found_again(broker: BrokerHarness) -> None:
    sent = packed(producer_id=5, producer_epoch=0, base_sequence=0)
    exchanges = [
        broker.begin(broker.frame(produce(sent, topic="t"), VERSION), broker.connect()) for _ in "ab"
    ]
    broker.runtime.run_turn()
    assert [answer(broker, exchange) for exchange in exchanges] == [(0, 0), (0, 0)]
    assert len(stored(broker)) == 4


def test_a_record_without_a_key_is_refused_as_on_the_loop(broker: BrokerHarness) -> None:
    large = broker.produce_batch(packed(key=None))
    assert large == broker.produce_batch(packed(size=1, key=None))
    assert large.error_code == ErrorCode.INVALID_RECORD


def test_not_every_one_of_a_million_records_is_blamed(broker: BrokerHarness) -> None:
    data = build_batch([Record(None, b"", (), EPOCH_MS)] * (RECORD_ERRORS_MAX + 100), codec=Codec.ZSTD)
    refused = broker.produce_batch(data)
    assert len(refused.record_errors) == RECORD_ERRORS_MAX
    assert str(RECORD_ERRORS_MAX + 100) in (refused.error_message or "")


def test_acks_0_is_placed_too(broker: BrokerHarness) -> None:
    exchange = broker.send(produce(packed(), topic="t", acks=0), VERSION)
    assert exchange.unanswered
    assert len(stored(broker)) == 4


def test_a_defect_is_an_error_of_its_batch(broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_rules, "conformed_off_the_loop", failing(RuntimeError("a defect")))
    assert broker.produced(packed()) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.produced(small()) == ErrorCode.NONE


@pytest.mark.parametrize("data", [packed(), build_batch([Record(b"k", b"", (), EPOCH_MS)] * MANY)])
def test_the_loop_looks_at_no_more_than_a_bit(data: bytearray) -> None:
    config = TopicConfig({"cleanup.policy": "compact"})
    with pytest.raises(TooMuchAtOnce):
        conformed(RecordBatch(memoryview(data)), config)


@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_both_ways_give_the_same_records(target: str) -> None:
    config = TopicConfig({"compression.type": target})
    given_records = [Record(b"k", b"v%d" % n, (("h", None),), EPOCH_MS + n) for n in range(100)]
    data = build_batch(given_records, codec=Codec.GZIP)
    on_it = conformed(RecordBatch(memoryview(data)), config)
    off_it = conformed_off_the_loop(RecordBatch(memoryview(data)), config)
    assert on_it.codec is off_it.codec
    assert list(records(on_it)) == list(records(off_it))
    assert on_it.max_timestamp == off_it.max_timestamp


def test_offsets_out_of_order_are_put_in_order_off_the_loop_too() -> None:
    given_records = [Record(b"k", b"v", (), EPOCH_MS, offset=n) for n in (0, 2, 4)]
    data = build_batch(given_records, keep_offsets=True, last_offset_delta=2)
    batch = conformed_off_the_loop(RecordBatch(memoryview(data)), TopicConfig({"cleanup.policy": "compact"}))
    assert [record.offset for record in records(batch)] == [0, 1, 2]


def one_record(front: bytes, headers: int) -> bytes:
    """The bytes of a record with so many headers, of two bytes each."""
    body, length = bytearray(front), bytearray()
    append_varint(body, headers)
    body += bytes(2 * headers)
    append_varint(length, len(body))
    return bytes(length + body)


def with_headers(count: int, codec: Codec = Codec.ZSTD) -> bytearray:
    """One record with ``count`` headers of two bytes each."""
    return build_batch([Record(b"k", b"v", [("", None)] * count, EPOCH_MS)], codec=codec)


@pytest.mark.parametrize("data", [with_headers(130_000), with_headers(120_000, Codec.NONE)])
def test_the_loop_looks_at_no_more_than_some_headers(data: bytearray) -> None:
    """108 bytes held it for 60 ms."""
    batch, config = RecordBatch(memoryview(data)), TopicConfig({"cleanup.policy": "compact"})
    with pytest.raises(TooMuchAtOnce):
        conformed(batch, config)
    assert conformed_off_the_loop(batch, config) is batch


def with_payload(data: bytearray, payload: bytes) -> bytearray:
    """A batch with another records section."""
    made = data[:HEADER_BYTES] + payload
    made[8:12] = (len(made) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    return declaring(made, RecordBatch(memoryview(data)).record_count)


def bomb(records_section: bytes, count: int) -> RecordBatch:
    """A batch whose records section is repeated bytes, too many to make records of."""
    data = build_batch([Record(b"k", b"v", (), EPOCH_MS)], codec=Codec.ZSTD)
    return RecordBatch(
        memoryview(declaring(with_payload(data, compress(Codec.ZSTD, records_section)), count))
    )


EMPTY_RECORD = bytes([14, 0, 0, 0, 2, 0x6B, 1, 0])
"""A record with key ``k`` and no value, at offset 0: a batch of several must be rebuilt."""


@pytest.mark.parametrize(
    "batch",
    [
        bomb(EMPTY_RECORD * (WALKED_MAX + 1), WALKED_MAX + 1),
        bomb(one_record(b"\0\0\0\2k\0", WALKED_MAX + 1), 1),
    ],
    ids=["records", "headers"],
)
def test_a_worker_checks_no_more_than_a_million_records_or_headers(batch: RecordBatch) -> None:
    """78 kB with 40 million headers held a stop up for 28 s, 7 kB with 10 million records took 1.4 GB."""
    assert batch.size_bytes < 64_000
    with refusal(ErrorCode.MESSAGE_TOO_LARGE):
        conformed_off_the_loop(batch, TopicConfig({"compression.type": "lz4"}))


def test_headers_of_all_records_count_together() -> None:
    data = build_batch([Record(b"k", b"v", [("", None)] * 64, EPOCH_MS)] * 1_000)
    with pytest.raises(TooMuchAtOnce):
        conformed(RecordBatch(memoryview(data)), TopicConfig({"cleanup.policy": "compact"}))


def test_the_loop_unpacks_no_more_than_some_blocks() -> None:
    """52,000 blocks of snappy that hold nothing held it for 90 ms."""
    data = build_batch([Record(b"k", bytes(10), (), EPOCH_MS)], codec=Codec.SNAPPY)
    empty = b"\0\0\0\1\0" * (LOOK_PACKED_BYTES_MAX // 5)
    blocks = with_payload(data, XERIAL_HEADER + empty + bytes(data[HEADER_BYTES + len(XERIAL_HEADER) :]))
    batch, config = RecordBatch(memoryview(blocks)), TopicConfig({"cleanup.policy": "compact"})
    with pytest.raises(TooMuchAtOnce):
        conformed(batch, config)
    assert conformed_off_the_loop(batch, config) is batch


@pytest.mark.parametrize(
    ("small", "code"),
    [
        ({"max.message.bytes": "10000"}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"segment.bytes": "1048576", "max.message.bytes": "9000000"}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
@pytest.mark.parametrize("target", ["uncompressed", "snappy"])
def test_what_it_becomes_in_the_topics_codec_is_not_too_large_either(
    small: dict[str, str], code: ErrorCode, target: str
) -> None:
    """Kafka looks at its size again too: 96 bytes were stored as 200,000 where 10,000 are allowed."""
    size = 200_000 if code is ErrorCode.MESSAGE_TOO_LARGE else 8_000_000
    value = random.Random(1).randbytes(size) if target == "snappy" else bytes(size)
    data = build_batch([Record(b"k", value, (), EPOCH_MS)], codec=Codec.ZSTD)
    config = TopicConfig({"compression.type": target, **small})
    ways = (conformed, conformed_off_the_loop) if target == "uncompressed" and size < LOOK_BYTES_MAX else ()
    for way in ways or (conformed_off_the_loop,):
        with refusal(code):
            way(RecordBatch(memoryview(data)), config)


def test_without_its_codec_it_may_be_too_large_for_the_topic() -> None:
    with refusal(ErrorCode.MESSAGE_TOO_LARGE):
        conformed_off_the_loop(
            RecordBatch(memoryview(packed(8))), TopicConfig({"compression.type": "uncompressed"})
        )
