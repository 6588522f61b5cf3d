"""A cluster whose disk is gone is restored from its store: a real broker, and a real client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from blumfeld.kernel.node import StartError
from blumfeld.testing import EmbeddedBroker
from tests.plugins.storage_tiered.restore.lost_cluster import (
    LostCluster,
    await_local_segments,
    checksum,
    consume,
    create,
    offsets,
    produce,
)

VALUES = [b"%d:" % number + bytes(100_000) for number in range(25)]


@pytest.fixture
def lost(tmp_path: Path) -> LostCluster:
    return LostCluster(tmp_path, {"store": f"file://{tmp_path}/store"})


def test_every_copied_record_is_read_again_and_the_topic_lives_on(lost: LostCluster, tmp_path: Path) -> None:
    with lost.broker() as broker:
        create(broker, "ticks", 2, segment_bytes=str(1 << 20), retention_ms="999999999")
        produce(broker, "ticks", VALUES, **{"enable.idempotence": True})
        end = await_local_segments(lost.data_dir / "ticks-0")
        topic_id = broker.call(lambda: broker.node.composition.metadata.image.topics["ticks"].topic_id)
    lost.lose_disk()
    assert "ticks  " in lost.restore()
    with lost.broker() as broker:
        assert offsets(broker, "ticks") == (0, end)
        assert offsets(broker, "ticks", 1) == (0, 0)
        assert consume(broker, "ticks", 0, end) == [(n, checksum(VALUES[n])) for n in range(end)]
        assert (
            broker.call(lambda: broker.node.composition.metadata.image.topics["ticks"].topic_id) == topic_id
        )
        assert config(broker)["retention.ms"] == "999999999"
        # A new producer, whose first batch has the same sequence as that of the producer of before.
        produce(broker, "ticks", VALUES, **{"enable.idempotence": True})
        found = consume(broker, "ticks", 0, end + len(VALUES))
        assert found == [(n, checksum(value)) for n, value in enumerate([*VALUES[:end], *VALUES])]
        verified = lost.tiered("verify", "--bootstrap", broker.bootstrap_servers)
        assert verified.exit_code == 0, verified.output
        border = await_local_segments(lost.data_dir / "ticks-0")
        assert border > end
        segments = len(list(tmp_path.glob("store/ticks-0-*/*.manifest")))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        (deleted,) = admin.delete_records([TopicPartition("ticks", 0, end + 1)]).values()
        assert deleted.result(20).low_watermark == end + 1
        wait_until(lambda: 0 < len(list(tmp_path.glob("store/ticks-0-*/*.manifest"))) < segments)
        (gone,) = admin.delete_topics(["ticks"]).values()
        gone.result(20)
        wait_until(
            lambda: [p.name for p in tmp_path.glob("store/**/*") if p.is_file()] == ["blumfeld-cluster.json"]
        )


def config(broker: EmbeddedBroker) -> dict[str, str]:
    """The settings of the topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "ticks")]).values()
    return {name: entry.value for name, entry in asked.result(20).items()}


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_store_of_an_older_build_gives_a_topic_that_keeps_all(lost: LostCluster, tmp_path: Path) -> None:
    with lost.broker() as broker:
        create(broker, "ticks", segment_bytes=str(1 << 20))
        produce(broker, "ticks", VALUES)
        end = await_local_segments(lost.data_dir / "ticks-0")
    lost.lose_disk()
    for path in tmp_path.glob("store/blumfeld-topics/*"):
        path.unlink()
    assert "no description: ticks (id " in lost.restore()
    with lost.broker() as broker:
        assert offsets(broker, "ticks") == (0, end)
        settings = config(broker)
        assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")
        assert settings["remote.storage.enable"] == "true"


def test_a_directory_that_holds_something_is_refused_and_nothing_changes(lost: LostCluster) -> None:
    with lost.broker() as broker:
        create(broker, "ticks", segment_bytes=str(1 << 20))
        produce(broker, "ticks", VALUES)
        await_local_segments(lost.data_dir / "ticks-0")
    before = sorted(lost.data_dir.rglob("*"))
    refused = lost.tiered("restore")
    assert refused.exit_code == 2
    assert f"{lost.data_dir}: found " in refused.stderr
    assert "__cluster_metadata-0/00000000000000000000.log" in refused.stderr
    assert sorted(lost.data_dir.rglob("*")) == before


def test_a_dry_run_needs_no_directory_and_says_what_would_be_there(lost: LostCluster) -> None:
    with lost.broker() as broker:
        create(broker, "ticks", segment_bytes=str(1 << 20))
        produce(broker, "ticks", VALUES)
        end = await_local_segments(lost.data_dir / "ticks-0")
    lost.lose_disk()
    shown = lost.tiered("restore", "--dry-run", "--json")
    assert shown.exit_code == 0, shown.output
    topic = json.loads(shown.stdout.splitlines()[0])
    (partition,) = topic["partitions"]
    assert (topic["topic"], partition["start_offset"], partition["end_offset"]) == ("ticks", 0, end)
    assert topic["configs"]["segment.bytes"] == str(1 << 20)
    assert not lost.data_dir.exists()


def test_a_node_whose_restore_was_interrupted_does_not_start(lost: LostCluster) -> None:
    with lost.broker() as broker:
        create(broker, "ticks")
        lost.await_description()
    lost.lose_disk()
    lost.restore()
    (lost.data_dir / "restore-under-way").write_text("cluster x\n")
    with pytest.raises(StartError, match=r"was interrupted\. Run `blumfeld tiered restore` again"):
        lost.broker().start()
    again = lost.tiered("restore")
    assert again.exit_code == 0, again.output
    with lost.broker() as broker:
        assert offsets(broker, "ticks") == (0, 0)


def test_a_directory_of_another_cluster_is_refused(lost: LostCluster) -> None:
    with lost.broker() as broker:
        create(broker, "ticks")
        lost.await_description()
    lost.lose_disk()
    lost.restore()
    meta = lost.data_dir / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
    refused = lost.tiered("restore")
    assert refused.exit_code == 2
    assert "allowed: node 1 of cluster " in refused.stderr


def test_a_topic_that_the_store_does_not_have_is_named(lost: LostCluster) -> None:
    with lost.broker() as broker:
        create(broker, "ticks")
        lost.await_description()
    refused = lost.tiered("restore", "--dry-run", "--topic", "tocks")
    assert (refused.exit_code, "has no segment of tocks" in refused.stderr) == (2, True)
