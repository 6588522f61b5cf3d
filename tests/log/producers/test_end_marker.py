"""Transaction markers: Kafka's own bytes, and what is no marker."""

from __future__ import annotations

import pytest

from blumfeld.log.producers.end_marker import EndMarker, end_marker_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import InvalidRecord
from tests.log.batches import batch_bytes

ABORT_BY_KAFKA = bytes.fromhex(
    "00000000000000090000004200000002023dd718ef0030000000000000018bcfe568000000018bcfe568000000000000"
    "00004d0001ffffffff000000012000000008000000000c00000000000500"
)
LEADER_CHANGE_BY_KAFKA = bytes.fromhex(
    "000000000000000000000054000000040268e5aeae0020000000000000018bcfe568000000018bcfe56800ffffffffff"
    "ffffffffffffffffff000000014400000008000000023000000000000303000000010000000003000200000003000000"
)


def test_an_abort_of_kafka() -> None:
    batch = RecordBatch(memoryview(ABORT_BY_KAFKA))
    batch.verify_crc()
    assert end_marker_of(batch) == EndMarker(committed=False, coordinator_epoch=5)


def test_other_control_records_end_nothing() -> None:
    assert end_marker_of(RecordBatch(memoryview(LEADER_CHANGE_BY_KAFKA))) is None


@pytest.mark.parametrize(
    "record", [b"", b"\x20\0\0\0\x08\0\0", b"\x20\0\x80\x80", b"\x20\0\0\0\x01", b"\xff" * 20]
)
def test_what_is_no_control_record_is_refused(record: bytes) -> None:
    data = batch_bytes(9, producer_id=1, epoch=0, attributes=0x30, payload=record)
    with pytest.raises(InvalidRecord, match="offset 9"):
        end_marker_of(RecordBatch(memoryview(data)))
