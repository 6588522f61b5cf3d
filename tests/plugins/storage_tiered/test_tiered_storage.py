"""A tiered partition from copy to deletion, with a store in memory."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.fakes.power import Luck
from blumfeld_storage_tiered.cache.chunk_cache import FOLDER
from blumfeld_storage_tiered.logs.tiered_log import START_FILE
from tests.plugins.storage_tiered.tiered_cluster import PARTITION, TieredCluster


def offsets(cluster: TieredCluster) -> list[tuple[int, int]]:
    return [(batch.base_offset, batch.next_offset) for batch in cluster.read_all()]


@pytest.fixture
def cluster() -> TieredCluster:
    return TieredCluster()


def test_sealed_segments_are_copied_and_the_local_ones_may_go(cluster: TieredCluster) -> None:
    cluster.write(30)
    before = offsets(cluster)
    log = cluster.leader.log
    assert log.copied_end_offset == 0
    cluster.rounds()
    assert log.copied_end_offset == log.segments()[-1].base_offset
    cluster.drop_local()
    assert len(log.segments()) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, log.segments()[0].base_offset)
    assert offsets(cluster) == before


def test_nothing_above_the_last_stable_offset_is_copied(cluster: TieredCluster) -> None:
    cluster.write(30)
    cluster.last_stable_offset = cluster.leader.log.segments()[2].base_offset + 1
    cluster.rounds(2)
    assert cluster.leader.log.copied_end_offset == cluster.leader.log.segments()[2].base_offset


def test_a_restart_finds_the_whole_log(cluster: TieredCluster) -> None:
    cluster.write(30)
    before = offsets(cluster)
    cluster.rounds()
    cluster.drop_local()
    cluster.restart(cluster.leader)
    assert cluster.leader.log.log_start_offset == 0
    assert offsets(cluster) == before
    cluster.write(30)
    cluster.rounds()
    assert cluster.leader.log.copied_end_offset == cluster.leader.log.segments()[-1].base_offset


def test_delete_records_below_the_border_lasts_and_deletes_remote_segments(cluster: TieredCluster) -> None:
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    held = len(cluster.segment_keys())
    inside = cluster.leader.log.segments()[0].base_offset // 2 + 1
    cluster.delete_records(inside)
    cluster.restart(cluster.leader)
    assert cluster.leader.log.log_start_offset == inside
    cluster.rounds(2)
    assert len(cluster.segment_keys()) < held
    first = offsets(cluster)[0]
    assert first[0] <= inside < first[1]


def test_total_retention_moves_the_log_start_and_deletes_remote_segments() -> None:
    cluster = TieredCluster(retention_ms=600_000)
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    cluster.rounds(25)
    log = cluster.leader.log
    assert log.log_start_offset == log.local_log_start_offset
    assert cluster.segment_keys() == []


def test_a_new_leader_goes_on_where_the_old_one_stopped() -> None:
    cluster = TieredCluster(2)
    cluster.write(20)
    cluster.rounds()
    held = len(cluster.segment_keys())
    cluster.elect(cluster.nodes[1])
    cluster.rounds()
    assert len(cluster.segment_keys()) == held
    cluster.write(20)
    before = offsets(cluster)
    cluster.rounds()
    assert len(cluster.segment_keys()) > held
    cluster.drop_local()
    assert offsets(cluster) == before
    assert cluster.metadata.refused == []


def test_a_new_leader_that_did_not_hear_of_the_log_start_begins_where_the_store_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The leader moved the log start, deleted the segments below it, and died before a follower fetched."""
    cluster = TieredCluster(2)
    cluster.write(30)
    cluster.rounds()
    old, new = cluster.nodes
    for node in cluster.nodes:
        cluster.drop_local(node)
    expected = offsets(cluster)
    inside = old.log.local_log_start_offset // 2
    monkeypatch.setattr(cluster, "nodes", [old])
    cluster.delete_records(inside)
    monkeypatch.undo()
    cluster.rounds()
    assert new.log.log_start_offset == 0
    cluster.elect(new)
    cluster.rounds()
    assert 0 < new.log.log_start_offset <= inside
    assert offsets(cluster) == [batch for batch in expected if batch[0] >= new.log.log_start_offset]


def test_a_store_that_is_away_costs_nothing_but_time(cluster: TieredCluster) -> None:
    cluster.write(30)
    before = offsets(cluster)
    cluster.bucket.faults.away_until_ms = cluster.leader.runtime.monotonic_ms() + 3_600_000
    cluster.rounds(20)
    assert cluster.leader.log.copied_end_offset == 0
    cluster.write(10)
    cluster.rounds(110)
    assert cluster.leader.log.copied_end_offset == cluster.leader.log.segments()[-1].base_offset
    cluster.drop_local()
    assert offsets(cluster)[: len(before)] == before


def test_reads_are_answered_in_time_while_the_store_is_away_for_an_hour(cluster: TieredCluster) -> None:
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    log, runtime = cluster.leader.log, cluster.leader.runtime
    before = offsets(cluster)
    for name in runtime.files.list_dir(f"/data/{FOLDER}"):
        runtime.files.unlink(f"/data/{FOLDER}/{name}")
    cluster.restart(cluster.leader)  # nothing is in memory either
    log, runtime = cluster.leader.log, cluster.leader.runtime
    began_ms = runtime.monotonic_ms()
    cluster.bucket.faults.away_until_ms = began_ms + 3_600_000
    said: Counter[str] = Counter()
    while runtime.monotonic_ms() < began_ms + 3_590_000:
        cluster.write(1)
        assert cluster.read_some(log.written_end_offset - 1), "what lies on the disk is served"
        asked_ms = runtime.monotonic_ms()
        outcome = log.read(0, 300, log.written_end_offset, True)
        while not outcome.done:
            cluster.advance(10)
        assert runtime.monotonic_ms() - asked_ms <= 510, "remote.fetch.max.wait.ms, or an error before"
        error = outcome.error
        assert error is None or (isinstance(error, BrokerError) and error.retriable)
        said["nothing yet" if error is None else error.code.name] += 1
        cluster.advance(runtime.random.randrange(60_000))
    assert said["nothing yet"]
    cluster.rounds(2)
    assert log.copied_end_offset == log.segments()[-1].base_offset, "copies catch up by themselves"
    assert offsets(cluster)[: len(before)] == before


