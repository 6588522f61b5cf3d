"""What a restore sees in a store: whole segments, copies that were under way, and damage."""

from __future__ import annotations

import pytest

from blumfeld.log.producers.snapshot import decode_snapshot
from blumfeld_kit.fakes.object_store import SimulatedStore
from blumfeld_storage_tiered.catalog.segment import SegmentState
from blumfeld_storage_tiered.objects.names import MANIFEST, SegmentFile, object_key
from blumfeld_storage_tiered.objects.topics import topic_key
from blumfeld_storage_tiered.restore.found import FoundPartition, StoreContent, store_content
from tests.plugins.storage_tiered.tiered_cluster import NAME, PARTITION, TOPIC_ID, TieredCluster


@pytest.fixture
def cluster() -> TieredCluster:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    return cluster


def read(cluster: TieredCluster, *only: str) -> StoreContent:
    runtime = cluster.leader.runtime
    return runtime.run(store_content(runtime, SimulatedStore(runtime, cluster.bucket), "cluster", only))


def only_partition(content: StoreContent) -> FoundPartition:
    (topic,) = content.topics
    return topic.partitions[0]


def test_a_whole_store_is_found_as_its_cluster_knows_it(cluster: TieredCluster) -> None:
    content = read(cluster)
    found = only_partition(content)
    known = sorted(cluster.leader.metadata.catalog(PARTITION), key=lambda each: each.start_offset)
    assert [(s.segment_id, s.start_offset, s.end_offset, s.leader_epochs) for s in found.segments] == [
        (s.segment_id, s.start_offset, s.end_offset, s.leader_epochs) for s in known
    ]
    assert [s.custom_metadata for s in found.segments] == [s.custom_metadata for s in known]
    assert {s.state for s in found.segments} == {SegmentState.COPY_FINISHED}
    assert found.epochs == tuple(cluster.leader.epochs.entries)
    assert decode_snapshot(found.producers or b"") == []
    description = content.topics[0].description
    assert description is not None
    assert description.configs == cluster.topic_settings
    assert (content.damages, found.unfinished) == ([], [])


def test_a_segment_without_a_manifest_is_unfinished(cluster: TieredCluster) -> None:
    last = only_partition(read(cluster)).segments[-1]
    cluster.bucket.lose(object_key(last, MANIFEST))
    content = read(cluster)
    found = only_partition(content)
    assert [name.segment_id for name in found.unfinished] == [last.segment_id]
    assert found.segments[-1].end_offset < last.start_offset
    assert content.damages == []


@pytest.mark.parametrize("kind", [kind for kind in SegmentFile if kind is not SegmentFile.TRANSACTION_INDEX])
def test_a_segment_that_lacks_a_file_is_damaged(cluster: TieredCluster, kind: SegmentFile) -> None:
    first = only_partition(read(cluster)).segments[0]
    key = object_key(first, kind.value)
    cluster.bucket.lose(key)
    content = read(cluster)
    assert [(damage.key, damage.found) for damage in content.damages] == [(key, "nothing")]
    assert only_partition(content).segments[0].start_offset == first.end_offset + 1


def test_a_segment_with_a_shorter_log_is_damaged(cluster: TieredCluster) -> None:
    first = only_partition(read(cluster)).segments[0]
    key = object_key(first, SegmentFile.LOG.value)
    cluster.bucket.replace(key, cluster.bucket.read(key)[:-1])
    assert [damage.key for damage in read(cluster).damages] == [key]


@pytest.mark.parametrize("kind", [SegmentFile.LEADER_EPOCHS, SegmentFile.PRODUCER_SNAPSHOT])
def test_a_newest_segment_whose_state_has_rotted_is_damaged_and_the_one_before_counts(
    cluster: TieredCluster, kind: SegmentFile
) -> None:
    before, last = only_partition(read(cluster)).segments[-2:]
    cluster.bucket.rot(object_key(last, kind.value), 3)
    content = read(cluster)
    assert [damage.key for damage in content.damages] == [object_key(last, kind.value)]
    found = only_partition(content)
    assert found.segments[-1].segment_id == before.segment_id
    assert found.producers is not None


def test_a_description_that_has_rotted_is_damage(cluster: TieredCluster) -> None:
    key = topic_key(NAME.topic, TOPIC_ID)
    cluster.bucket.replace(key, b"{}")
    content = read(cluster)
    assert [damage.key for damage in content.damages] == [key]
    assert content.topics[0].description is None


def test_other_topics_are_not_looked_at(cluster: TieredCluster) -> None:
    assert read(cluster, "tocks").topics == []
    assert [topic.topic for topic in read(cluster, "ticks").topics] == ["ticks"]


def test_the_store_is_only_read(cluster: TieredCluster) -> None:
    cluster.bucket.trace.clear()
    read(cluster)
    assert {line.split()[2] for line in cluster.bucket.trace} <= {"get", "list"}
