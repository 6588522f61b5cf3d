"""What storage_local leaves in a directory, what it makes of what it finds there, and how few system calls it takes."""

from __future__ import annotations

import struct
from random import Random
from typing import Any
from zlib import crc32

import pytest

from blumfeld.log.checkpoints import MetaProperties, encode_meta_properties
from blumfeld.spi.aux_files import in_chunks
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.fakes.files import Luck
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, TOPIC_ID, Log, Node, make_batch
from blumfeld_storage_local.segments.segment import COPY_BYTES_MAX
from tests.plugins.storage_local.local_node import Events

LOG = "/data/topic-0/00000000000000000000.log"
INDEX = "/data/topic-0/00000000000000000000.index"
TIME_INDEX = "/data/topic-0/00000000000000000000.timeindex"


def read(node: Node, path: str) -> bytes:
    return node.runtime.files.read_bytes(path)


def overwrite(node: Node, path: str, data: bytes, position: int = 0) -> None:
    """Change a file behind the storage's back."""
    file = node.runtime.files.open(path, create=True)
    file.pwritev([data], position)
    file.close()


def calls(node: Node) -> dict[str, int]:
    """The file operations so far; counting starts anew."""
    counted = dict(node.runtime.disk.operations)
    node.runtime.disk.operations.clear()
    return counted


# Layout


