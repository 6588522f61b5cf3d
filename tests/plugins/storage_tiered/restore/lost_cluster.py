"""A broker whose disk goes, and what an operator does then: format, restore, start."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from typer.testing import CliRunner, Result

from blumfeld.cli.app import app as blumfeld
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.testing import EmbeddedBroker
from blumfeld_storage_tiered.commands import app as tiered

CONFIG = {
    "remote.log.manager.task.interval.ms": 100,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 100,
}
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
METADATA_TOPIC = {"num_partitions": 3, "replication_factor": 1, "min_isr": 1}
PATIENCE_S = 60


class LostCluster:
    """One node, its directory and its store."""

    def __init__(self, folder: Path, store: Mapping[str, Any]) -> None:
        self.data_dir = folder / "data"
        self.manifest = folder / "node.toml"
        self.options: dict[str, Any] = {"metadata_topic": METADATA_TOPIC, **store}
        self.configure()

    def configure(self, **options: Any) -> None:
        """Write the manifest, with further options."""
        self.options |= options
        self.manifest.write_text(
            f'[node]\ndata_dir = "{self.data_dir}"\n'
            f'[storage]\nplugin = "storage_tiered"\noptions = {_inline(self.options)}\n'
        )

    def broker(self) -> EmbeddedBroker:
        """The node, which has started when it is entered."""
        return EmbeddedBroker(
            storage="storage_tiered", storage_options=self.options, config=CONFIG, data_dir=str(self.data_dir)
        )

    def await_description(self) -> None:
        """Wait until a topic is described in the store, a folder."""
        deadline = time.monotonic() + PATIENCE_S
        while not list(self.manifest.parent.glob("store/blumfeld-topics/*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def lose_disk(self) -> None:
        """Nothing is left of the node."""
        shutil.rmtree(self.data_dir)

    def format(self) -> None:
        """Run ``blumfeld format`` as the restore asks for it."""
        result = self.tiered("restore")
        assert result.exit_code == 2, result.output
        cluster_id = result.stderr.split()[-1]
        result = CliRunner().invoke(blumfeld, ["format", str(self.manifest), "--cluster-id", cluster_id])
        assert result.exit_code == 0, result.output

    def tiered(self, verb: str, *arguments: str) -> Result:
        """Run ``blumfeld tiered``."""
        return CliRunner().invoke(tiered, [verb, str(self.manifest), *arguments], obj=RealFiles())

    def restore(self) -> str:
        """Format and restore. Returns what the command says."""
        self.format()
        result = self.tiered("restore")
        assert result.exit_code == 0, result.output
        return result.stdout


def _inline(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_inline(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


def create(broker: EmbeddedBroker, topic: str, partitions: int = 1, **config: str) -> None:
    """Make a tiered topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    wanted = {**TIERED, **{name.replace("_", "."): value for name, value in config.items()}}
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=wanted)]).values()
    made.result(20)


def produce(
    broker: EmbeddedBroker, topic: str, values: list[bytes], partition: int = 0, **settings: Any
) -> None:
    """Produce values one by one, each a batch of its own."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    for value in values:
        producer.produce(topic, value, partition=partition)
        assert producer.flush(20) == 0


def consume(
    broker: EmbeddedBroker, topic: str, start: int, end: int, partition: int = 0, **settings: Any
) -> list[tuple[int, str]]:
    """The records from ``start`` to ``end``: offsets, and checksums of the values. It ends at the end of the partition,
    too, where no record of this isolation level comes before ``end``."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "restored",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, partition, start)])
    records: list[tuple[int, str]] = []
    while not records or records[-1][0] < end - 1:
        message = consumer.poll(30)
        assert message is not None, records[-1:]
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        records.append((message.offset() or 0, checksum(message.value() or b"")))
    consumer.close()
    return records


def checksum(value: bytes) -> str:
    """The checksum of a value."""
    return hashlib.sha256(value).hexdigest()


def offsets(broker: EmbeddedBroker, topic: str, partition: int = 0) -> tuple[int, int]:
    """Where the log begins and ends."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "restored"})
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
    consumer.close()
    return low, high


def await_local_segments(folder: Path, count: int = 1) -> int:
    """Wait until a log has no more local segments than so many. Returns the offset at which the last one begins."""
    deadline = time.monotonic() + PATIENCE_S
    while len(there := sorted(folder.glob("*.log"))) > count:
        assert time.monotonic() < deadline, there
        time.sleep(0.02)
    return int(there[-1].stem)
