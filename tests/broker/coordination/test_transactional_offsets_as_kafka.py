"""A directory in which real Kafka committed offsets in transactions: ours says of each what Kafka said. Slow: Java."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.api import response_class
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from blumfeld.wire.schema import Message
from tests.broker.coordination.transactional_offsets import PARTITIONS, work
from tests.kafka_peer import kafka_on, peer_script, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOOLS = "org.apache.kafka.tools."
SETTINGS = ("offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2")
ANSWER_S = 60
"""Longest wait for one answer. Other processes may hold both cores for half a minute."""
Offsets = dict[tuple[str, str, int], int]


def offsets_told(peer: str, address: str) -> Offsets:
    """(group, topic, partition) → offset, as Kafka's tool says of a broker."""
    said = tool(
        peer, TOOLS + "consumer.group.ConsumerGroupCommand", "--bootstrap-server", address,
        "--describe", "--all-groups", "--offsets",
    )  # fmt: skip
    rows = re.findall(r"^(\S+)\s+(in|out)\s+(\d+)\s+(\d+)\s", said, flags=re.M)
    return {(group, topic, int(partition)): int(offset) for group, topic, partition, offset in rows}


def ask(address: str, request: Message, version: int, client_id: str = "test") -> Any:
    """The response to one request."""
    assert request.meta.key is not None
    host, _, port = address.rpartition(":")
    with BlockingConnection(host, int(port), client_id, ANSWER_S) as connection:
        return connection.ask(request, response_class(request.meta.key), version)


def stable(address: str, group: str) -> dict[int, int | ErrorCode]:
    """Partition of ``in`` → offset, or why there is none: OffsetFetch with ``requireStable``."""
    topics = [OffsetFetchRequestTopic(name="in", partition_indexes=list(range(PARTITIONS)))]
    response = ask(address, OffsetFetchRequest(group_id=group, topics=topics, require_stable=True), 7)
    assert response.error_code == 0, ErrorCode(response.error_code)
    return {
        p.partition_index: ErrorCode(p.error_code) if p.error_code else p.committed_offset
        for topic in response.topics
        for p in topic.partitions
    }


def open_transactions(peer: str, address: str) -> list[tuple[str, int, int]]:
    """(topic, partition, start offset) of every open transaction, by DescribeProducers."""
    open_ones = []
    for topic, partitions in (("out", PARTITIONS), ("__consumer_offsets", 2)):
        for partition in range(partitions):
            said = transactions(peer, address, "describe-producers", topic, partition)
            rows = [line.split() for line in said.splitlines() if re.match(r"\s*\d+\s", line)]
            open_ones += [(topic, partition, int(row[-1])) for row in rows if row[-1].isdigit()]
    return open_ones


def transactions(peer: str, address: str, verb: str, topic: str, partition: int, *more: str) -> str:
    """Kafka's tool for transactions."""
    where = ("--topic", topic, "--partition", str(partition))
    return tool(peer, TOOLS + "TransactionsCommand", "--bootstrap-server", address, verb, *where, *more)


def consumed(address: str) -> int:
    """How far a reader of committed records gets in ``out``."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "x", "isolation.level": "read_committed"})
    ends = [
        consumer.get_watermark_offsets(TopicPartition("out", partition), timeout=20)
        for partition in range(PARTITIONS)
    ]
    consumer.close()
    return sum(high for _, high in (end for end in ends if end is not None))


@pytest.mark.parametrize("crash", [False, True], ids=["clean stop", "kill -9"])
def test_offsets_of_kafkas_transactions_are_ours(tmp_path: Path, crash: bool) -> None:
    """Committed ones are there, aborted ones aren't, the later record wins, and those of open transactions wait for
    their marker: which Kafka's own tool for hanging transactions writes with us. Kafka then agrees.
    """
    peer = peer_script()
    with kafka_on(peer, tmp_path, *SETTINGS, kill=crash) as address:
        held: Any = work(address)
        theirs = offsets_told(peer, address)
        groups = sorted({group for group, _, _ in theirs} | {"left-first"})
        theirs_stable = {group: stable(address, group) for group in groups}
    del held
    expected = {"aborted": 2, "overtaken": 3, "crossed": 13}
    assert {group: theirs[group, "in", 0] for group in expected} == expected, "Kafka's rule of precedence"
    assert theirs_stable["left"][2] is ErrorCode.UNSTABLE_OFFSET_COMMIT, "else this test says nothing"
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        assert offsets_told(peer, broker.address) == theirs
        assert {group: stable(broker.address, group) for group in groups} == theirs_stable
        hanging = open_transactions(peer, broker.address)
        assert {topic for topic, _, _ in hanging} == {"out", "__consumer_offsets"}
        before = consumed(broker.address)
        for topic, partition, start in hanging:
            transactions(peer, broker.address, "abort", topic, partition, "--start-offset", str(start))
        assert open_transactions(peer, broker.address) == []
        assert consumed(broker.address) > before
        ended = {group: stable(broker.address, group) for group in groups}
        assert ended == {
            **theirs_stable,
            "left": {**theirs_stable["left"], 2: 1},
            "left-first": dict.fromkeys(range(PARTITIONS), -1),
        }
        assert offsets_told(peer, broker.address) == theirs
        if crash:
            broker.kill()
            broker.start()
            assert {group: stable(broker.address, group) for group in groups} == ended
    finally:
        assert broker.stop() == 0, broker.log_path.read_text()
    (tmp_path / "kafka.log").rename(tmp_path / "kafka-first.log")
    with kafka_on(peer, tmp_path, *SETTINGS) as address:
        assert offsets_told(peer, address) == theirs
        assert {group: stable(address, group) for group in groups} == ended
