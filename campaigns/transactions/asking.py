"""What the brokers say of transactions, offsets and logs. All of them are up when they are asked."""

from __future__ import annotations

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from blumfeld.client.metadata import ClusterView
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from blumfeld.wire.messages.metadata import MetadataResponse
from campaigns.cluster.nodes import Cluster
from campaigns.transactions.oracle import FATE, Seen
from campaigns.transactions.stable_offsets import NoAnswerError

PlaceEnds = dict[tuple[str, int], tuple[int, int]]
LATEST = -1
READ_S = 120.0
TOOL_S = 300.0
HANGING = "org.apache.kafka.tools.TransactionsCommand"


def ends_of(cluster: Cluster) -> PlaceEnds:
    """Return high watermark and last stable offset of every partition, as its leader says.

    :raises NoAnswerError: a partition has no leader, or its leader refuses
    :raises OSError: a broker is not there
    """
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    with cluster.brokers[0].connect() as connection:
        for topic in connection.ask(ClusterView.request(None), MetadataResponse, 8).topics:
            for one in topic.partitions:
                by_leader[one.leader_id][topic.name or ""].append(one.partition_index)
    found: PlaceEnds = {}
    for leader, topics in by_leader.items():
        if leader < 0:
            raise NoAnswerError(f"no leader: {dict(topics)}")
        high, stable = (_latest(cluster, leader, topics, isolation) for isolation in (0, 1))
        found |= {place: (offset, stable[place]) for place, offset in high.items()}
    return found


def _latest(
    cluster: Cluster, leader: int, topics: Mapping[str, list[int]], isolation: int
) -> dict[tuple[str, int], int]:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=at, timestamp=LATEST) for at in partitions],
            )
            for name, partitions in topics.items()
        ],
    )
    with cluster.node(leader).connect() as connection:
        answer = connection.ask(request, ListOffsetsResponse, 5)
    found = {}
    for topic in answer.topics:
        for one in topic.partitions:
            if one.error_code:
                raise NoAnswerError(f"{topic.name}-{one.partition_index}: {ErrorCode(one.error_code).name}")
            found[topic.name, one.partition_index] = one.offset
    return found


def transactions_of(cluster: Cluster) -> list[tuple[str, str]]:
    """Return transactional id and state of every transaction, as its coordinator lists it.

    :raises NoAnswerError: a broker refuses
    :raises OSError: a broker is not there
    """
    found = []
    for node in cluster.brokers:
        with node.connect() as connection:
            answer = connection.ask(ListTransactionsRequest(), ListTransactionsResponse, 0)
        if answer.error_code:
            raise NoAnswerError(f"node {node.place.id}: {ErrorCode(answer.error_code).name}")
        found += [(one.transactional_id, one.transaction_state) for one in answer.transaction_states]
    return found


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[list[Seen]]:
    """Return every record of a topic as librdkafka's consumer sees it, by partition.

    :raises NoAnswerError: not all ends were reached in time
    """
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"transactions-{isolation}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
    found: list[list[Seen]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + READ_S
    try:
        while len(ended) < partitions:
            if time.monotonic() > deadline:
                raise NoAnswerError(f"{topic} was read to the end only in partitions {sorted(ended)}")
            for one in reader.consume(1000, timeout=0.5):
                error, at = one.error(), one.partition()
                assert at is not None
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(at)
                    continue
                headers = dict(one.headers() or [])
                found[at].append(
                    Seen(one.offset() or 0, (one.key() or b"", one.value() or b""), FATE in headers)
                )
    finally:
        reader.close()
    return found


def hanging(peer: Path, bootstrap: str, node_id: int) -> list[str]:
    """Return what Kafka's ``kafka-transactions find-hanging`` finds at a broker: a line for each transaction.

    No transaction is old enough for its default of 15 minutes, so it looks for all that are open (0 minutes).

    :raises NoAnswerError: the tool failed
    """
    command = [str(peer.resolve()), "tool", HANGING, "--bootstrap-server", bootstrap, "find-hanging"]
    command += ["--broker-id", str(node_id), "--max-transaction-timeout", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoAnswerError(f"find-hanging was not done after {TOOL_S:.0f} s") from error
    if done.returncode:
        raise NoAnswerError(f"find-hanging: {done.stderr[-500:]}")
    return hanging_rows(done.stdout)


def hanging_rows(printed: str) -> list[str]:
    """Return the rows below the head of the tool's table.

    :raises NoAnswerError: there is no table
    """
    lines = [line for line in printed.splitlines() if line.strip()]
    heads = [at for at, line in enumerate(lines) if re.match(r"Topic\s+Partition\s+ProducerId", line)]
    if not heads:
        raise NoAnswerError(f"find-hanging printed no table: {printed[-300:]}")
    return lines[heads[0] + 1 :]
