"""The state of transactions, offsets and logs, as the brokers say. All of them are up when they are asked."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from blumfeld_kit.cluster import Cluster
from campaigns.clients.load.log_contents import read_partition
from campaigns.clients.load.producers import LIBRDKAFKA
from campaigns.transactions.oracle import FATE, Seen
from campaigns.waits import NoAnswerError

PlaceEnds = dict[tuple[str, int], tuple[int, int]]
ENDS_S = 30.0
TOOL_S = 300.0
HANGING = "org.apache.kafka.tools.TransactionsCommand"


def ends_of(bootstrap: str) -> PlaceEnds:
    """Return high watermark and last stable offset of every partition of all topics, as its leader says.

    :raises NoAnswerError: a partition has no leader, or its leader refuses
    """
    admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": bootstrap})
    try:
        topics = admin.list_topics(timeout=ENDS_S).topics
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {
            TopicPartition(name, at): latest for name, topic in topics.items() for at in topic.partitions
        }
        high, stable = (
            {
                (place.topic, place.partition): answer.result(ENDS_S).offset
                for place, answer in admin.list_offsets(wanted, isolation_level=level).items()
            }
            for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        )
    except KafkaException as error:
        raise NoAnswerError(f"the ends of the partitions: {error}") from error
    return {place: (offset, stable[place]) for place, offset in high.items()}


def transactions_of(cluster: Cluster) -> list[tuple[str, str]]:
    """Return transactional id and state of every transaction, as its coordinator lists it.

    :raises NoAnswerError: a broker refuses
    :raises OSError: a broker is not there
    """
    pairs = []
    for node in cluster.brokers:
        with node.connect() as connection:
            answer = connection.ask(ListTransactionsRequest(), ListTransactionsResponse, 0)
        if answer.error_code:
            raise NoAnswerError(f"node {node.place.id}: {ErrorCode(answer.error_code).name}")
        pairs += [
            (transaction.transactional_id, transaction.transaction_state)
            for transaction in answer.transaction_states
        ]
    return pairs


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str) -> list[list[Seen]]:
    """Return every record of a topic as librdkafka's consumer sees it, by partition.

    :raises UnreadableError: not all ends were reached in time
    """
    return [
        [
            Seen(
                record.offset() or 0,
                (record.key() or b"", record.value() or b""),
                FATE in dict(record.headers() or []),
            )
            for record in read_partition(bootstrap, topic, at, isolation)
        ]
        for at in range(partitions)
    ]


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
