"""A start holds the image of a snapshot, not its records beside it."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

from blumfeld.metadata.image.checkpoint import CheckpointId, decode_checkpoint, encode_checkpoint
from blumfeld.metadata.image.sections import NO_SECTIONS
from blumfeld.spi.storage import PartitionLog
from blumfeld.wire.messages.metadata_records import PartitionRecord, TopicRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft import stored_state

PARTITIONS = 4_096
TOPIC_ID = bytes(15) + b"\x7f"
DIRECTORIES = [bytes(15) + bytes([number]) for number in (101, 102, 103)]


def content() -> list[Message]:
    return [
        TopicRecord(name="t", topic_id=TOPIC_ID),
        *(
            PartitionRecord(
                partition_id=number,
                topic_id=TOPIC_ID,
                replicas=[1, 2, 3],
                isr=[1, 2, 3],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=list(DIRECTORIES),
            )
            for number in range(PARTITIONS)
        ),
    ]


def peak_bytes(call: Any) -> tuple[Any, int]:
    """What a call returns, and the most memory that it had beyond what it returns."""
    tracemalloc.start()
    try:
        result = call()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return result, peak - kept


def test_the_records_of_a_snapshot_are_not_held_together() -> None:
    data = encode_checkpoint(content(), epoch=1, timestamp_ms=1)
    snapshot = CheckpointId(PARTITIONS + 1, 1)
    aux = SimpleNamespace(names=lambda: [snapshot.name], read=lambda name: data)
    log = cast(PartitionLog, SimpleNamespace(aux=aux))
    tracemalloc.start()
    records = decode_checkpoint(data, snapshot.name).records
    records_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(records) == PARTITIONS + 1

    def read() -> stored_state.Loaded:
        return stored_state._newest_snapshot(log, "c", lambda text: None, NO_SECTIONS)

    read()  # the first call compiles codecs, whose memory stays
    loaded, beyond = peak_bytes(read)
    assert len(loaded.image.topics["t"].partitions) == PARTITIONS
    assert beyond < records_bytes / 2
