"""The answer to a Produce request without a refused batch: the bytes of the generated encoder."""

from __future__ import annotations

from itertools import product

from blumfeld.broker.produce.all_appended import AllAppended
from blumfeld.wire.codec import encode
from blumfeld.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.everyday import for_each


@for_each(product(range(3, 14), [0, 1, 3, 126, 127, 200], [0, 70_000]))
def test_it_is_written_as_the_general_way_writes_it(
    version: int, partitions: int, throttle_time_ms: int
) -> None:
    topics = [
        TopicProduceResponse(
            name=name if version < 13 else "",
            topic_id=bytes(range(16)) if version >= 13 else bytes(16),
            partition_responses=[
                PartitionProduceResponse(
                    index=index,
                    base_offset=(1 << 40) + index,
                    log_append_time_ms=index - 1,
                    log_start_offset=index * 7,
                )
                for index in range(partitions)
            ],
        )
        for name in ("t", "ü" * 100)
    ]
    written = AllAppended(responses=topics, throttle_time_ms=throttle_time_ms)
    generated = ProduceResponse(responses=topics, throttle_time_ms=throttle_time_ms)
    assert encode(written, version) == encode(generated, version)
