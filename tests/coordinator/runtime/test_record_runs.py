"""Records taken apart batch by batch: the same as one by one, whatever the batch looks like."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld.coordinator.runtime.record_runs import RecordRun, record_run
from blumfeld.wire.batches.builder import build_batch, build_empty_batch
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import InvalidRecord


def batch_of(items: list[Record], codec: Codec = Codec.NONE) -> RecordBatch:
    return RecordBatch(memoryview(build_batch(items, codec=codec)))


def one_by_one(batch: RecordBatch) -> RecordRun:
    """By the general walk."""
    keyed = [item for item in records(batch) if item.key is not None]
    return RecordRun([item.key or b"" for item in keyed], [item.value for item in keyed])


def random_record(random: Random, *, plain: bool) -> Record:
    """A record of a size that takes other varints; if not ``plain`` also without a key, or with headers."""
    sizes = (0, 1, 62, 63, 64, 65, 200, 8_190, 8_200)
    key = None if not plain and random.random() < 0.1 else random.randbytes(random.choice(sizes))
    value = None if random.random() < 0.2 else random.randbytes(random.choice(sizes))
    headers = (("h", b"x"),) if not plain and random.random() < 0.1 else ()
    return Record(key, value, headers, timestamp=random.choice((5, 6, 1_000, 10**9)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("plain", [True, False])
def test_a_run_is_what_the_general_walk_gives(plain: bool, codec: Codec) -> None:
    random = Random(f"{plain} {codec}")
    for _ in range(60):
        items = [random_record(random, plain=plain) for _ in range(random.randrange(1, 150))]
        batch = batch_of(items, codec)
        assert record_run(batch) == one_by_one(batch)


def test_what_compaction_left_of_a_batch_is_an_empty_run() -> None:
    """A header alone, that keeps a producer's last sequence."""
    whole = batch_of([Record(b"k", b"v")])
    assert record_run(RecordBatch(memoryview(build_empty_batch(whole)))) == RecordRun([], [])


def test_records_with_holes_between_their_offsets() -> None:
    items = [Record(b"a", b"1", offset=3), Record(b"b", None, offset=70_000)]
    batch = RecordBatch(memoryview(build_batch(items, base_offset=3, keep_offsets=True)))
    assert record_run(batch) == RecordRun([b"a", b"b"], [b"1", None])


def test_a_bad_batch_is_refused_as_the_general_walk_refuses_it() -> None:
    """Whatever byte is wrong: the same records, or the same error, and it ends."""
    random = Random(7)
    whole = bytes(build_batch([Record(b"key %d" % n, random.randbytes(n)) for n in range(0, 100, 9)]))
    refused = 0
    for _ in range(3_000):
        data = bytearray(whole)
        data[random.randrange(HEADER_BYTES, len(data))] = random.randrange(256)
        batch = RecordBatch(memoryview(data))
        try:
            expected = one_by_one(batch)
        except InvalidRecord:
            refused += 1
            with pytest.raises(InvalidRecord):
                record_run(batch)
        else:
            assert record_run(batch) == expected
    assert refused > 100


def test_fewer_records_than_the_header_says_are_refused() -> None:
    data = bytearray(build_batch([Record(b"k", b"v")]))
    data[57:61] = (2).to_bytes(4)
    with pytest.raises(InvalidRecord):
        record_run(RecordBatch(memoryview(data)))
