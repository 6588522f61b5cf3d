"""The work for a partition that a node leads: fenced by its leader epoch, and what it finds left behind."""

from __future__ import annotations

import pytest

from blumfeld_storage_tiered.catalog.segment import SegmentState
from blumfeld_storage_tiered.catalog.sweep_settings import SweepSettings
from blumfeld_storage_tiered.objects.names import SegmentName, object_key
from blumfeld_storage_tiered.stores.checking import MARKER
from tests.plugins.storage_tiered.tiered_cluster import INTERVAL_MS, PARTITION, TieredCluster

SWEEP_INTERVAL_MS = SweepSettings().interval_ms
ORPHAN_GRACE_MS = SweepSettings().orphan_grace_ms


def test_a_leader_that_is_fenced_while_it_uploads_finishes_no_copy() -> None:
    """Its node is told later than the others: the partition itself says that the epoch has passed."""
    cluster = TieredCluster()
    cluster.write(30)
    cluster.bucket.faults.latency_ms = 1_000
    cluster.advance(INTERVAL_MS + 3_000)
    assert [change.state for change in cluster.metadata.changes] == [SegmentState.COPY_STARTED]
    cluster.leader_epoch += 1
    cluster.advance(600_000)
    assert [change.state for change in cluster.metadata.changes] == [SegmentState.COPY_STARTED]


def test_a_copy_that_was_never_finished_goes_after_its_grace() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.bucket.faults.latency_ms = 1_000
    cluster.advance(INTERVAL_MS + 20_000)
    cluster.restart(cluster.leader)
    cluster.bucket.faults.heal()
    cluster.rounds()
    catalog = cluster.leader.metadata.catalog(PARTITION)
    assert len(catalog.unfinished()) == 1
    cluster.rounds(125)
    assert not catalog.unfinished()
    assert {key.rpartition(".")[0].rpartition("-")[2] for key in cluster.segment_keys()}
    assert len(cluster.segment_keys()) % 6 == 0


def test_a_store_without_its_marker_takes_no_copy() -> None:
    """It is a folder that isn't mounted: what is put there is hidden when it is mounted again."""
    cluster = TieredCluster()
    cluster.rounds()
    marker = cluster.bucket.read(MARKER)
    cluster.leader.runtime.run(cluster.leader.tiering.store.delete(MARKER))
    cluster.write(30)
    cluster.rounds(3)
    assert cluster.segment_keys() == []
    assert cluster.leader.log.copied_end_offset == 0
    cluster.bucket.put(MARKER, marker, cluster.leader.runtime)
    cluster.rounds(3)
    assert cluster.leader.log.copied_end_offset > 0


def test_a_store_that_loses_its_marker_during_a_copy_finishes_none() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.bucket.faults.latency_ms = 1_000
    cluster.advance(INTERVAL_MS + 3_000)
    cluster.leader.runtime.run(cluster.leader.tiering.store.delete(MARKER))
    cluster.advance(60_000)
    assert SegmentState.COPY_FINISHED not in [change.state for change in cluster.metadata.changes]


@pytest.mark.parametrize("age_ms", [0, ORPHAN_GRACE_MS + SWEEP_INTERVAL_MS])
def test_objects_that_no_record_speaks_of_go_once_they_are_old(age_ms: int) -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    orphan = object_key(SegmentName(PARTITION, 777, bytes(range(16))), "log")
    cluster.bucket.put(orphan, b"left", cluster.leader.runtime)
    known = len(cluster.segment_keys()) - 1
    cluster.advance(SWEEP_INTERVAL_MS + age_ms)
    assert (orphan in cluster.segment_keys()) is (age_ms == 0)
    cluster.advance(2 * SWEEP_INTERVAL_MS)
    assert len(cluster.segment_keys()) == known


def test_a_sweep_follows_the_times_in_the_manifest() -> None:
    """The manifest says how long an orphan may stay."""
    cluster = TieredCluster(sweep=SweepSettings(interval_ms=2_000, orphan_grace_ms=1_000))
    cluster.write(30)
    cluster.rounds()
    orphan = object_key(SegmentName(PARTITION, 777, bytes(range(16))), "log")
    cluster.bucket.put(orphan, b"left", cluster.leader.runtime)
    cluster.rounds(2)
    assert orphan not in cluster.segment_keys()


def test_the_objects_of_a_finished_segment_are_never_orphans() -> None:
    cluster = TieredCluster()
    cluster.write(30)
    cluster.rounds()
    before = cluster.segment_keys()
    cluster.advance(5 * SWEEP_INTERVAL_MS)
    assert cluster.segment_keys() == before