def test_the_directory_is_laid_out_as_kafkas(node: Node) -> None:
    log = node.open()
    log.fill(3)
    log.log.roll()
    log.fill(1)
    log.log.advance_log_start(2)
    node.storage.checkpoint([(PARTITION, 3)])
    node.stop(broker_epoch=42)
    files = node.restart().runtime.files
    assert files.list_dir("/data") == [
        ".last_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "topic-0",
    ]
    assert files.read_bytes("/data/log-start-offset-checkpoint") == b"0\n1\ntopic 0 2\n"
    assert files.read_bytes("/data/recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 4\n"
    assert files.read_bytes("/data/replication-offset-checkpoint") == b"0\n1\ntopic 0 3\n"
    assert files.list_dir("/data/topic-0") == [
        f"{base:020d}{suffix}" for base in (0, 3) for suffix in (".index", ".log", ".timeindex")
    ] + ["partition.metadata"]
    assert (
        files.read_bytes("/data/topic-0/partition.metadata")
        == b"version: 0\ntopic_id: EBESExQVFhcYGRobHB0eHw"
    )


def test_the_clean_shutdown_file_is_there_only_between_two_lives(node: Node) -> None:
    assert not node.runtime.files.exists("/data/.kafka_cleanshutdown")
    node.open().fill(1)
    node.stop(broker_epoch=42)
    assert read(node, "/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    node.restart()
    node.crash(luck=Luck(0))
    assert not node.runtime.files.exists("/data/.kafka_cleanshutdown"), "a power cut must not bring it back"
    node.open()
    assert node.listener.recoveries == [(0, 1)]


def test_a_process_that_opened_no_log_of_the_brokers_leaves_the_epoch_of_the_clean_stop(node: Node) -> None:
    """Its replicas have all that they had. An epoch forgotten makes them ineligible, and the last leader is elected
    instead, which may have lost its cache: acknowledged records would be lost (KIP-966)."""
    node.open().fill(1)
    node.stop(broker_epoch=42)
    node.restart()
    node.open(TopicPartition(CLUSTER_METADATA_TOPIC, 0)).fill(1)
    node.crash()
    assert node.storage.previous_broker_epoch() == 42
    node.stop(broker_epoch=-1)  # it had not registered
    node.restart()
    assert node.storage.previous_broker_epoch() == 42
    node.open()
    node.crash(power_cut=False)
    assert node.storage.previous_broker_epoch() == -1


def test_a_start_that_a_full_disk_ends_leaves_the_epoch_of_the_clean_stop(node: Node) -> None:
    """It has no room to write the mark again."""
    node.open().fill(1)
    node.stop(broker_epoch=42)
    node.restart()
    node.runtime.disk.room = 0
    node.stop(broker_epoch=-1)
    node.restart()
    assert node.storage.previous_broker_epoch() == 42
    node.runtime.disk.room = None
    node.stop(broker_epoch=-1)
    node.restart()
    assert node.storage.previous_broker_epoch() == 42


def test_a_log_that_could_not_be_closed_leaves_no_clean_shutdown_file(node: Node) -> None:
    log = node.open()
    log.fill(1)
    log.log.close()
    node.storage.delete_log(PARTITION)
    log = node.open()
    log.fill(1)
    log.log.discard()  # type: ignore[attr-defined]
    node.stop()
    assert not node.runtime.files.exists("/data/.kafka_cleanshutdown")


def test_index_entries_stand_where_kafka_puts_them(node: Node) -> None:
    """An entry for the batch that follows more than index.interval.bytes; one more time at the end."""
    log = node.open(index_interval_bytes=200)
    for n, delta in enumerate((0, 10, 5, 20, 15, 30)):
        log.append(make_batch(2, timestamp_ms=TIME_MS + delta, value_bytes=50, seed=n))
    size = log.log.size_bytes() // 6
    assert 100 < size < 201
    log.log.close()
    assert read(node, INDEX) == struct.pack(">iiii", 5, 2 * size, 9, 4 * size)
    assert read(node, TIME_INDEX) == struct.pack(
        ">qiqiqi", TIME_MS + 10, 3, TIME_MS + 20, 7, TIME_MS + 30, 11
    )


def test_index_entries_reach_the_file_before_the_segment_is_sealed(node: Node) -> None:
    log = node.open(index_interval_bytes=0)
    log.fill(*[1] * 200)
    assert len(read(node, INDEX)) >= 128 * 8
    assert len(read(node, TIME_INDEX)) % 12 == 0


def test_a_deleted_log_takes_kafkas_name_until_it_is_removed(node: Node) -> None:
    node.open(file_delete_delay_ms=500).fill(1)
    node.storage.delete_log(PARTITION)
    (name,) = [n for n in node.runtime.files.list_dir("/data") if n.startswith("topic")]
    assert name.startswith("topic-0.")
    assert name.endswith("-delete")
    assert len(name) == len("topic-0.") + 32 + len("-delete")
    node.runtime.advance(600)
    assert not [n for n in node.runtime.files.list_dir("/data") if n.startswith("topic")]


# Cost


def test_a_small_write_is_one_system_call(node: Node) -> None:
    log = node.open()
    log.fill(1)
    calls(node)
    log.append(make_batch())
    assert calls(node) == {"pwritev": 1}
    log.append(*[make_batch() for _ in range(1000)])
    assert calls(node)["pwritev"] == 1


def test_a_read_near_the_end_looks_nothing_up(node: Node) -> None:
    log = node.open(index_interval_bytes=0)
    log.fill(*[1] * 100)
    calls(node)
    for offset in range(90, 100):
        log.read_raw_size(offset, 1 << 20)
    assert calls(node) == {"pread": 10}
    log.read_raw_end(100)
    assert calls(node) == {}


def test_who_reads_the_same_end_shares_one_small_read(node: Node) -> None:
    """Many groups at the end of a log read the same bytes; large ones are sent from the file, and never copied."""
    log = node.open()
    log.fill(1, 1)
    calls(node)
    assert [log.read_raw_size(1, 1 << 20) for _ in range(5)] == [make_batch().size_bytes] * 5
    assert calls(node) == {"pread": 1}
    log.append(make_batch(value_bytes=COPY_BYTES_MAX))
    calls(node)
    log.read_raw_size(2, 1 << 20)
    assert calls(node) == {"size": 1, "region": 1}, "the size, lest somebody has cut it"


def test_a_small_read_does_not_outlive_a_truncation(node: Node) -> None:
    """Other bytes of the same size, in the same place."""
    log = node.open()
    log.fill(1, 1)
    before = log.read(1)
    log.log.truncate_to(1)
    log.append(make_batch(seed=1), epoch=1)
    assert log.read(1) != before
    assert log.read(1)[0].leader_epoch == 1


def test_opening_a_clean_log_touches_no_file_of_it(node: Node) -> None:
    """A node has thousands of logs that nobody asks for: the rest waits until somebody does."""
    log = node.open(segment_bytes=100_000)
    log.fill(*[2] * 300, value_bytes=1000)
    assert len(log.log.segments()) > 3
    node.stop()
    node.restart()
    calls(node)
    log = node.open(segment_bytes=100_000)
    made = calls(node)
    assert not made.keys() & {"open", "pread", "pwritev", "size", "list_dir", "read_bytes"}
    assert node.runtime.disk.open_files == 0
    assert log.log.written_end_offset == 600
    log.fill(2)
    assert calls(node)["open"] == 3
    assert log.spans()[-1] == (600, 602)


# What it finds


def test_leftovers_are_removed_and_an_index_without_a_log_too(node: Node) -> None:
    node.open().fill(3)
    node.stop()
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000009.index",
        "00000000000000000000.snapshot.deleted",
        "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp",
    ):
        overwrite(node, f"/data/topic-0/{name}", b"x")
    node.runtime.files.make_dirs(f"/data/gone-0.{'0' * 32}-delete")
    node.restart()
    assert node.open().spans() == [(0, 3)]
    node.runtime.advance(10)
    names = node.runtime.files.list_dir("/data/topic-0")
    assert [n.rsplit(".", 1)[1] for n in names] == ["index", "log", "timeindex", "metadata"]
    assert not [n for n in node.runtime.files.list_dir("/data") if n.endswith("-delete")]


def test_a_finished_swap_of_kafkas_cleaner_takes_its_place(node: Node) -> None:
    log = node.open()
    for _ in range(3):
        log.fill(2)
        log.log.roll()
    log.fill(1)
    cleaned = read(node, LOG) + read(node, LOG.replace("0.log", "2.log"))
    node.stop()
    node.runtime.files.unlink(LOG)
    overwrite(node, f"{LOG}.swap", cleaned)
    log = node.restart().open(cleanup_policy="compact")
    assert log.spans() == [(0, 2), (2, 4), (4, 6), (6, 7)]
    assert [s.base_offset for s in log.log.segments()] == [0, 4, 6]


def test_a_missing_index_is_rebuilt_and_nothing_is_cut(node: Node) -> None:
    log = node.open(segment_bytes=1000, index_interval_bytes=50)
    log.fill(*[2] * 30)
    node.stop()
    before = read(node, INDEX)
    node.runtime.files.unlink(INDEX)
    log = node.restart().open(segment_bytes=1000, index_interval_bytes=50)
    assert read(node, INDEX) == before
    assert len(log.spans()) == 30


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX], ids=["offset index", "time index"])
@pytest.mark.parametrize("harm", ["odd", "garbage", "empty"])
def test_an_index_that_cannot_be_is_rebuilt_when_it_is_needed(node: Node, path: str, harm: str) -> None:
    log = node.open(segment_bytes=1000)
    log.fill(*[2] * 30)
    node.stop()
    if harm == "empty":
        node.runtime.files.open(path).truncate(0)
    else:
        overwrite(node, path, b"odd" if harm == "odd" else b"\xff" * len(read(node, path)))
    log = node.restart().open()
    assert len(log.spans()) == 30
    place = log.time(TIME_MS)
    assert place is not None
    assert place.offset == 0


