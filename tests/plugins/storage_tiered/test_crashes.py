"""A node that dies at any request to the store: while it copies, deletes what has expired, reads, sweeps.

The request may have taken place or not. Then the node starts again and has time: the log must be whole, and the store
must hold what records speak of and nothing else.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.object_store import Fate, ProcessDied
from blumfeld_storage_tiered.catalog.segment import SegmentState
from blumfeld_storage_tiered.objects.names import parse_key
from tests.plugins.storage_tiered.tiered_cluster import PARTITION, TieredCluster

HOUR_MS = 3_600_000


def live(cluster: TieredCluster, requests_max: int) -> None:
    """Copy, drop the local part, read it, expire some of it, copy on. Stop at the request that kills."""
    try:
        cluster.write(14)
        cluster.rounds()
        cluster.drop_local()
        cluster.read_some(cluster.leader.log.log_start_offset)
        cluster.write(14)
        cluster.rounds()
        cluster.delete_records(cluster.leader.log.segments()[0].base_offset // 2)
        cluster.rounds()
        if cluster.bucket.requests < requests_max:
            cluster.advance(HOUR_MS)  # a sweep
    except SimulationError as error:
        if not isinstance(error.__cause__, ProcessDied):
            raise


def heal(cluster: TieredCluster) -> None:
    cluster.bucket.faults.heal()
    cluster.restart(cluster.leader)
    for _ in range(6):
        cluster.advance(HOUR_MS / 2)


def check(cluster: TieredCluster, written: dict[int, bytes]) -> None:
    log = cluster.leader.log
    cluster.drop_local()
    batches = cluster.read_all()
    assert {batch.base_offset: bytes(batch.data) for batch in batches}.items() <= written.items()
    assert batches[0].base_offset <= log.log_start_offset < batches[0].next_offset
    assert batches[-1].next_offset == log.written_end_offset
    for before, after in pairwise(batches):
        assert before.next_offset == after.base_offset
    catalog = cluster.leader.metadata.catalog(PARTITION)
    assert {segment.state for segment in catalog} == {SegmentState.COPY_FINISHED}
    for key in cluster.segment_keys():
        name = parse_key(key)
        assert name is not None
        assert catalog.get(name[0].segment_id) is not None, f"orphan {key}"


def count_requests() -> int:
    cluster = TieredCluster(seed=3)
    live(cluster, 0)
    return cluster.bucket.requests


def die_at(request: int, fate: Fate) -> None:
    cluster = TieredCluster(seed=3)
    cluster.bucket.faults.scripted[request] = fate
    written: dict[int, bytes] = {}
    append = cluster.leader.append

    def noted(batch, leader_epoch: int) -> None:  # type: ignore[no-untyped-def]
        append(batch, leader_epoch)
        written[batch.base_offset] = bytes(batch.data)

    cluster.leader.append = noted  # type: ignore[method-assign]
    live(cluster, request)
    cluster.leader.runtime.defects.clear()
    heal(cluster)
    check(cluster, written)


FATES = [Fate.DIES_BEFORE, Fate.DIES_AFTER]


@pytest.mark.parametrize("fate", FATES)
def test_a_node_that_dies_at_a_request_leaves_nothing_wrong(fate: Fate) -> None:
    total = count_requests()
    assert total > 100
    for request in range(4 + FATES.index(fate), total, 5):
        die_at(request, fate)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fate", FATES)
def test_a_node_that_dies_at_any_request_leaves_nothing_wrong(fate: Fate) -> None:
    for request in range(4, count_requests()):
        die_at(request, fate)
