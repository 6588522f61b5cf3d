"""``kafka-dump-log`` of Apache Kafka 4.3.1 decodes a segment of our ``__remote_log_metadata``. Slow: Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld_storage_tiered.catalog.records import encode_change
from blumfeld_storage_tiered.catalog.segment import (
    Change,
    PartitionDelete,
    PartitionDeleteState,
    SegmentState,
)
from tests.kafka_peer import peer_script, tool
from tests.plugins.storage_tiered.catalog.history import AT, update
from tests.plugins.storage_tiered.catalog.test_records import SEGMENT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_kafkas_own_serde_reads_our_records(tmp_path: Path) -> None:
    changes: list[Change] = [
        SEGMENT,
        *(update(SEGMENT, state, 7) for state in SegmentState),
        *(
            PartitionDelete(partition=AT, broker_id=1, event_timestamp_ms=5, state=state)
            for state in PartitionDeleteState
        ),
    ]
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(build_batch([Record(value=encode_change(change), timestamp=1) for change in changes]))
    said = tool(
        peer_script(),
        "org.apache.kafka.tools.DumpLogSegments",
        "--remote-log-metadata-decoder",
        "--files",
        str(log),
    )
    lines = [line for line in said.splitlines() if "payload" in line]
    assert len(lines) == len(changes), said
    assert "startOffset=10, endOffset=99, brokerId=2" in lines[0]
    assert "segmentLeaderEpochs={1=10, 4=50}" in lines[0]
    for line, state in zip(lines[1:5], SegmentState, strict=True):
        name = state.name.replace("COPY_", "COPY_SEGMENT_").replace("DELETE_", "DELETE_SEGMENT_")
        assert f"state={name}" in line
    for line, deletion in zip(lines[5:], PartitionDeleteState, strict=True):
        assert f"state=DELETE_PARTITION_{deletion.name}" in line