def test_damage_to_what_was_flushed_is_an_error_and_not_a_cut(node: Node) -> None:
    """A sealed segment below the recovery point: nobody may silently drop it."""
    log = node.open(segment_bytes=1000)
    log.fill(*[2] * 30)
    node.stop()
    node.runtime.files.unlink(INDEX)
    overwrite(node, LOG, b"\xff\xff\xff", 80)
    node.restart()
    with pytest.raises(OSError, match="no batch at byte"):
        node.open()


@pytest.mark.parametrize("damage", ["crc", "cut", "zeros", "garbage"])
def test_recovery_cuts_at_the_first_batch_that_is_not_whole(node: Node, events: Events, damage: str) -> None:
    log = node.open(segment_bytes=2000, index_interval_bytes=0)
    log.fill(*[1] * 60)
    size = log.log.segments()[-1].size_bytes
    active, base = log.log.segments()[-1].files[0], log.log.segments()[-1].base_offset
    each = size // (60 - base)
    node.runtime.crash(power_cut=False)
    node.restart()
    if damage == "crc":
        overwrite(node, active, b"\xaa", size - 3)
    elif damage == "cut":
        node.runtime.files.open(active).truncate(size - 3)
    elif damage == "zeros":
        node.runtime.files.open(active).truncate(size + 4096)
    else:
        overwrite(node, active, b"\x7f" * 300, size)
    log = node.open(segment_bytes=2000, index_interval_bytes=0)
    kept = 59 if damage in ("crc", "cut") else 60
    assert log.log.written_end_offset == kept
    assert len(read(node, active)) == (kept - base) * each
    assert "log cut after a crash" in events.said
    log.fill(2)
    assert log.spans()[-1] == (kept, kept + 2)


