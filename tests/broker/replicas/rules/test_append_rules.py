"""How many records a batch may declare: no more than its bytes can hold."""

from __future__ import annotations

import pytest

from blumfeld.broker.replicas.rules.append_rules import AppendRules
from blumfeld.config.values import TopicConfig
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import EXPANSION_MAX, Codec
from blumfeld.wire.errors import CorruptBatch, ErrorCode, InvalidRecord
from blumfeld_kit.fakes.runtime import EPOCH_MS
from tests.broker.batches import declaring

SMALLEST = Record(None, None, (), EPOCH_MS)


def check(data: bytearray) -> None:
    AppendRules(TopicConfig({})).check(RecordBatch(memoryview(data)), EPOCH_MS)


def test_the_smallest_records_are_taken() -> None:
    """7 bytes each: length, attributes, two deltas, two lengths of nothing, and no headers."""
    data = build_batch([SMALLEST] * 60)
    assert len(data) == HEADER_BYTES + 60 * 7
    check(data)


@pytest.mark.parametrize("codec", Codec)
def test_real_batches_of_the_smallest_records_are_taken(codec: Codec) -> None:
    check(build_batch([SMALLEST] * 50_000, codec=codec))


@pytest.mark.parametrize("count", [61, 62, 1 << 20, (1 << 31) - 1])
def test_more_records_than_the_bytes_can_hold_are_refused(count: int) -> None:
    """Such a batch would move the end of the log by its number, with nothing to read there."""
    with pytest.raises(InvalidRecord) as refused:
        check(declaring(build_batch([SMALLEST] * 60), count))
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert str(count) in str(refused.value)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_compressed_batch_may_declare_what_its_codec_can_hold(codec: Codec) -> None:
    data = build_batch([SMALLEST] * 60, codec=codec)
    most = (len(data) - HEADER_BYTES) * EXPANSION_MAX[codec] // 7
    check(declaring(data, most))
    for count in (most + 1, (1 << 31) - 1):
        with pytest.raises(InvalidRecord):
            check(declaring(data, count))


def test_a_batch_without_records_section_holds_no_record() -> None:
    for codec in Codec:
        with pytest.raises(InvalidRecord):
            check(declaring(build_batch([], codec=codec), 1))


def test_a_broken_batch_is_told_first() -> None:
    """As in Kafka: a CRC that doesn't fit is CORRUPT_MESSAGE, whatever the header says."""
    data = declaring(build_batch([SMALLEST] * 60), 1 << 20)
    data[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        check(data)
