"""The raft log of a voter among others: what it appends, cuts, tells and finds again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS_NAME
from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld.metadata.image.checkpoint import CheckpointId
from blumfeld.spi.completion import Completion
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import CorruptBatch
from blumfeld_consensus_kraft.kept_snapshots import HOLD_MS
from blumfeld_consensus_kraft.raft.divergence import divergence, needed_snapshot
from blumfeld_consensus_kraft.raft.messages import FetchRequest
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from blumfeld_consensus_kraft.snapshots import Snapshots
from blumfeld_kit.fakes.files import FakeDisk, Fault
from tests.coordinator.fakes import Events
from tests.everyday import first
from tests.plugins.consensus_kraft.log_node import Deaths, LogNode, batch, epochs_of, history

DAY_MS = 86_400_000


@pytest.fixture
def node() -> Iterator[LogNode]:
    """A voter with an empty log."""
    made = LogNode().start()
    yield made
    made.runtime.run_turn()


def end_of(data: bytes) -> int:
    """The offset behind a batch."""
    return RecordBatch(memoryview(data)).next_offset


# Append


def test_a_fetched_batch_may_change_in_its_buffer_afterwards(node: LogNode) -> None:
    """The bytes lie in the memory of a frame, which belongs to the next one soon."""
    (sent,) = history((1, 1))
    buffer = bytearray(sent)
    (placed,) = node.raft.append_fetched(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    node.settle()
    assert node.batches() == [sent]
    assert bytes(placed.data) == sent


def damaged(data: bytes) -> bytes:
    """The batch with a flipped bit."""
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        ([batch(2, 3, "a"), batch(4, 3, "b")], "records 4 to 4, where offset 3 comes next"),
        ([batch(3, 3, "a")], "records 3 to 3, where offset 2 comes next"),
        ([batch(0, 3, "a", "b")], "records 0 to 1, where offset 2 comes next"),
        ([batch(1, 3, "a", "b")], "records 1 to 2, where offset 2 comes next"),
        ([batch(2, 3, "a"), batch(3, 2, "b")], "epoch 2 at offset 3, behind records of epoch 3"),
        ([batch(2, 2, "a")], "epoch 2 at offset 2, behind records of epoch 3"),
        ([batch(2, 3, "a"), damaged(batch(3, 3, "b"))], "CRC"),
    ],
    ids=["gap", "gap at once", "old", "overlap", "epoch back", "epoch back at once", "crc"],
)
def test_what_does_not_follow_is_refused_and_nothing_is_placed(
    node: LogNode, sent: list[bytes], says: str
) -> None:
    before = batch(0, 3, "x", "y")
    node.follow(before)
    with pytest.raises((ValueError, CorruptBatch), match=says):
        node.raft.append_fetched(memoryview(b"".join(sent)))
    assert node.raft.end_offset == 2
    node.settle()
    assert node.batches() == [before]
    node.follow(batch(2, 3, "z"))
    assert node.raft.flushed_end_offset == 3


def test_a_batch_that_is_cut_off_ends_the_data(node: LogNode) -> None:
    first, second = history((1, 2))
    placed = node.raft.append_fetched(memoryview(first + second[:-1]))
    assert len(placed) == 1
    assert node.raft.append_fetched(memoryview(b"")) == []
    node.settle()
    assert node.batches() == [first]


def test_batches_of_an_epoch_that_is_not_known_yet_are_left_out(node: LogNode) -> None:
    """They may follow a truncation that this voter has not made (KAFKA-18723)."""
    sent = history((1, 1), (2, 1))
    assert len(node.raft.append_fetched(memoryview(b"".join(sent)), 1)) == 1


def test_a_leader_appends_in_its_epoch(node: LogNode) -> None:
    node.follow(*history((1, 1)))
    assert node.raft.append(bytearray(batch(0, 0, "a", "b")), 5) == 2
    assert node.raft.last_epoch == 5
    node.settle()
    assert [
        (stored_batch.base_offset, stored_batch.partition_leader_epoch) for stored_batch in node.read(0)
    ] == [(0, 1), (2, 5)]
    assert node.epochs() == [(1, 0), (5, 2)]


# Commit


def test_the_own_flush_commits_nothing_where_others_vote(node: LogNode) -> None:
    node.follow(*history((1, 3)))
    assert (node.raft.flushed_end_offset, node.raft.committed_end, node.committed) == (6, 0, [])
    node.raft.commit_to(4)
    node.raft.commit_to(2)
    assert (node.raft.committed_end, node.committed) == (4, [4])


def test_a_commit_ahead_of_this_log_follows_its_writes(node: LogNode) -> None:
    """A follower hears of a high watermark beyond what it has."""
    sent = history((1, 3))
    node.raft.commit_to(4)
    assert node.committed == []
    node.follow(sent[0])
    node.follow(*sent[1:])
    assert node.committed == [2, 4]


def test_a_flush_is_told_when_it_is_done_and_not_before(node: LogNode) -> None:
    node.follow(batch(0, 1, "x"))
    node.runtime.offload_delay_ms = lambda: 50.0
    node.raft.append_fetched(memoryview(batch(1, 1, "y")))
    node.runtime.run_turn()
    assert [stored_batch.base_offset for stored_batch in node.read(1)] == [1], (
        "other voters may have it before it is flushed here"
    )
    assert node.flushed == [1]
    node.runtime.advance(60)
    assert node.flushed == [1, 2]


def test_the_flushed_end_waits_for_the_file_of_epochs(node: LogNode) -> None:
    """A crash must find the epoch of each record that this voter has counted."""
    delays = iter([200.0])
    node.runtime.offload_delay_ms = lambda: next(delays, 1.0)
    node.raft.append_fetched(memoryview(batch(0, 1, "x")))
    node.runtime.advance(100)
    assert (node.raft.log.flushed_end_offset, node.flushed) == (1, [])
    assert node.epochs() == []
    node.runtime.advance(200)
    assert node.flushed == [1]
    assert node.epochs() == [(1, 0)]


def test_a_late_file_of_epochs_holds_up_the_new_epoch_alone(node: LogNode) -> None:
    node.follow(batch(0, 1, "x"))
    node.runtime.offload_delay_ms = lambda: 20.0
    node.raft.append_fetched(memoryview(batch(1, 1, "y")))
    node.runtime.run_turn()
    node.runtime.advance(10)
    delays = iter([500.0])
    node.runtime.offload_delay_ms = lambda: next(delays, 1.0)
    node.raft.append_fetched(memoryview(batch(2, 2, "z")))
    node.runtime.advance(100)
    assert node.flushed == [1, 2]
    node.runtime.advance(500)
    assert node.flushed == [1, 2, 3]


# Fail


def test_a_failed_write_leaves_nothing_of_what_was_fetched(node: LogNode) -> None:
    sent = history((1, 1), (2, 1))
    node.follow(sent[0])
    node.disk.inject(Fault(operation="pwritev", path_part="__cluster_metadata", error_number=28))
    node.raft.append_fetched(memoryview(sent[1]))
    assert node.raft.last_epoch == 2
    node.settle()
    assert [for_good for _, for_good in node.failed] == [False]
    assert (node.raft.end_offset, node.raft.last_epoch, node.raft.flushed_end_offset) == (2, 1, 2)
    node.follow(batch(2, 3, "other"))
    assert node.raft.flushed_end_offset == 3
    assert node.epochs() == [(1, 0), (3, 2)]


def test_a_failed_flush_is_for_good(node: LogNode) -> None:
    node.disk.inject(Fault(operation="fdatasync", path_part="__cluster_metadata-0/0"))
    node.raft.append_fetched(memoryview(batch(0, 1, "x")))
    node.settle()
    assert [for_good for _, for_good in node.failed] == [True]
    assert node.flushed == []


def test_epochs_that_find_no_room_are_written_with_the_next_batch(node: LogNode) -> None:
    fault = Fault(operation="write_atomically", path_part=EPOCHS_NAME, error_number=28)
    node.disk.inject(fault)
    node.follow(batch(0, 1, "x"))
    assert [for_good for _, for_good in node.failed] == [False]
    assert node.flushed == []
    node.follow(batch(1, 1, "y"))
    assert node.flushed[-1] == 2
    assert node.epochs() == [(1, 0)]


# Epochs


def test_the_end_of_an_epoch_is_kafkas(node: LogNode) -> None:
    node.follow(*history((1, 5), (3, 2)))
    ends = {epoch: tuple(node.raft.end_of_epoch(epoch)) for epoch in (0, 1, 2, 3, 4)}
    assert ends == {0: (0, 0), 1: (1, 10), 2: (1, 10), 3: (3, 14), 4: (3, 14)}
    assert [node.raft.epoch_before(offset) for offset in (0, 1, 10, 11, 14)] == [0, 1, 1, 3, 3]


def test_an_empty_log_ends_in_epoch_0(node: LogNode) -> None:
    assert node.raft.last_epoch == 0
    assert tuple(node.raft.end_of_epoch(7)) == (0, 0)
    assert node.raft.snapshots.latest is None
    assert node.raft.snapshots.earliest is None


def test_an_epoch_older_than_the_log_gives_its_snapshot(node: LogNode) -> None:
    node.follow(*history((2, 3), (5, 3)))
    node.raft.commit_to(12)
    snapshot = CheckpointId(8, 5)
    node.write_snapshot(snapshot, "a")
    node.raft.start_at(snapshot)
    assert tuple(node.raft.end_of_epoch(3)) == (5, 8)
    assert tuple(node.raft.end_of_epoch(5)) == (5, 12)
    assert node.raft.start_offset == 8
    with pytest.raises(LookupError):
        node.raft.read(7, 1000)


# Cut


def test_a_follower_cuts_what_its_leader_does_not_have(node: LogNode) -> None:
    sent = history((1, 2), (2, 2), (3, 1))
    node.follow(*sent)
    node.raft.commit_to(4)
    assert node.raft.truncate_to(6) == 6
    assert (node.raft.end_offset, node.raft.flushed_end_offset, node.raft.last_epoch) == (6, 6, 2)
    node.settle()
    assert node.epochs() == [(1, 0), (2, 4)]
    other = batch(6, 4, "other")
    node.follow(other)
    assert node.batches() == [*sent[:3], other]
    assert node.flushed == [10, 7]
    assert node.epochs() == [(1, 0), (2, 4), (4, 6)]


@pytest.mark.parametrize("offset", [0, 3, 4, 5])
def test_nothing_committed_is_cut(node: LogNode, offset: int) -> None:
    """Also not with a batch that begins below the committed end."""
    sent = [*history((1, 2)), batch(4, 1, "a", "b", "c")]
    node.follow(*sent)
    node.raft.commit_to(5)
    with pytest.raises(ValueError, match="committed up to 5"):
        node.raft.truncate_to(offset)
    assert node.batches() == sent


def test_a_flush_from_before_a_cut_proves_nothing_behind_it(node: LogNode) -> None:
    sent = history((1, 4))
    node.follow(sent[0])
    node.runtime.offload_delay_ms = lambda: 50.0
    node.raft.append_fetched(memoryview(b"".join(sent[1:])))
    node.runtime.run_turn()
    node.raft.truncate_to(4)
    node.raft.append_fetched(memoryview(batch(4, 2, "a", "b", "c")))
    node.runtime.advance(60)
    assert node.raft.flushed_end_offset <= 4
    node.runtime.advance(200)
    assert node.raft.flushed_end_offset == 7


def test_the_commit_of_a_leader_ends_with_a_cut(node: LogNode) -> None:
    """What a former leader said of offsets that this log lacks does not commit what the next one sends there."""
    sent = history((1, 3))
    node.follow(*sent)
    node.raft.commit_to(20)
    assert node.raft.committed_end == 6
    node.raft.append_fetched(memoryview(batch(6, 1, "x", "y")))
    node.raft.truncate_to(6)
    node.follow(batch(6, 2, "a"))
    assert node.committed == [6]


def test_a_log_goes_on_behind_a_snapshot_that_was_installed(node: LogNode) -> None:
    node.follow(*history((1, 3)))
    node.write_snapshot(CheckpointId(4, 1), "old")
    node.install(CheckpointId(100, 7), "a", "b")
    raft = node.raft
    assert (raft.start_offset, raft.end_offset, raft.flushed_end_offset, raft.committed_end) == (100,) * 4
    assert (raft.last_epoch, node.committed) == (7, [])
    assert tuple(raft.end_of_epoch(9)) == (7, 100)
    node.runtime.advance(10)
    assert raft.log.aux.names().count(CheckpointId(4, 1).name) == 0
    assert raft.snapshots.earliest == raft.snapshots.latest == (100, 7)
    with pytest.raises(ValueError, match="epoch 6 at offset 100"):
        raft.append_fetched(memoryview(batch(100, 6, "c")))
    node.follow(batch(100, 7, "c"), batch(101, 8, "d"))
    assert node.flushed[-1] == 102
    assert node.epochs() == [(7, 100), (8, 101)]
    node.runtime.crash()
    again = LogNode(node.disk, seed=1).start()
    assert again.loaded is not None
    assert list(again.loaded.image.topics) == ["a", "b", "c", "d"]
    assert (again.raft.start_offset, again.raft.committed_end) == (100, 100)


def test_a_log_goes_on_behind_no_snapshot_that_is_not_there(node: LogNode) -> None:
    sent = history((1, 3))
    node.follow(*sent)
    with pytest.raises(ValueError, match="no such snapshot"):
        node.raft.truncate_fully_to(100, 7)
    node.raft.commit_to(6)
    node.write_snapshot(CheckpointId(4, 1), "old")
    with pytest.raises(ValueError, match="committed up to 6"):
        node.raft.truncate_fully_to(4, 1)
    assert node.batches() == sent


# Log start


def test_whole_segments_below_a_snapshot_go() -> None:
    node = LogNode(segment_bytes=600).start()
    node.follow(*history((1, 6), (2, 6)))
    node.raft.commit_to(24)
    older, newer = CheckpointId(6, 1), CheckpointId(20, 2)
    node.write_snapshot(older, "a")
    node.write_snapshot(newer, "b")
    size = node.raft.log.size_bytes()
    node.raft.start_at(newer)
    assert node.raft.start_offset == 20
    assert node.raft.log.size_bytes() < size / 2
    node.settle()
    assert node.epochs() == [(2, 20)]
    node.runtime.advance(10)
    assert (node.raft.snapshots.earliest, older.name in node.raft.log.aux.names()) == (newer, False)
    node.runtime.crash(power_cut=False)
    again = LogNode(node.disk, seed=1).start()
    assert again.raft.end_offset == 24
    assert again.warnings == []


def test_a_snapshot_below_the_log_start_that_a_crash_brings_back_is_none(node: LogNode) -> None:
    """A follower whose last record is of epoch 3 must take a snapshot: whether its log is the leader's below offset 8
    the leader can't know. By the older snapshot it would seem to be, and the two logs would differ for ever.
    """
    older, newer, file = start_behind_a_snapshot(node)
    node.stop()
    again = LogNode(node.disk, seed=1).start()
    again.raft.log.aux.write(older.name, file)
    again.stop()
    last = LogNode(node.disk, seed=2).start()
    assert last.raft.start_offset == 8
    assert last.raft.snapshots.earliest == newer
    assert needed_snapshot(last.raft, DIVERGED) == (8, 4)
    last.runtime.advance(10)
    assert older.name not in last.raft.log.aux.names()


def test_a_log_that_a_crash_brings_back_has_its_epochs(node: LogNode) -> None:
    """The start of the log is written later than the file of epochs, which begins behind the snapshot then."""
    start_behind_a_snapshot(node)
    assert node.epochs() == [(4, 8)]
    node.runtime.crash(power_cut=False)
    again = LogNode(node.disk, seed=1).start()
    assert again.raft.start_offset == 0
    assert again.epochs() == [(1, 0), (4, 6)]
    assert divergence(again.raft, DIVERGED) == (1, 6)


DIVERGED = FetchRequest(ReplicaKey(3), epoch=5, offset=9, last_epoch=3)
"""A fetch of a follower whose records from offset 6 on are of epoch 3, which the leader doesn't have."""


