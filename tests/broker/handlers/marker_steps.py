"""Steps with producers and markers on one partition of the groups' topic, for our broker and for Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from blumfeld.wire.schema import Message

Ask = Callable[[Message, int], Any]
OFFSETS_TOPIC = "__consumer_offsets"

STEPS = (
    "marker pid=1",
    "marker pid=1 topic=nowhere",
    "marker pid=1 partition=9",
    "producer pid=1",
    "txn pid=2 epoch=3",
    "producer pid=2",
    "marker pid=2 epoch=2",
    "marker pid=2 epoch=3 coordinator=4",
    "producer pid=2",
    "marker pid=2 epoch=3 coordinator=3",
    "marker pid=2 epoch=3 coordinator=4",
    "marker pid=2 epoch=3 coordinator=5 abort",
    "txn pid=2 epoch=2",
    "txn pid=2 epoch=3",
    "producer pid=2",
    "marker pid=2 epoch=4 coordinator=5 abort",
    "producer pid=2",
    "txn pid=2 epoch=3",
    "txn pid=2 epoch=4",
    "marker pid=2 epoch=4 coordinator=4",
    "marker pid=2 epoch=4 coordinator=5",
    "txn pid=3 epoch=0",
    "marker pid=3 epoch=0 version=2",
    "marker pid=3 epoch=1 version=2",
    "producer pid=3",
    "marker pid=3 epoch=1 version=2",
    "marker pid=3 epoch=0 version=2",
    "txn pid=3 epoch=0",
    "txn pid=3 epoch=1",
    "marker pid=3 epoch=1 version=2 v=1",
    "producer pid=3",
    "marker pid=4 epoch=7 version=2",
    "producer pid=4",
    "marker pid=5 epoch=-1",
    "txn pid=6 epoch=32767",
    "marker pid=6 epoch=32767",
    "producer pid=6",
)


def answers(ask: Ask, base: int = 0) -> list[str]:
    """What comes of each step, offsets and times left out. ``base`` is added to each producer id."""
    return [f"{step}: {_one(ask, step, base)}" for step in STEPS]


def _one(ask: Ask, step: str, base: int) -> str:
    verb, *words = step.split()
    options = dict(word.split("=") for word in words if "=" in word)
    producer_id, epoch = int(options["pid"]) + base, int(options.get("epoch", "0"))
    if verb == "txn":
        return ErrorCode(_commit(ask, producer_id, epoch)).name
    topic, partition = options.get("topic", OFFSETS_TOPIC), int(options.get("partition", "0"))
    if verb == "producer":
        return _producer(ask, topic, partition, producer_id)
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=int(options.get("coordinator", "0")),
        transaction_result="abort" not in words,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        transaction_version=int(options.get("version", "0")),
    )
    (result,) = ask(WriteTxnMarkersRequest(markers=[marker]), int(options.get("v", "2"))).markers
    assert result.producer_id == producer_id
    return ErrorCode(result.topics[0].partitions[0].error_code).name


def _commit(ask: Ask, producer_id: int, epoch: int) -> int:
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="markers",
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[TxnOffsetCommitRequestPartition()])],
    )
    code: int = ask(request, 4).topics[0].partitions[0].error_code
    return code


def _producer(ask: Ask, topic: str, partition: int, producer_id: int) -> str:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    found = ask(request, 0).topics[0].partitions[0].active_producers
    return " ".join(
        f"epoch={p.producer_epoch} sequence={p.last_sequence} coordinator={p.coordinator_epoch} "
        f"{'open' if p.current_txn_start_offset >= 0 else 'closed'}"
        for p in found
        if p.producer_id == producer_id
    )
