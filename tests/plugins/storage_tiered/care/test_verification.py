"""Every kind of damage in a store is found, and named by the object's key."""

from __future__ import annotations

import pytest

from blumfeld_kit.fakes.object_store import SimulatedStore
from blumfeld_storage_tiered.care.verification import (
    GRACE_MS,
    ORPHANED,
    ROTTEN,
    Finding,
    StoreVerification,
)
from blumfeld_storage_tiered.catalog.segment import RemoteSegment
from blumfeld_storage_tiered.objects.names import SegmentFile, SegmentName, object_key
from blumfeld_storage_tiered.objects.segments import SegmentObjects
from blumfeld_storage_tiered.objects.topics import TopicObjects, topic_key
from tests.plugins.storage_tiered.tiered_cluster import PARTITION, TieredCluster


@pytest.fixture
def cluster() -> TieredCluster:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    return cluster


def records(cluster: TieredCluster) -> dict[bytes, RemoteSegment]:
    return {segment.segment_id: segment for segment in cluster.leader.metadata.catalog(PARTITION)}


def check(
    cluster: TieredCluster, topic: str | None = None, *, with_records: bool = True
) -> tuple[StoreVerification, list[Finding]]:
    runtime = cluster.leader.runtime
    store = SimulatedStore(runtime, cluster.bucket)
    known = records(cluster) if with_records else None
    verification = StoreVerification(
        SegmentObjects(runtime, store),
        TopicObjects(store),
        runtime.now_ms(),
        known,
        topic,
        topic_ids={topic.topic_id for topic in cluster.topics.values()} if with_records else None,
    )

    async def findings() -> list[Finding]:
        return [finding async for finding in verification.findings()]

    return verification, runtime.run(findings())


def found(cluster: TieredCluster, *, with_records: bool = True) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in check(cluster, with_records=with_records)[1]]


@pytest.mark.parametrize("with_records", [True, False])
def test_a_whole_store_has_no_findings_and_every_byte_was_read(
    cluster: TieredCluster, with_records: bool
) -> None:
    verification, findings = check(cluster, with_records=with_records)
    assert findings == []
    segments = records(cluster).values()
    assert verification.checked.segments == len(segments)
    assert verification.checked.size_bytes == sum(segment.size_bytes for segment in segments)


@pytest.mark.parametrize("with_records", [True, False])
@pytest.mark.parametrize("kind", list(SegmentFile))
def test_one_bit_of_any_file_is_found(cluster: TieredCluster, kind: SegmentFile, with_records: bool) -> None:
    segment = list(records(cluster).values())[1]
    key = object_key(segment, kind.value)
    if key not in cluster.segment_keys():
        return  # a segment without transactions has no index of them
    cluster.bucket.rot(key, len(cluster.bucket.read(key)) // 2)
    assert found(cluster, with_records=with_records) == [("rotten", key)]


@pytest.mark.parametrize("suffix", ["log", "timeindex", "manifest"])
def test_a_lost_object_is_missing(cluster: TieredCluster, suffix: str) -> None:
    key = object_key(list(records(cluster).values())[1], suffix)
    cluster.bucket.lose(key)
    assert found(cluster) == [("missing", key)]


def test_a_lost_segment_is_missing_by_the_record_and_by_its_offsets(cluster: TieredCluster) -> None:
    lost = list(records(cluster).values())[1]
    for key in cluster.segment_keys():
        if key.startswith(object_key(lost, "")):
            cluster.bucket.lose(key)
    assert ("missing", object_key(lost, "manifest")) in found(cluster)
    (finding,) = check(cluster, with_records=False)[1]
    assert finding.kind == "missing"
    assert finding.written == f"the records {lost.start_offset} to {lost.end_offset}"


@pytest.mark.parametrize("with_records", [True, False])
def test_an_object_that_nothing_speaks_of_is_an_orphan_once_it_is_old(
    cluster: TieredCluster, with_records: bool
) -> None:
    key = object_key(SegmentName(PARTITION, 777, bytes(range(16))), "log")
    cluster.bucket.put(key, b"left", cluster.leader.runtime)
    verification, findings = check(cluster, with_records=with_records)
    assert (findings, verification.checked.under_way) == ([], 1)
    before = cluster.bucket.faults.clock_skew_ms
    cluster.bucket.faults.clock_skew_ms = -2 * GRACE_MS
    cluster.bucket.put(key, b"left", cluster.leader.runtime)
    cluster.bucket.faults.clock_skew_ms = before
    assert found(cluster, with_records=with_records) == [("orphaned", key)]


def test_a_record_that_says_something_else_than_the_manifest_is_told(cluster: TieredCluster) -> None:
    segment = list(records(cluster).values())[1]
    key = object_key(segment, "manifest")
    cluster.bucket.replace(
        key, cluster.bucket.read(key).replace(b'"max_timestamp_ms":', b'"max_timestamp_ms":1')
    )
    assert found(cluster) == [("rotten", key)]


def test_one_topic_can_be_checked_alone(cluster: TieredCluster) -> None:
    key = object_key(next(iter(records(cluster).values())), "log")
    cluster.bucket.rot(key, 0)
    assert len(check(cluster, "ticks")[1]) == 1
    assert check(cluster, "tick")[1] == []


@pytest.mark.parametrize("with_records", [True, False])
def test_a_description_that_was_changed_is_rotten(cluster: TieredCluster, with_records: bool) -> None:
    key = topic_key(PARTITION.topic, PARTITION.topic_id)
    cluster.bucket.put(key, b"{}", cluster.leader.runtime)
    assert found(cluster, with_records=with_records) == [(ROTTEN, key)]


def test_a_description_of_a_topic_that_is_gone_is_an_orphan_once_it_is_old(cluster: TieredCluster) -> None:
    key = topic_key(PARTITION.topic, PARTITION.topic_id)
    cluster.is_topic_gone = True
    assert found(cluster) == []
    cluster.advance(GRACE_MS)
    assert found(cluster) == [(ORPHANED, key)]