def start_behind_a_snapshot(node: LogNode) -> tuple[CheckpointId, CheckpointId, bytes]:
    """Let the log of two epochs start behind the second one of two snapshots; return both, and the first one's file."""
    node.follow(*history((1, 3), (4, 3)))
    node.raft.commit_to(12)
    older, newer = CheckpointId(4, 1), CheckpointId(8, 4)
    node.write_snapshot(older, "a")
    node.write_snapshot(newer, "b")
    file = node.raft.log.aux.read(older.name)
    assert file is not None
    node.raft.start_at(newer)
    node.settle()
    node.runtime.advance(10)
    return older, newer, bytes(file)


def cleaner(node: LogNode, **retention: int) -> Snapshots:
    """What takes snapshots of this log, and deletes old ones."""
    config = BrokerConfig({f"metadata.max.retention.{key}": value for key, value in retention.items()})
    return Snapshots(node.runtime, config, node.raft, Events(), Completion)


def clean(node: LogNode, **retention: int) -> tuple[list[CheckpointId], int]:
    """Deletes what may go; the snapshots and the log start that are left."""
    node.runtime.run(cleaner(node, **retention)._clean(node.raft.snapshots))
    node.runtime.advance(10)
    names = [snapshot_id.name for snapshot_id in node.raft.snapshots.ids]
    assert [name for name in node.raft.log.aux.names() if name.endswith(".checkpoint")] == names
    return node.raft.snapshots.ids, node.raft.start_offset


