"""Kafka's own tools and consumers on a history that only the store has, beside the same on Kafka's tiered storage.

Transactions are committed and aborted in turn. Then every sealed segment leaves the disk, and each tool is run against
this build and against Kafka 4.3.1 with LocalTieredStorage.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld.testing.process import NodeProcess, free_port
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from campaigns.clients.load.log_contents import read_partition
from campaigns.raw_connection import RawConnection
from campaigns.tiered.nodes import TieredNodes
from campaigns.waits import await_true

TOPIC = "history"
TRANSACTIONS, RECORDS, RECORD_BYTES = 60, 10, 8_000
CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "1000",
}
JVM_S = 120
SETTLE_S = 120.0
EARLIEST_LOCAL = -4
DELETED_TO = 205
"""A record in the middle of a segment: DeleteRecords moves the log start there."""
TOOLS = "org.apache.kafka.tools."
GET_OFFSETS = [TOOLS + "GetOffsetShell", "--bootstrap-server", "{server}", "--topic", TOPIC, "--time"]
COMMANDS: dict[str, list[str]] = {
    **{f"kafka-get-offsets --time {at}": [*GET_OFFSETS, at] for at in ("-1", "-2", "-3", "-4", "-5", "-6")},
    "kafka-console-consumer --isolation-level read_committed": [
        TOOLS + "consumer.ConsoleConsumer", "--bootstrap-server", "{server}", "--topic", TOPIC, "--partition", "0",
        "--offset", "0", "--isolation-level", "read_committed", "--timeout-ms", "60000",
        "--formatter-property", "print.offset=true", "--max-messages", str(RECORDS * TRANSACTIONS // 3 * 2),
    ],
    "kafka-configs --alter": [
        TOOLS + "ConfigCommand", "--bootstrap-server", "{server}", "--alter", "--entity-type",
        "topics", "--entity-name", TOPIC, "--add-config", "local.retention.ms=3600000",
    ],
    "kafka-configs --describe": [
        TOOLS + "ConfigCommand", "--bootstrap-server", "{server}", "--describe", "--entity-type", "topics",
        "--entity-name", TOPIC,
    ],
    "kafka-log-dirs": [
        TOOLS + "LogDirsCommand", "--bootstrap-server", "{server}", "--describe", "--topic-list", TOPIC,
    ],
    "kafka-delete-records": [
        TOOLS + "DeleteRecordsCommand", "--bootstrap-server", "{server}", "--offset-json-file", "{offsets}",
    ],
    "kafka-get-offsets --time -2, after kafka-delete-records": [*GET_OFFSETS, "-2"],
    "kafka-get-offsets --time -4, after kafka-delete-records": [*GET_OFFSETS, "-4"],
    "kafka-dump-log --remote-log-metadata-decoder": [
        TOOLS + "DumpLogSegments", "--remote-log-metadata-decoder", "--files", "{metadata}",
    ],
}  # fmt: skip
"""Each command line of Kafka's tools, in order."""


class ToolReport(msgspec.Struct, kw_only=True):
    """All commands."""

    same: list[str]
    """Commands with the same output on both sides, but for ids, times and places."""
    differs: dict[str, tuple[str, str]]
    """Command → what this build's broker made it say, and what Kafka's did."""
    records_read: int
    """Committed records that librdkafka read from offset 0 of this build."""
    remote_records: int
    wrong: list[str]


class Side(msgspec.Struct):
    """One server: what was read of it, and what the tools said."""

    local_start: int
    committed: list[tuple[int, str]]
    said: dict[str, str]


def expected_records() -> list[tuple[int, str]]:
    """Return (offset, number) of each record that was committed."""
    return [
        (nth * (RECORDS + 1) + at, str(nth * RECORDS + at))
        for nth in range(TRANSACTIONS)
        if _is_committed(nth)
        for at in range(RECORDS)
    ]


def _is_committed(nth: int) -> bool:
    return nth % 3 != 1


def compare(folder: Path, peer: Path) -> ToolReport:
    """Run everything on both servers.

    :raises NodeError: one doesn't start
    """
    nodes = TieredNodes(folder / "blumfeld", 1)
    nodes.cluster.start()
    try:
        data = nodes.cluster.nodes[0].folder / "data"
        ours = _run_all(nodes.cluster.addresses, data, folder, peer)
    finally:
        nodes.cluster.stop()
    with _kafka(folder / "kafka", peer) as (address, data):
        theirs = _run_all(address, data, folder, peer)
    report = ToolReport(
        same=[],
        differs={},
        records_read=len(ours.committed),
        remote_records=ours.local_start,
        wrong=[],
    )
    expected = expected_records()
    for name, side in (("this build", ours), ("Kafka", theirs)):
        if side.committed != expected:
            report.wrong.append(
                f"{name}: librdkafka read {len(side.committed)} committed records, not {len(expected)}"
            )
    for command, said in ours.said.items():
        if said == theirs.said[command]:
            report.same.append(command)
        else:
            report.differs[command] = (said[:4000], theirs.said[command][:4000])
    return report


