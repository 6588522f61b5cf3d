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

BY_KAFKA = """\
marker pid=1: NONE
marker pid=1 topic=nowhere: UNKNOWN_TOPIC_OR_PARTITION
marker pid=1 partition=9: UNKNOWN_TOPIC_OR_PARTITION
producer pid=1: epoch=0 sequence=-1 coordinator=0 closed
txn pid=2 epoch=3: NONE
producer pid=2: epoch=3 sequence=0 coordinator=-1 open
marker pid=2 epoch=2: INVALID_PRODUCER_EPOCH
marker pid=2 epoch=3 coordinator=4: NONE
producer pid=2: epoch=3 sequence=0 coordinator=4 closed
marker pid=2 epoch=3 coordinator=3: TRANSACTION_COORDINATOR_FENCED
marker pid=2 epoch=3 coordinator=4: NONE
marker pid=2 epoch=3 coordinator=5 abort: NONE
txn pid=2 epoch=2: INVALID_PRODUCER_EPOCH
txn pid=2 epoch=3: NONE
producer pid=2: epoch=3 sequence=0 coordinator=5 open
marker pid=2 epoch=4 coordinator=5 abort: NONE
producer pid=2: epoch=4 sequence=-1 coordinator=5 closed
txn pid=2 epoch=3: INVALID_PRODUCER_EPOCH
txn pid=2 epoch=4: NONE
marker pid=2 epoch=4 coordinator=4: TRANSACTION_COORDINATOR_FENCED
marker pid=2 epoch=4 coordinator=5: NONE
txn pid=3 epoch=0: NONE
marker pid=3 epoch=0 version=2: INVALID_PRODUCER_EPOCH
marker pid=3 epoch=1 version=2: NONE
producer pid=3: epoch=1 sequence=-1 coordinator=0 closed
marker pid=3 epoch=1 version=2: NONE
marker pid=3 epoch=0 version=2: INVALID_PRODUCER_EPOCH
txn pid=3 epoch=0: INVALID_PRODUCER_EPOCH
txn pid=3 epoch=1: NONE
marker pid=3 epoch=1 version=2 v=1: NONE
producer pid=3: epoch=1 sequence=0 coordinator=0 closed
marker pid=4 epoch=7 version=2: NONE
producer pid=4: epoch=7 sequence=-1 coordinator=0 closed
marker pid=5 epoch=-1: UNKNOWN_SERVER_ERROR
txn pid=6 epoch=32767: NONE
marker pid=6 epoch=32767: NONE
producer pid=6: epoch=32767 sequence=0 coordinator=0 closed
""".splitlines()
"""Each step, and what comes of it."""


def txn_commit(
    producer_id: int, epoch: int = 0, *, group: str = "g", partition: int = 0, offset: int = 0
) -> TxnOffsetCommitRequest:
    """A commit for one partition of ``t`` in a producer's transaction."""
    partitions = [TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
    return TxnOffsetCommitRequest(
        transactional_id=f"x{producer_id}",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )


def marker(
    producer_id: int, *places: tuple[str, int], commit: bool = True, **fields: int
) -> WritableTxnMarker:
    """The end of a producer's transaction, in the groups' partition unless other places are given."""
    topics = [
        WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])
        for topic, partition in places or ((OFFSETS_TOPIC, 0),)
    ]
    return WritableTxnMarker(producer_id=producer_id, transaction_result=commit, topics=topics, **fields)


def answers(ask: Ask, base: int = 0) -> list[str]:
    """What comes of each step, offsets and times left out. ``base`` is added to each producer id."""
    steps = [line.partition(": ")[0] for line in BY_KAFKA]
    return [f"{step}: {_one(ask, step, base)}" for step in steps]


def _one(ask: Ask, step: str, base: int) -> str:
    verb, *words = step.split()
    options = dict(word.split("=") for word in words if "=" in word)
    producer_id, epoch = int(options["pid"]) + base, int(options.get("epoch", "0"))
    if verb == "txn":
        committed = ask(txn_commit(producer_id, epoch, group="markers"), 4)
        return ErrorCode(committed.topics[0].partitions[0].error_code).name
    topic, partition = options.get("topic", OFFSETS_TOPIC), int(options.get("partition", "0"))
    if verb == "producer":
        return _producer(ask, topic, partition, producer_id)
    ending = marker(
        producer_id,
        (topic, partition),
        commit="abort" not in words,
        producer_epoch=epoch,
        coordinator_epoch=int(options.get("coordinator", "0")),
        transaction_version=int(options.get("version", "0")),
    )
    (result,) = ask(WriteTxnMarkersRequest(markers=[ending]), int(options.get("v", "2"))).markers
    assert result.producer_id == producer_id
    return ErrorCode(result.topics[0].partitions[0].error_code).name


def _producer(ask: Ask, topic: str, partition: int, producer_id: int) -> str:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
    producers = ask(request, 0).topics[0].partitions[0].active_producers
    return " ".join(
        f"epoch={p.producer_epoch} sequence={p.last_sequence} coordinator={p.coordinator_epoch} "
        f"{'open' if p.current_txn_start_offset >= 0 else 'closed'}"
        for p in producers
        if p.producer_id == producer_id
    )
