"""Record batches written by Kafka's own serializer, from tests/data/kafka."""

from __future__ import annotations

from blumfeld.wire.batches.records import Record
from tests.kafka_facts import golden_batches


def golden(case: str) -> bytes:
    return golden_batches()[case]


# offset 42, epoch 7; a header with a value, an empty and a null one; a null key, a null value, both empty.
PLAIN = golden("v2_none_base42_epoch7")
SNAPPY = golden("v2_snappy_base42_epoch7")
ZSTD = golden("v2_zstd_base42_epoch7")
ABORT_MARKER = golden("ctrl_abort_off9_ts1700000000000_epoch2_pid77_pe1_coord5")
V0 = golden("legacy_v0_none")
V0_LZ4 = golden("legacy_v0_lz4")
V1_LZ4 = golden("legacy_v1_lz4")

T = 1_700_000_000_000
RECORDS = (
    Record(b"k0", b"value-0", (("h1", b"v1"), ("hé", b""), ("hn", None)), T, 42),
    Record(None, b"value-1", (), T + 5, 43),
    Record(b"k2", None, (), T - 10, 44),
    Record(b"", b"", (), T + 100, 45),
)
