"""A cluster whose disk is gone is restored from its store: a real broker, and a real client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer, TopicPartition
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

COMMITTED: dict[str, Any] = {"isolation.level": "read_committed"}
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
        delete_records(broker, end + 1)
        wait_until(lambda: 0 < len(list(tmp_path.glob("store/ticks-0-*/*.manifest"))) < segments)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
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


def test_a_cluster_that_lost_its_disk_twice_has_all_that_was_copied(lost: LostCluster) -> None:
    """With a leader epoch for each start, and with a log start that DeleteRecords has moved into a segment."""
    records: list[bytes] = []
    start = 3
    for life in range(3):
        if life:
            lost.lose_disk()
            lost.restore()
        for restart in range(2):
            values = [b"%d %d %d:" % (life, restart, number) + bytes(100_000) for number in range(12)]
            with lost.broker() as broker:
                if not records:
                    create(broker, "ticks", segment_bytes=str(1 << 20))
                assert offsets(broker, "ticks")[1] == len(records)
                produce(broker, "ticks", values)
                records += values
                if len(records) == len(values):
                    delete_records(broker, start)
                end = await_local_segments(lost.data_dir / "ticks-0")
                found = consume(broker, "ticks", start, len(records))
                assert found == [(n, checksum(records[n])) for n in range(start, len(records))]
                assert offsets(broker, "ticks")[0] == start
        del records[end:]


def delete_records(broker: EmbeddedBroker, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition("ticks", 0, before_offset)]).values()
    assert deleted.result(20).low_watermark == before_offset


@pytest.mark.parametrize("count", [11, 12])
def test_transactions_that_ended_in_copied_segments_are_as_they_were_and_one_without_its_marker_is_aborted(
    lost: LostCluster, count: int
) -> None:
    with lost.broker() as broker:
        create(broker, "ticks", segment_bytes=str(1 << 20))
        kept = transactions(broker, count)
        end = await_local_segments(lost.data_dir / "ticks-0")
        before = consume(broker, "ticks", 0, end, **COMMITTED)
    lost.lose_disk()
    said = lost.restore()
    open_ = [ended for ended in kept if ended[0][0] < end <= ended[-1][0] + 1]
    assert ("open transaction: ticks-0-" in said) or not open_
    cut = {offset for ended in open_ for offset, _ in ended}
    with lost.broker() as broker:
        found = consume(broker, "ticks", 0, end, **COMMITTED)
        assert found == [record for record in before if record[0] < end and record[0] not in cut]
        again = [record for ended in transactions(broker, 4) for record in ended]
        found = consume(broker, "ticks", end, again[-1][0] + 1, **COMMITTED)
        assert found == again


def transactions(broker: EmbeddedBroker, count: int) -> list[list[tuple[int, str]]]:
    """Write transactions, every other one aborted. Returns offsets and checksums of the committed ones' records."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(20)
    kept: list[list[tuple[int, str]]] = []
    for number in range(count):
        delivered: list[tuple[int, str]] = []

        def told(_: object, message: Message, into: list[tuple[int, str]] = delivered) -> None:
            into.append((message.offset() or 0, checksum(message.value() or b"")))

        producer.begin_transaction()
        for nth in range(3):
            producer.produce("ticks", b"%d %d" % (number, nth) + bytes(60_000), partition=0, on_delivery=told)
            producer.flush(20)
        if number % 2:
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            kept.append(delivered)
    return kept


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


def test_a_log_with_a_hole_begins_behind_it_and_no_sweep_deletes_what_is_before(
    lost: LostCluster, tmp_path: Path
) -> None:
    lost.configure(sweep={"interval_ms": 1000, "orphan_grace_ms": 1000, "copy_grace_ms": 1000})
    with lost.broker() as broker:
        create(broker, "ticks", segment_bytes=str(1 << 20))
        produce(broker, "ticks", [b"%d:" % number + bytes(100_000) for number in range(45)])
        end = await_local_segments(lost.data_dir / "ticks-0")
    lost.lose_disk()
    segments = sorted(tmp_path.glob("store/ticks-0-*/*.log"))
    assert len(segments) >= 3
    for path in segments[1].parent.glob(f"{segments[1].stem}.*"):
        path.unlink()
    start = int(segments[2].name[:20])
    lost.format()
    refused = lost.tiered("restore")
    assert (refused.exit_code, "hole: ticks-0-" in refused.stdout) == (1, True)
    assert "nothing was written" in refused.stderr
    accepted = lost.tiered("restore", "--accept-losses")
    assert accepted.exit_code == 0, accepted.output
    before = {path for path in tmp_path.glob("store/ticks-0-*/*") if path.name.startswith(segments[0].stem)}
    with lost.broker() as broker:
        assert offsets(broker, "ticks") == (start, end)
        assert [offset for offset, _ in consume(broker, "ticks", start, end)] == list(range(start, end))
        wait_until(lambda: broker.call(lambda: listings(broker)) >= 3)
    assert len(before) == 6
    assert all(path.exists() for path in before)


def listings(broker: EmbeddedBroker) -> int:
    """How often the node has looked for orphans."""
    storage: Any = broker.node.composition.storage
    return int(storage._tiering.store.requests["list"])