def test_a_topic_is_deleted_when_its_metadata_can_be_written_again(cluster: TieredCluster) -> None:
    cluster.write(30)
    cluster.rounds()
    cluster.metadata.away = True
    cluster.leader.delete_topic()
    cluster.advance(60_000)
    assert cluster.segment_keys() != []
    cluster.metadata.away = False
    cluster.advance(600_000)
    assert cluster.segment_keys() == []


def test_a_topic_whose_last_leader_died_before_it_deleted_it_is_deleted_later(cluster: TieredCluster) -> None:
    """The leader of its metadata does it, once the topic has been absent from the image for an hour."""
    cluster.write(30)
    cluster.rounds()
    cluster.leader.follow()
    held = cluster.segment_keys()
    cluster.is_topic_gone = True
    cluster.advance(3_000_000)
    cluster.is_topic_gone = False  # the image was behind
    cluster.advance(600_000)
    cluster.is_topic_gone = True
    cluster.advance(3_600_000)
    assert cluster.segment_keys() == held
    cluster.advance(1_300_000)
    assert cluster.segment_keys() == []


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_start_tells_of_topics_in_the_store_that_the_cluster_does_not_know(
    cluster: TieredCluster, is_deleted: bool
) -> None:
    """A node that is started on new disks without a restore begins a cluster without topics."""
    cluster.write(30)
    cluster.rounds()
    assert not any("doesn't know" in said for said in cluster.leader.events.said)
    if is_deleted:
        cluster.leader.runtime.run(cluster.leader.tiering.topics.mark_deleted(PARTITION))
    cluster.is_topic_gone = True
    cluster.restart(cluster.leader)
    cluster.advance(100)
    assert any("doesn't know" in said for said in cluster.leader.events.said) is not is_deleted


def test_a_start_without_its_store_tells_of_unknown_topics_once_the_store_is_back(
    cluster: TieredCluster,
) -> None:
    cluster.write(30)
    cluster.rounds()
    cluster.is_topic_gone = True
    cluster.bucket.faults.away_until_ms = math.inf
    cluster.restart(cluster.leader)
    cluster.advance(100)
    cluster.bucket.faults.heal()
    cluster.advance(2_000_000)
    assert sum("doesn't know" in said for said in cluster.leader.events.said) == 1


def test_two_nodes_may_delete_the_same_topic() -> None:
    cluster = TieredCluster(2)
    cluster.write(30)
    cluster.rounds()
    for node in cluster.nodes:
        node.delete_topic()
    cluster.advance(600_000)
    assert cluster.segment_keys() == []
    assert [node.runtime.defects for node in cluster.nodes] == [[], []]


def test_cached_bytes_that_have_changed_cost_one_retriable_error(cluster: TieredCluster) -> None:
    cluster.write(30)
    cluster.rounds()
    cluster.drop_local()
    cluster.read_all()
    files, folder = cluster.leader.runtime.files, f"/data/{FOLDER}"
    for name in files.list_dir(folder):
        file = files.open(f"{folder}/{name}")
        file.pwritev([bytes(file.size())], 0)
        file.close()
    read: Completion[Any] = cluster.leader.log.read(0, 1000, 100, True)
    cluster.advance(1_000)
    assert isinstance(read.error, BrokerError)
    assert read.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    cluster.read_all()


@pytest.mark.parametrize("content", [b"", b"xx", b"-5", b"1 2", b"99999999999"])
def test_a_start_that_cannot_be_read_is_told_with_its_file(cluster: TieredCluster, content: bytes) -> None:
    cluster.leader.log.aux.write(START_FILE, content)
    with pytest.raises(OSError, match=f"{START_FILE}: found .*; allowed: an offset"):
        cluster.restart(cluster.leader)


def test_a_person_may_let_a_log_begin_at_zero(cluster: TieredCluster) -> None:
    cluster.write(30)
    before = offsets(cluster)
    cluster.rounds()
    cluster.drop_local()
    cluster.leader.log.aux.write(START_FILE, b"0\n")
    cluster.restart(cluster.leader)
    assert offsets(cluster) == before


def test_the_directory_of_a_new_node_outlives_a_power_cut(cluster: TieredCluster) -> None:
    """A power cut could else take its name, and with it all that was flushed, the cluster's metadata too."""
    cluster.write(3)
    before = offsets(cluster)
    cluster.leader.flush()
    cluster.restart(cluster.leader, power_cut=True, luck=Luck(0))
    cluster.rounds()
    assert offsets(cluster) == before != []


def test_a_log_whose_end_a_power_cut_took_below_its_start_begins_anew_there(cluster: TieredCluster) -> None:
    """Followers would begin at its start, be cut to its end, and so on for ever."""
    cluster.write(2)
    cluster.leader.flush()
    cluster.write(3)
    end = cluster.leader.log.written_end_offset
    cluster.delete_records(end)
    cluster.restart(cluster.leader, power_cut=True, luck=Luck(0))
    cluster.rounds()
    log = cluster.leader.log
    assert (log.log_start_offset, log.local_log_start_offset, log.written_end_offset) == (end, end, end)
    cluster.write(1)
    assert offsets(cluster)[0][0] == end