IDS = [CheckpointId(2, 1), CheckpointId(6, 1), CheckpointId(12, 1), CheckpointId(20, 1)]


@pytest.fixture
def snapshots() -> LogNode:
    """A voter with four snapshots, one a day, beside a log of several segments."""
    node = LogNode(segment_bytes=600).start()
    node.follow(*history((1, 12)))
    node.raft.commit_to(24)
    for day, snapshot_id in enumerate(IDS):
        node.write_snapshot(snapshot_id, "a", last_contained_ms=node.runtime.now_ms() + day * DAY_MS)
    node.runtime.advance(len(IDS) * DAY_MS)
    return node


def test_snapshots_and_log_stay_within_their_size(snapshots: LogNode) -> None:
    each = snapshots.raft.snapshots.files.size(IDS[0].name) or 0
    total = snapshots.raft.log.size_bytes() + 4 * each
    assert clean(snapshots, bytes=total, ms=-1) == (IDS, 0)
    assert clean(snapshots, bytes=-1, ms=-1) == (IDS, 0)
    last = (IDS[2:], 12)
    seen = []
    for bytes_max in (total - 1, total * 3 // 4, total // 2, 1):
        left = clean(snapshots, bytes=bytes_max, ms=-1)
        assert snapshots.raft.log.size_bytes() + each * len(left[0]) <= bytes_max or left == last
        seen.append(left)
    assert seen[0] != last
    assert seen[-1] == last, "two snapshots stay, and the log behind the older one"


def test_snapshots_go_by_the_age_of_what_they_contain(snapshots: LogNode) -> None:
    """Not by the age of their files, which a copy changes (Kafka's ``readSnapshotTimestamp``)."""
    assert clean(snapshots, bytes=-1, ms=4 * DAY_MS + 1_000) == (IDS, 0)
    assert clean(snapshots, bytes=-1, ms=3 * DAY_MS + 1_000) == (IDS[1:], 6)
    assert clean(snapshots, bytes=-1, ms=1) == (IDS[2:], 12)


def test_a_log_does_not_start_behind_its_end(node: LogNode) -> None:
    """A snapshot of the leader's is there before the log begins behind it."""
    node.follow(*history((1, 4)))
    node.raft.commit_to(8)
    for snapshot_id in (CheckpointId(4, 1), CheckpointId(50, 2), CheckpointId(60, 3)):
        node.write_snapshot(snapshot_id, "a")
    assert clean(node, bytes=1)[1] == 4
    assert node.raft.snapshots.ids == [(4, 1), (50, 2), (60, 3)]


def test_the_only_snapshot_and_its_log_stay(node: LogNode) -> None:
    node.follow(*history((1, 12)))
    node.write_snapshot(IDS[0], "a")
    assert clean(node, bytes=1, ms=1) == (IDS[:1], 0)


def test_a_snapshot_without_a_header_has_no_age(snapshots: LogNode) -> None:
    snapshots.raft.log.aux.write(IDS[0].name, b"rubbish")
    assert clean(snapshots, bytes=-1, ms=1) == (IDS, 0)


def test_the_log_behind_a_held_snapshot_stays(snapshots: LogNode) -> None:
    """A follower that has fetched a snapshot goes on in the log where it ends."""
    held = IDS[1]
    snapshots.raft.snapshots.hold(held)
    assert clean(snapshots, bytes=1) == (IDS[1:], 6)
    assert snapshots.read(6)
    snapshots.runtime.advance(HOLD_MS)
    assert clean(snapshots, bytes=1) == (IDS[2:], 12)


# Start


def test_a_start_flushes_what_a_kill_left_in_the_page_cache(node: LogNode) -> None:
    """A power cut after it would take what this voter counts."""
    sent = history((1, 3))
    node.runtime.offload_delay_ms = lambda: 1e9
    node.raft.append_fetched(memoryview(b"".join(sent)))
    node.runtime.run_turn()
    node.runtime.crash(power_cut=False)
    again = LogNode(node.disk, seed=1).start()
    assert again.raft.flushed_end_offset == 6
    again.runtime.crash(power_cut=True)
    assert LogNode(node.disk, seed=2).start().batches() == sent


@pytest.mark.parametrize("file", [b"", b"rubbish", b"0\n1\n9 2\n", b"0\n2\n1 0\n7 8\n", None])
def test_a_start_mends_the_file_of_epochs(node: LogNode, file: bytes | None) -> None:
    """The log itself says which epochs it has."""
    sent = history((1, 3), (4, 2))
    node.follow(*sent)
    aux = node.raft.log.aux
    aux.delete(EPOCHS_NAME) if file is None else aux.write(EPOCHS_NAME, file)
    node.runtime.crash()
    again = LogNode(node.disk, seed=1).start()
    assert again.epochs() == epochs_of(sent) == [tuple(entry) for entry in again.raft.epochs.entries]


def test_a_log_in_an_epoch_behind_the_last_one_does_not_start(node: LogNode) -> None:
    node.follow(batch(0, EPOCH_MAX, "a"), batch(1, EPOCH_MAX + 1, "b"))
    node.runtime.crash()
    with pytest.raises(ValueError, match=r"at offset 1: epoch 2147483647: no quorum comes to it.*To go on"):
        LogNode(node.disk, seed=1).start()


@pytest.mark.parametrize("snapshot", [CheckpointId(4, EPOCH_MAX + 1), CheckpointId(2**63, 1)])
def test_a_snapshot_that_no_log_comes_to_is_not_loaded(node: LogNode, snapshot: CheckpointId) -> None:
    node.raft.log.aux.write(snapshot.name, b"")
    node.runtime.crash()
    with pytest.raises(ValueError, match=f"{snapshot.name}: no quorum comes to it"):
        LogNode(node.disk, seed=1).start()


def test_a_lost_file_of_epochs_is_mended_from_below_the_snapshot(node: LogNode) -> None:
    sent = history((1, 3), (4, 3))
    node.follow(*sent)
    node.write_snapshot(CheckpointId(10, 4), *[f"e-{n}" for n in range(3)])
    node.raft.log.aux.delete(EPOCHS_NAME)
    node.runtime.crash()
    again = LogNode(node.disk, seed=1).start()
    assert again.epochs() == [(1, 0), (4, 6)]
    assert again.raft.committed_end == 10


@pytest.mark.parametrize(
    ("snapshot", "emptied"),
    [((6, 1), False), ((10, 1), False), ((12, 1), True), ((10, 2), True), ((4, 2), True)],
)
def test_a_start_empties_a_log_that_lacks_what_its_snapshot_has(
    node: LogNode, snapshot: tuple[int, int], emptied: bool
) -> None:
    """As after a crash between the last chunk of a fetched snapshot and the cut of the log."""
    node.follow(*history((1, 5)))
    checkpoint_id = CheckpointId(*snapshot)
    node.write_snapshot(checkpoint_id, "a")
    node.runtime.crash()
    again = LogNode(node.disk, seed=1).start()
    assert again.raft.start_offset == (checkpoint_id.end_offset if emptied else 0)
    assert again.raft.end_offset == (checkpoint_id.end_offset if emptied else 10)
    assert again.raft.last_epoch == checkpoint_id.epoch
    assert bool(again.warnings) == emptied
    assert again.raft.committed_end == checkpoint_id.end_offset


# Deaths


def whole(batches: list[bytes], *possible: list[bytes]) -> bool:
    """Whether the log is one of the possible ones up to some batch."""
    return any(batches == expected[: len(batches)] for expected in possible)


def test_a_death_in_the_middle_of_an_append() -> None:
    """What was told flushed is there, what is there is a prefix, and the epochs are those of the log."""
    sent = history((1, 3), (2, 2), (5, 4))

    def prepare(it: LogNode) -> None:
        it.follow(*sent[:2])

    def story(it: LogNode) -> None:
        it.follow(*sent[2:4])
        it.follow(*sent[4:7])
        it.follow(*sent[7:])

    deaths = Deaths(prepare, story)
    for dead, again, where in deaths:
        batches = again.batches()
        assert whole(batches, sent), where
        assert again.raft.end_offset >= max(dead.flushed), where
        assert again.epochs() == epochs_of(batches), where
        again.follow(*sent[len(batches) :])
        assert again.batches() == sent, where
        assert again.epochs() == epochs_of(sent), where
    assert deaths.count > 50


def test_a_death_in_the_middle_of_a_cut() -> None:
    """The log is the old one, or cut, and then some of the new leader's: never old records behind new ones."""
    old = history((1, 3), (2, 4))
    new = [*old[:4], batch(8, 3, "new", "new-1"), batch(10, 5, "new-2")]

    def prepare(it: LogNode) -> None:
        it.follow(*old)
        it.raft.commit_to(6)

    def story(it: LogNode) -> None:
        it.raft.truncate_to(8)
        it.flushed.clear()
        it.follow(*new[4:])

    deaths = Deaths(prepare, story)
    for dead, again, where in deaths:
        batches = again.batches()
        assert whole(batches, old, new), where
        assert again.raft.end_offset >= max([6, *dead.flushed] if dead.flushed != [14] else [6]), where
        assert again.epochs() == epochs_of(batches), where
        if not whole(batches, new):
            again.raft.truncate_to(8)
            batches = again.batches()
        again.follow(*new[len(batches) :])
        assert again.batches() == new, where
        assert again.epochs() == epochs_of(new), where
    assert deaths.count > 40


@pytest.mark.parametrize("seed", first(6, range(20)))
def test_random_lives(seed: int) -> None:
    """Appends, elections of other leaders, cuts, failing writes, slow disks, kills and power cuts. After each life
    the log is a prefix of what its leader has, and reaches all that was told flushed.
    """
    chance = Random(seed)
    disk = FakeDisk()
    leader: list[bytes] = []
    epoch = 1
    node = LogNode(disk, seed=seed, segment_bytes=1_000).start()
    committed = 0
    for life in range(6):
        node.runtime.offload_delay_ms = lambda: chance.choice([0.0, 0.0, 5.0, 30.0])
        for _ in range(chance.randrange(5, 30)):
            what = chance.random()
            end = node.raft.end_offset
            if what < 0.6:
                mine = [entry for entry in leader if RecordBatch(memoryview(entry)).base_offset >= end]
                for _ in range(chance.randrange(3)):
                    offset = end_of(leader[-1]) if leader else 0
                    leader.append(batch(offset, epoch, *[f"{life}-{offset}-{n}" for n in range(2)]))
                    mine.append(leader[-1])
                node.raft.append_fetched(memoryview(b"".join(mine)))
            elif what < 0.75:
                flushed = max(node.raft.flushed_end_offset, committed)
                committed = max(committed, chance.randrange(committed, flushed + 1) // 2 * 2)
                node.raft.commit_to(committed)
            elif what < 0.9:
                # Another leader: it has all that is committed, and maybe more.
                epoch += chance.randrange(1, 3)
                kept = chance.randrange(committed, (end_of(leader[-1]) if leader else 0) + 1) // 2 * 2
                leader = [entry for entry in leader if end_of(entry) <= kept]
                if node.raft.end_offset > kept:
                    node.raft.truncate_to(kept)
            elif disk.struck < 3:
                disk.inject(Fault(operation="pwritev", path_part=".log", error_number=28))
            node.runtime.advance(chance.choice([0, 1, 4, 40]))
        flushed_end = node.raft.flushed_end_offset
        disk.heal()
        node.runtime.crash(power_cut=chance.random() < 0.7)
        node = LogNode(disk, seed=1000 * seed + life, segment_bytes=1_000).start()
        batches = node.batches()
        assert batches == leader[: len(batches)]
        assert node.raft.end_offset >= flushed_end >= committed
        assert node.epochs() == epochs_of(batches)