def test_a_hole_that_a_crash_left_between_segments_ends_the_log(node: Node) -> None:
    """The tail of a sealed segment is lost, the next segment is not: what is left must be a prefix."""
    log = node.open(segment_bytes=1000)
    log.fill(*[1] * 40)
    first = log.log.segments()[0]
    each = first.size_bytes // first.next_offset
    node.runtime.crash(power_cut=False)
    node.restart()
    node.runtime.files.open(first.files[0]).truncate(first.size_bytes - each)
    log = node.open(segment_bytes=1000)
    assert log.log.written_end_offset == first.next_offset - 1
    assert len(log.log.segments()) == 1


def test_recovery_walks_only_what_was_not_flushed(node: Node) -> None:
    log = node.open(segment_bytes=1000)
    log.fill(*[1] * 40)
    log.flush()
    node.storage.checkpoint([])
    node.runtime.run_turn()
    active = log.log.segments()[-1].base_offset
    node.crash()
    log = node.open(segment_bytes=1000)
    assert node.listener.recoveries[0] == (active, active + 1)
    assert log.log.written_end_offset == log.log.flushed_end_offset == 40


def test_a_checkpoint_counts_on_no_sync_that_still_runs(node: Node) -> None:
    """A roll orders the sync of what it seals; until that is done, a crash may take it."""
    log = node.open(segment_bytes=1000)
    delays_ms = iter([60_000.0])
    node.runtime.offload_delay_ms = lambda: next(delays_ms, 0.0)
    log.fill(*[1] * 40)
    node.storage.checkpoint([])
    node.runtime.advance(1)
    assert log.log.flushed_end_offset == 0
    node.crash(power_cut=False).open(segment_bytes=1000)
    assert node.listener.recoveries[0] == (0, 1)


def test_an_old_kafkas_format_is_refused_and_kept(node: Node) -> None:
    log = node.open()
    log.fill(1)
    node.runtime.crash(power_cut=False)
    node.restart()
    body = struct.pack(">bbqi1si1s", 1, 0, TIME_MS, 1, b"k", 1, b"v")
    old = struct.pack(">qiI", 0, 4 + len(body), crc32(body)) + body
    overwrite(node, LOG, old)
    with pytest.raises(OSError, match="format 1"):
        node.open()
    assert read(node, LOG).startswith(old)


def test_a_log_start_behind_the_end_empties_the_log(node: Node) -> None:
    """DeleteRecords was checkpointed, then a power cut took the records."""
    log = node.open()
    log.fill(5)
    log.log.advance_log_start(5)
    node.storage.checkpoint([])
    node.runtime.run_turn()
    node.runtime.crash(power_cut=False)
    node.restart()
    node.runtime.files.open(LOG).truncate(0)
    log = node.open()
    assert (log.log.log_start_offset, log.log.written_end_offset) == (5, 5)
    log.fill(1)
    assert log.spans() == [(5, 6)]


def test_a_torn_partition_metadata_is_written_anew(node: Node, events: Events) -> None:
    node.open().fill(1)
    node.stop()
    overwrite(node, "/data/topic-0/partition.metadata", b"vers\0\0\0\0\0\0")
    node.restart()
    assert list(node.storage.partitions()) == [(PARTITION, bytes(16))]
    assert "partition.metadata unreadable" in events.said
    node.open()
    node.stop()
    assert list(node.restart().storage.partitions()) == [(PARTITION, TOPIC_ID)]


def test_an_unreadable_checkpoint_means_more_recovery_and_no_loss(node: Node, events: Events) -> None:
    node.open().fill(2, 2)
    node.stop()
    node.runtime.files.unlink("/data/.kafka_cleanshutdown")
    overwrite(node, "/data/recovery-point-offset-checkpoint", b"nonsense\n")
    node.restart()
    assert "checkpoint unreadable, begun anew" in events.said
    assert node.open().spans() == [(0, 2), (2, 4)]
    assert node.listener.recoveries == [(0, 2)]