def _run_all(address: str, data: Path, folder: Path, peer: Path) -> Side:
    _write(address)
    local_start = 0

    def is_settled() -> bool:
        nonlocal local_start
        before, local_start = local_start, _local_start(address)
        time.sleep(2)
        return before == local_start > DELETED_TO

    if not await_true(is_settled, SETTLE_S, 0.5):
        raise TimeoutError(f"{address}: segments don't leave the disk: its log begins at {local_start} there")
    committed = [
        (message.offset() or 0, (message.value() or b"").split()[0].decode())
        for message in read_partition(address, TOPIC, 0, isolation="read_committed")
    ]
    offsets = folder / "offsets.json"
    partition = {"topic": TOPIC, "partition": 0, "offset": DELETED_TO}
    offsets.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    said = {}
    for command, words in COMMANDS.items():
        if "delete-records" in command and "time" in command:
            time.sleep(1)
        files = ",".join(
            str(path) for path in sorted(data.glob("__remote_log_metadata-*/*.log")) if path.stat().st_size
        )
        filled = [
            word.format(server=address, offsets=offsets, metadata=files) if "{" in word else word
            for word in words
        ]
        ended = subprocess.run(
            [str(peer.resolve()), "tool", *filled], capture_output=True, text=True, check=False, timeout=JVM_S
        )
        said[command] = normal(ended.stdout + ended.stderr)
    return Side(local_start, committed, said)


def _write(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(60)
    settings = {"bootstrap.servers": address, "transactional.id": "history", "linger.ms": 50, "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    for nth in range(TRANSACTIONS):
        producer.begin_transaction()
        for at in range(RECORDS):
            number = nth * RECORDS + at
            producer.produce(TOPIC, b"%d %0*d" % (number, RECORD_BYTES, number), partition=0)
        producer.flush(60)
        (producer.commit_transaction if _is_committed(nth) else producer.abort_transaction)(60)


def _local_start(address: str) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST_LOCAL)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])
    with RawConnection(address) as connection:
        answer = connection.ask(request, 8, ListOffsetsResponse)
    return answer.topics[0].partitions[0].offset


@contextmanager
def _kafka(folder: Path, peer: Path) -> Iterator[tuple[str, Path]]:
    port = free_port(adjacent=1)
    folder.mkdir(parents=True)
    command = ["env", "KAFKA_PEER_TIERED=1", str(peer.resolve()), "start", str(folder), str(port)]
    process = NodeProcess("kafka", command, folder / "kafka.log", ("127.0.0.1", port), start_timeout_s=120)
    try:
        process.start()
        yield process.address, folder / "data"
    finally:
        process.kill()


NORMALS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"127\.0\.0\.1:\d+", "SERVER"),
    (r"/\S*/(data|__remote_log_metadata-\d+)", r"PLACE/\1"),
    (r"(?<=[=:])(?![A-Z_]+[,}])[A-Za-z0-9_-]{22}(?=[:,}])", "ID"),
    (r"^baseOffset: .*\n|^Dumping .*\n", ""),
    (r"customMetadata=Optional(\[.*?\}\]|\.empty)", "FACT"),
    (r"(event|max)TimestampMs=\d+|CreateTime: \d+|crc: \d+|valueSize: \d+|sequence: -?\d+", "FACT"),
    (r'"size":\d+', '"size":N'),
    (r"^SLF4J.*\n|^WARNING.*\n|^OpenJDK.*\n", ""),
)
"""Patterns of what differs between any two servers → the text in its place. Kafka writes its metadata as an idempotent
producer, and without ``customMetadata``. So the batches of ``__remote_log_metadata`` differ; their records don't."""


def normal(said: str) -> str:
    """Return what a tool said without ids, times and places, and without the digits of long values."""
    for pattern, stands in NORMALS:
        said = re.sub(pattern, stands, said, flags=re.MULTILINE)
    return re.sub(r"0{40,}\d*", "0…", said).strip()
