"""The swarm's consumer believes an answer, or not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.cluster.reader import ClusterReader

WORK = TopicPartition("work", 0)
VALUE = b"producer-0.1#1#"


class Leader:
    """Shows one record to each fetch."""

    async def ask(self, *_: object) -> FetchResponse:
        data = build_batch([Record(value=VALUE)])
        partition_data = PartitionData(
            partition_index=0, high_watermark=1, records=memoryview(bytearray(data))
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="work", partitions=[partition_data])])


class Ways:
    """The way to that leader, which is of epoch 3 as far as the client knows."""

    random = SimpleNamespace(random=lambda: 0.9)

    async def leader(self, partition: TopicPartition) -> Leader:
        return Leader()

    def leader_epoch(self, partition: TopicPartition) -> int:
        return 3

    async def lost(self, partition: TopicPartition) -> None:
        """Nobody else leads."""


@pytest.mark.parametrize("floor_epoch", [-1, 3, 4])
def test_a_leader_from_before_a_loss_shows_nothing_that_counts(floor_epoch: int) -> None:
    """It was cut off meanwhile, and doesn't know that the others have lost its records and go on without them."""
    oracle = Oracle()
    of_partition = oracle.add(WORK)
    of_partition.floor_epoch = floor_epoch
    oracle.sent(WORK, [VALUE])
    reader = ClusterReader(cast(Any, Ways()), oracle, [WORK], "group")
    asyncio.run(reader._fetch(WORK))
    assert of_partition.read == ({0: VALUE} if floor_epoch <= 3 else {})


def test_committed_offsets_go_back_only_at_a_coordinator_that_has_a_successor_and_does_not_know_it() -> None:
    oracle = Oracle()
    oracle.offsets_sent("group", {WORK: 5})
    oracle.offsets_committed("group", WORK, 5, sent_s=1.0)
    oracle.behind_s["10.0.0.2"] = 3.0
    oracle.offsets_fetched("group", WORK, 5, "10.0.0.1", sent_s=2.0)
    oracle.offsets_fetched("group", WORK, -1, "10.0.0.2", sent_s=3.05)
    for broker, sent_s in (("10.0.0.1", 3.0), ("10.0.0.2", 3.2)):
        with pytest.raises(ViolationError, match="5 was committed"):
            oracle.offsets_fetched("group", WORK, -1, broker, sent_s)


def test_a_deletion_is_sure_only_while_no_broker_is_fenced() -> None:
    """The leader waits for live followers. A fenced one may lead later, and has the records."""
    oracle = Oracle()
    of_partition = oracle.add(WORK)
    oracle.fenced_s = 5.0
    oracle.deleted(WORK, 7, sent_s=5.05)
    assert of_partition.deleted_for_sure == 0
    oracle.deleted(WORK, 7, sent_s=5.2)
    assert of_partition.deleted_for_sure == 7