def test_a_foreign_meta_properties_is_refused(node: Node) -> None:
    node.stop()
    overwrite(node, "/data/meta.properties", b"version=0\nbroker.id=1\n#" + b"#" * 200)
    with pytest.raises(ValueError, match=r"cluster\.id is missing"):
        node.restart()
    meta = MetaProperties(cluster_id="kit-cluster", node_id=7, directory_id=bytes(15) + b"\xee")
    node.runtime.files.write_atomically("/data/meta.properties", encode_meta_properties(meta))
    assert node.restart().storage.log_dirs()[0].directory_id == bytes(15) + b"\xee"


def test_checkpoints_keep_what_was_not_opened_in_this_life(node: Node) -> None:
    other = TopicPartition("other", 1)
    for partition in (PARTITION, other):
        Log(node, node.open(partition).log).fill(3)
    node.stop()
    node.restart().open().fill(1)
    node.stop()
    assert read(node, "/data/recovery-point-offset-checkpoint") == b"0\n2\ntopic 0 4\nother 1 3\n"


def test_a_flush_in_flight_outlives_truncation_close_and_deletion(node: Node) -> None:
    """The worker syncs files that the loop closes meanwhile: that is no failure of the disk."""
    node.runtime.offload_delay_ms = lambda: 20.0
    for end in ("truncate", "close", "delete"):
        log = node.open(TopicPartition(end, 0))
        log.fill(2)
        log.log.roll()
        log.fill(2)
        flush = log.log.flush()
        node.runtime.advance(5)
        if end == "truncate":
            log.log.truncate_to(1)
        elif end == "close":
            log.log.close()
        else:
            node.storage.delete_log(TopicPartition(end, 0))
        node.runtime.advance(200)
        assert flush.done
        assert flush.error is None
        assert flush.result() <= (0 if end == "truncate" else 4)
    assert node.storage.log_dirs()[0].online
    node.runtime.offload_delay_ms = None


@pytest.mark.parametrize("kept", range(10))
def test_a_power_cut_within_a_truncation_leaves_a_prefix(node: Node, kept: int) -> None:
    """Segments go newest first: however many of the renames lasted, there is no hole."""
    log = node.open()
    for _ in range(4):
        log.fill(2)
        log.log.roll()
    log.flush()
    node.storage.checkpoint([])
    node.runtime.run_turn()
    log.log.truncate_to(1)
    node.crash(luck=Luck(kept))
    spans = node.open().spans()
    assert spans == [(0, 2), (2, 4), (4, 6), (6, 8)][: len(spans)]


@pytest.mark.parametrize("seed", range(10))
def test_a_power_cut_after_segments_went_from_the_front_leaves_no_hole(node: Node, seed: int) -> None:
    """The renames may last in any order. A hole would end the log at the next start, or hide records for ever."""
    log = node.open()
    for _ in range(5):
        log.fill(2)
        log.log.roll()
    log.fill(2)
    log.flush()
    node.storage.checkpoint([])
    node.runtime.run_turn()
    log.log.drop_segments(2)
    log.log.drop_segments(8)
    node.crash(luck=Random(seed))
    assert node.open().spans() == [(8, 10), (10, 12)]


def test_a_log_that_begins_anew_below_a_start_that_was_marked_stays(node: Node) -> None:
    log = node.open()
    for _ in range(3):
        log.fill(2)
        log.log.roll()
    log.log.drop_segments(6)
    log.log.truncate_fully(1)
    log.fill(2)
    log.flush()
    assert node.crash().open().spans() == [(1, 3)]


def test_what_is_written_anew_after_a_truncation_is_recovered(node: Node) -> None:
    """The recovery point goes down with the truncation, not with the next checkpoint."""
    log = node.open()
    log.fill(*[1] * 8)
    log.flush()
    node.storage.checkpoint([])
    log.log.truncate_to(2)
    assert read(node, "/data/recovery-point-offset-checkpoint") == b"0\n1\ntopic 0 2\n"


def test_drafts_that_have_ended_are_forgotten(node: Node) -> None:
    """Each metadata snapshot is a draft of another name, so they would pile up for as long as the node runs."""
    aux: Any = in_chunks(node.open().log.aux)
    for number in range(4):
        draft = aux.begin(f"{number}.checkpoint")
        draft.append(b"bytes")
        if number % 2:
            draft.commit()
        else:
            draft.abort()
        draft.abort()
    assert len(aux._drafts) == 0
    older, newer = aux.begin("5.checkpoint"), aux.begin("5.checkpoint")
    assert len(aux._drafts) == 1
    newer.abort()
    older.abort()
    assert len(aux._drafts) == 0
