"""Three nodes whose disks are gone, restored by a command that is killed again and again."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld.testing.process import free_port
from blumfeld_storage_tiered.restore.under_way import UNDER_WAY_FILE
from tests.plugins.storage_tiered.restore.lost_cluster import checksum

pytestmark = pytest.mark.slow

BLUMFELD = [sys.executable, "-m", "blumfeld.cli.main"]
MANIFEST = """
nodes = 3
[node]
data_dir = "{folder}/data"
[network]
listeners = [{{ name = "PLAINTEXT", bind = "127.0.0.1:{port}", inter_broker = true }}]
[storage]
plugin = "storage_tiered"
[storage.options]
store = "file://{folder}/store"
metadata_topic = {{ num_partitions = 4 }}
[config]
"remote.log.manager.task.interval.ms" = 200
"log.retention.check.interval.ms" = 300
"log.initial.task.delay.ms" = 100
"""
PARTITIONS = 4
KILLS = 8


class ThreeNodes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port(adjacent=22)  # nodes are ten ports apart, each with two
        self.manifest = folder / "node.toml"
        self.manifest.write_text(MANIFEST.format(folder=folder, port=self.port))
        self.servers: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{self.port}"}

    @contextmanager
    def running(self) -> Iterator[None]:
        command = [*BLUMFELD, "run", str(self.manifest)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if "all 3 nodes serve" in line:
                    break
            drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)
                drain.wait(10)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*BLUMFELD, *arguments], capture_output=True, text=True, check=False, timeout=120
        )

    def restore_with_kills(self) -> None:
        """Kill the command at some moments, then let it end."""
        chance = random.Random(5)
        command = [*BLUMFELD, "tiered", "restore", str(self.manifest)]
        for nth in range(KILLS):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            begun = time.monotonic()
            while not (self.folder / f"data/node-1/{UNDER_WAY_FILE}").exists() and process.poll() is None:
                time.sleep(0.005)
            time.sleep(chance.random() * 0.3)
            process.kill()
            process.wait()
            assert time.monotonic() - begun < 60
            marked = [
                node for node in (1, 2, 3) if (self.folder / f"data/node-{node}/{UNDER_WAY_FILE}").exists()
            ]
            if len(marked) == 3 and nth in (0, KILLS - 1):
                refused = self.run("run", str(self.manifest))
                assert (refused.returncode, "was interrupted" in refused.stdout + refused.stderr) == (
                    1,
                    True,
                ), refused
        ended = self.run("tiered", "restore", str(self.manifest))
        assert ended.returncode == 0, ended.stderr


def produce(nodes: ThreeNodes, values: list[bytes]) -> None:
    producer = Producer({**nodes.servers, "enable.idempotence": True, "acks": "all"})
    for nth, value in enumerate(values):
        producer.produce("ticks", value, partition=nth % PARTITIONS)
        assert producer.flush(30) == 0


def read(nodes: ThreeNodes, partition: int) -> list[tuple[int, str]]:
    consumer = Consumer({**nodes.servers, "group.id": "restored", "enable.auto.commit": False})
    low, high = consumer.get_watermark_offsets(TopicPartition("ticks", partition), timeout=30)
    consumer.assign([TopicPartition("ticks", partition, low)])
    records: list[tuple[int, str]] = []
    while len(records) < high - low:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        records.append((message.offset() or 0, checksum(message.value() or b"")))
    consumer.close()
    return records


def test_three_nodes_come_back_from_their_store(tmp_path: Path) -> None:
    nodes = ThreeNodes(tmp_path)
    values = [b"%d:" % number + bytes(100_000) for number in range(25 * PARTITIONS)]
    with nodes.running():
        config = {"remote.storage.enable": "true", "segment.bytes": str(1 << 20), "min.insync.replicas": "2"}
        admin = AdminClient(nodes.servers)
        (made,) = admin.create_topics([NewTopic("ticks", PARTITIONS, 3, config=config)]).values()
        made.result(30)
        produce(nodes, values)
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("store/ticks-*/*.manifest"))) < 2 * PARTITIONS:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    shutil.rmtree(tmp_path / "data")
    refused = nodes.run("tiered", "restore", str(nodes.manifest))
    formatted = nodes.run("format", str(nodes.manifest), "--cluster-id", refused.stderr.split()[-1])
    assert formatted.returncode == 0, formatted.stderr
    nodes.restore_with_kills()
    with nodes.running():
        ends = [len(read(nodes, partition)) for partition in range(PARTITIONS)]
        assert min(ends) > 0
        produce(nodes, values)
        for partition, end in enumerate(ends):
            own = [checksum(value) for value in values[partition::PARTITIONS]]
            assert read(nodes, partition) == list(enumerate([*own[:end], *own]))
        verified = nodes.run(
            "tiered", "verify", str(nodes.manifest), "--bootstrap", f"127.0.0.1:{nodes.port}"
        )
        assert verified.returncode == 0, verified.stdout
