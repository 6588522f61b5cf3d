"""Snapshots that move by chunks: what the leader answers, and what a follower makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from blumfeld.metadata.image.checkpoint import (
    CheckpointId,
    checkpoint_parts,
    decode_checkpoint,
    encode_checkpoint,
)
from blumfeld.metadata.image.checkpoint_reader import BATCH_BYTES_MAX, CheckpointReader
from blumfeld.metadata.image.records import image_of, image_records
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.metadata.slices import SECTION_RECORD_COST, SLICE_RECORDS
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.metadata_records import PartitionRecord, TopicRecord
from blumfeld.wire.messages.raft_records import VotersRecord, VotersRecordVoter
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft import snapshot_download
from blumfeld_consensus_kraft.kept_snapshots import HOLD_MS
from blumfeld_consensus_kraft.snapshot_download import SnapshotDownload
from blumfeld_consensus_kraft.snapshot_image import load_snapshot
from blumfeld_consensus_kraft.snapshot_source import CHUNK_BYTES_MAX, SnapshotChunk, SnapshotSource
from blumfeld_consensus_kraft.stored_state import Loaded
from blumfeld_kit.fakes.files import Fault
from tests.everyday import first
from tests.metadata.acl_section import Acls, AclSection, entry
from tests.plugins.consensus_kraft.kraft_node import CLUSTER_ID
from tests.plugins.consensus_kraft.log_node import TIME_MS, Deaths, LogNode, batch, history, topics

ID = CheckpointId(50, 4)
VOTERS = VotersRecord(
    voters=[VotersRecordVoter(voter_id=number, voter_directory_id=bytes([number]) * 16) for number in (1, 2)]
)


def content(topics: int = 5, partitions: int = 3) -> list[Message]:
    records: list[Message] = []
    for topic in range(1, topics + 1):
        topic_id = topic.to_bytes(16)
        records.append(TopicRecord(name=f"t{topic}", topic_id=topic_id))
        records += partition_records(topic_id, partitions)
    return records


def partition_records(topic_id: bytes, count: int) -> list[Message]:
    directories = [b"\1" * 16, b"\2" * 16]
    return [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            directories=directories,
        )
        for number in range(count)
    ]


def snapshot_of(records: list[Message], epoch: int = ID.epoch, timestamp_ms: int = TIME_MS) -> bytes:
    """The file of a leader of ``kraft.version`` 1."""
    return encode_checkpoint(
        records,
        epoch=epoch,
        timestamp_ms=timestamp_ms,
        last_contained_ms=TIME_MS - 7,
        kraft_version=1,
        voters=VOTERS,
    )


class Transfer:
    """A leader with a snapshot, and a follower that fetches it."""

    def __init__(self, data: bytes, snapshot: CheckpointId = ID) -> None:
        self.leader = LogNode().start()
        self.leader.raft.log.aux.write(snapshot.name, data)
        self.leader.raft.snapshots.added(snapshot)
        self.source = SnapshotSource(self.leader.runtime, self.leader.raft.snapshots)
        self.follower = LogNode(seed=1).start()
        self.download = SnapshotDownload(self.follower.runtime, self.follower.raft.snapshots)

    def ask(self, bytes_max: int, position: int | None = None, snapshot: CheckpointId = ID) -> SnapshotChunk:
        position = self.download.position if position is None else position
        return self.leader.runtime.run(self.source.chunk(snapshot, position, bytes_max))

    def take(self, chunk: SnapshotChunk) -> bool:
        """The follower gets an answer; whether all is there."""
        return self.follower.runtime.run(self.download.received(chunk))

    def fetch(self, bytes_max: int = 1 << 20) -> Loaded:
        """All that is left, and the image."""
        while not self.take(self.ask(bytes_max)):
            pass
        return self.finish()

    def finish(self) -> Loaded:
        return self.follower.runtime.run(self.download.finish(CLUSTER_ID))

    @property
    def left_over(self) -> list[str]:
        """Files of the follower that belong to snapshots."""
        files = self.follower.runtime.files.list_dir(self.follower.raft.log.aux.directory)  # type: ignore[attr-defined]
        return [name for name in files if "checkpoint" in name and "epoch" not in name]


@pytest.fixture
def transfer() -> Transfer:
    """A small snapshot that is to be fetched from node 1."""
    made = Transfer(snapshot_of(content()))
    made.download.aim(1, ID)
    return made


# The leader


def test_chunks_of_any_size_make_the_file(transfer: Transfer) -> None:
    whole = snapshot_of(content())
    for bytes_max in (1, 7, 100, len(whole) - 1, len(whole), len(whole) + 1, 2**31 - 1):
        file_bytes, position = b"", 0
        while position < len(whole):
            chunk = transfer.ask(bytes_max, position)
            assert (chunk.error, chunk.size_bytes, chunk.position) == (
                ErrorCode.NONE,
                len(whole),
                position,
            )
            assert len(chunk.data) == min(bytes_max, len(whole) - position)
            file_bytes += chunk.data
            position += len(chunk.data)
        assert file_bytes == whole


@pytest.mark.parametrize(
    ("snapshot", "position", "error"),
    [
        (CheckpointId(50, 3), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (CheckpointId(51, 4), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (ID, -1, ErrorCode.POSITION_OUT_OF_RANGE),
        (ID, 10**9, ErrorCode.POSITION_OUT_OF_RANGE),
        (ID, len(snapshot_of(content())), ErrorCode.POSITION_OUT_OF_RANGE),
        (CheckpointId(0, 0), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
    ],
)
def test_what_the_leader_does_not_have(
    transfer: Transfer, snapshot: CheckpointId, position: int, error: ErrorCode
) -> None:
    """Also not the snapshot that it was formatted with: its content is in the log."""
    transfer.leader.raft.snapshots.added(CheckpointId(0, 0))
    transfer.leader.raft.log.aux.write(CheckpointId(0, 0).name, b"formatted")
    chunk = transfer.ask(100, position, snapshot)
    assert (chunk.error, chunk.data) == (error, b"")


def test_a_chunk_has_a_bound_whatever_is_allowed() -> None:
    big = CheckpointId(9, 1)
    transfer = Transfer(bytes(CHUNK_BYTES_MAX + 10), big)
    assert len(transfer.ask(2**31 - 1, 0, big).data) == CHUNK_BYTES_MAX
    assert len(transfer.ask(0, 0, big).data) == 1


def test_a_snapshot_that_is_fetched_is_held(transfer: Transfer) -> None:
    kept = transfer.leader.raft.snapshots
    transfer.ask(1, 0)
    transfer.leader.runtime.advance(HOLD_MS - 1)
    assert kept.is_held(ID)
    transfer.leader.runtime.advance(2)
    assert not kept.is_held(ID)


# The follower


@pytest.mark.parametrize("bytes_max", [1, 13, 200, 1 << 20])
def test_a_snapshot_is_fetched_and_loaded(transfer: Transfer, bytes_max: int) -> None:
    loaded = transfer.fetch(bytes_max)
    aux = transfer.follower.raft.log.aux
    assert aux.read(ID.name) == snapshot_of(content())
    assert loaded.image == image_of(CLUSTER_ID, content(), ID.end_offset - 1, ID.epoch)
    assert (loaded.image.offset, loaded.image.epoch) == (49, 4)
    assert (loaded.snapshot, loaded.last_epoch, loaded.last_timestamp_ms) == (ID, 4, TIME_MS - 7)
    assert (loaded.kraft_version, loaded.voters) == (1, VOTERS)
    assert transfer.follower.raft.snapshots.latest == ID
    assert transfer.left_over == [ID.name]
    transfer.follower.raft.truncate_fully_to(*ID)
    transfer.follower.follow(batch(50, 4, "after"))
    again = LogNode(transfer.follower.disk, seed=2).start()
    assert again.loaded is not None
    assert list(again.loaded.image.topics) == [*loaded.image.topics, "after"]
    assert (again.loaded.kraft_version, again.loaded.voters) == (1, VOTERS)


def test_a_newer_snapshot_takes_the_place_of_one_that_arrives(transfer: Transfer) -> None:
    transfer.take(transfer.ask(100))
    newer = CheckpointId(60, 5)
    other = Transfer(snapshot_of(content(7), epoch=5), newer)
    transfer.download.aim(1, newer)
    chunk = other.ask(1 << 20, 0, newer)
    assert transfer.take(chunk)
    assert len(transfer.finish().image.topics) == 7
    assert transfer.left_over == [newer.name]


@pytest.mark.parametrize(
    "changed",
    [
        lambda chunk: chunk._replace(position=chunk.position + 1),
        lambda chunk: chunk._replace(position=0),
        lambda chunk: chunk._replace(size_bytes=chunk.size_bytes + 1),
        lambda chunk: chunk._replace(data=b""),
        lambda chunk: chunk._replace(data=bytes(chunk.size_bytes)),
    ],
    ids=["behind", "again", "another size", "nothing", "too much"],
)
def test_an_answer_that_does_not_follow_begins_anew(
    transfer: Transfer, changed: Callable[[SnapshotChunk], SnapshotChunk]
) -> None:
    transfer.take(transfer.ask(100))
    with pytest.raises(ValueError, match="where 100 comes next"):
        transfer.take(changed(transfer.ask(100)))
    assert (transfer.download.position, transfer.download.snapshot) == (0, None)
    assert transfer.left_over == []
    transfer.download.aim(1, ID)
    transfer.fetch(100)


@pytest.mark.parametrize("seed", first(10, range(30)))
def test_a_flipped_bit_is_never_installed(seed: int) -> None:
    """But for one in the fields of a batch that no CRC covers and nothing reads: then the image is right."""
    chance = Random(seed)
    data = bytearray(snapshot_of(content()))
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    transfer = Transfer(bytes(data))
    transfer.download.aim(1, ID)
    try:
        loaded = transfer.fetch(chance.choice([50, 1 << 20]))
    except ValueError:
        assert transfer.left_over == []
        assert transfer.follower.raft.snapshots.latest is None
    else:
        assert loaded.image == image_of(CLUSTER_ID, content(), 49, 4)
        assert loaded.voters == VOTERS


def without(part: int) -> bytes:
    """A snapshot that lacks one of its batches."""
    parts = [
        part for part in checkpoint_parts(content(300, 10), epoch=4, timestamp_ms=TIME_MS) if part is not None
    ]
    assert len(parts) == 6
    return b"".join(parts[:part] + parts[part + 1 :])


@pytest.mark.parametrize("part", range(6))
def test_a_snapshot_that_lacks_a_batch_is_not_installed(part: int) -> None:
    """A batch has a CRC of its own, so only the offsets tell that one is missing."""
    transfer = Transfer(without(part))
    transfer.download.aim(1, ID)
    with pytest.raises(ValueError, match=r"^0+50-0+4\.checkpoint: "):
        transfer.fetch(10_000)
    assert transfer.left_over == []
    with pytest.raises(ValueError, match=r"^x: "):
        decode_checkpoint(without(part), "x")


def test_a_snapshot_of_another_epoch_is_not_installed() -> None:
    transfer = Transfer(snapshot_of(content(), epoch=3))
    transfer.download.aim(1, ID)
    with pytest.raises(ValueError, match="epoch 3 at offset 0, where all have epoch 4"):
        transfer.fetch()


def test_more_behind_the_end_is_not_installed() -> None:
    transfer = Transfer(snapshot_of(content()) + snapshot_of(content()))
    transfer.download.aim(1, ID)
    with pytest.raises(ValueError, match="behind the last record"):
        transfer.fetch()


def test_records_that_this_build_can_not_read_are_not_installed(transfer: Transfer) -> None:
    """The bytes are sound, so they are seen only when the image is made. The log was not cut yet."""
    parts = [part for part in checkpoint_parts([], epoch=4, timestamp_ms=TIME_MS) if part is not None]
    unknown = build_batch([Record(None, b"\x01\xff\x7f\x00")], base_offset=1, leader_epoch=4)
    last = bytearray(parts[1])
    last[0:8] = (2).to_bytes(8)
    transfer = Transfer(bytes(parts[0] + unknown + last))
    transfer.download.aim(1, ID)
    with pytest.raises(ValueError, match=r"^0+50-0+4\.checkpoint: "):
        transfer.fetch()
    assert transfer.left_over == []
    assert transfer.follower.raft.snapshots.latest is None


def test_a_full_disk_ends_the_download(transfer: Transfer) -> None:
    transfer.take(transfer.ask(100))
    transfer.follower.disk.inject(Fault(operation="pwritev", path_part="checkpoint", error_number=28))
    with pytest.raises(OSError, match="No space"):
        transfer.take(transfer.ask(100))
    assert transfer.left_over == []
    transfer.download.aim(1, ID)
    transfer.fetch(100)


def test_a_commit_that_fails_installs_nothing(transfer: Transfer) -> None:
    transfer.follower.disk.inject(Fault(operation="fdatasync", path_part="checkpoint"))
    with pytest.raises(OSError, match="error"):
        transfer.fetch()
    assert transfer.left_over == []
    assert transfer.follower.raft.snapshots.latest is None
    transfer.download.aim(1, ID)
    transfer.fetch()


def test_a_download_that_is_aborted_while_a_worker_writes(transfer: Transfer) -> None:
    """The worker's file stays open until it is done, and nothing of it is left."""
    results: list[bool] = []

    async def take(chunk: SnapshotChunk) -> None:
        results.append(await transfer.download.received(chunk))

    transfer.follower.runtime.offload_delay_ms = lambda: 10.0
    for step in range(1, 4):
        transfer.download.aim(1, ID)
        transfer.follower.runtime.spawn(take(transfer.ask(1 << 20, 0)), "take")
        transfer.follower.runtime.advance(9 * step)
        transfer.download.abort()
        transfer.follower.runtime.advance(100)
    assert results == [False, False, True]
    assert transfer.left_over == []
    transfer.download.aim(1, ID)
    transfer.fetch(100)


def test_an_aborted_download_is_removed_by_a_worker(transfer: Transfer) -> None:
    """To remove a large file takes long, and the node serves others meanwhile."""
    transfer.take(transfer.ask(100))
    operations = transfer.follower.disk.operations
    operations.clear()
    transfer.download.abort()
    assert not operations
    transfer.follower.runtime.advance(1)
    assert operations["unlink"] == 1
    assert transfer.left_over == []


def test_a_chunk_that_a_worker_wrote_for_another_leader_does_not_count(
    transfer: Transfer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader changes while a worker is within a write."""
    take = snapshot_download._take

    def take_meanwhile(*given: Any) -> None:
        take(*given)
        transfer.download.aim(3, ID)

    with monkeypatch.context() as patch:
        patch.setattr(snapshot_download, "_take", take_meanwhile)
        assert not transfer.take(transfer.ask(1 << 20))
    assert (transfer.download.leader_id, transfer.download.position) == (3, 0)
    assert transfer.left_over == []
    transfer.fetch()


def test_finish_without_a_download_is_refused(transfer: Transfer) -> None:
    with pytest.raises(ValueError, match="no snapshot was fetched"):
        transfer.finish()
    transfer.download.abort()
    assert not transfer.take(SnapshotChunk(ErrorCode.NONE, 10, 0, b"x")), "an answer that came too late"


def test_a_batch_of_absurd_length_is_not_waited_for() -> None:
    reader = CheckpointReader("x")
    head = bytes(8) + (BATCH_BYTES_MAX + 1).to_bytes(4)
    with pytest.raises(ValueError, match="a batch of 67108865 bytes"):
        list(reader.feed(head))


@pytest.mark.parametrize("size", [1, 11, 12, 61, 500])
def test_the_reader_takes_pieces_of_any_size(size: int) -> None:
    data = snapshot_of(content(30, 10))
    reader = CheckpointReader("x", 4)
    file_bytes = b""
    for at in range(0, len(data), size):
        file_bytes += b"".join(bytes(piece.data) for piece in reader.feed(data[at : at + size]))
    reader.finish()
    whole = CheckpointReader("x")
    assert file_bytes == b"".join(bytes(piece.data) for piece in whole.feed(data))
    assert (reader.voters, reader.kraft_version, reader.last_contained_ms) == (VOTERS, 1, TIME_MS - 7)


def test_an_image_is_loaded_over_many_turns() -> None:
    """Also a large topic, whose partitions come in many steps."""
    large = TopicRecord(name="large", topic_id=b"l" * 16)
    records = [*content(300, 5), large, *partition_records(large.topic_id, 3_000)]
    node = LogNode().start()
    node.raft.log.aux.write(ID.name, snapshot_of(records))
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns < 10_000:
            node.runtime.call_later(0, turn)

    turn()
    loaded = node.runtime.run(load_snapshot(node.runtime, node.raft.snapshots.files, ID, CLUSTER_ID))
    assert turns >= len(records) // SLICE_RECORDS
    assert loaded.image == image_of(CLUSTER_ID, records, 49, 4)
    assert list(image_records(loaded.image)) == list(image_records(image_of(CLUSTER_ID, records, 49, 4)))
    turns = 10_000
    node.runtime.run_turn()


def test_records_of_a_section_are_loaded_over_more_turns() -> None:
    """An ACL takes longer than a partition."""
    sizes: list[int] = []

    class Counted(AclSection):
        def replay(self, value: Acls, records: Sequence[Message]) -> Acls:
            sizes.append(len(records))
            return super().replay(value, records)

    entries: list[Message] = [entry(number, f"User:{number}") for number in range(500)]
    kinds = SectionKinds([Counted()])
    node = LogNode().start()
    node.raft.log.aux.write(ID.name, snapshot_of([*content(), *entries]))
    loading = load_snapshot(node.runtime, node.raft.snapshots.files, ID, CLUSTER_ID, kinds)
    image = node.runtime.run(loading).image
    assert len(image.section("acls")) == sum(sizes) == len(entries)
    assert max(sizes) <= SLICE_RECORDS // SECTION_RECORD_COST


# Deaths


def test_a_death_at_any_time_of_an_installation() -> None:
    """From the first chunk to the cut of the log and the records behind it: afterwards the node has its old log, or the
    snapshot, and the installation can be done again.
    """
    old, after = history((1, 3)), [batch(50, 4, "after")]
    leader = LogNode().start()
    leader.raft.log.aux.write(ID.name, snapshot_of(content()))
    leader.raft.snapshots.added(ID)
    source = SnapshotSource(leader.runtime, leader.raft.snapshots)

    def prepare(node: LogNode) -> None:
        node.follow(*old)
        node.raft.commit_to(4)

    def story(node: LogNode) -> None:
        node.flushed.clear()
        download = SnapshotDownload(node.runtime, node.raft.snapshots)
        download.aim(1, ID)
        chunks: Iterator[SnapshotChunk] = iter(
            lambda: leader.runtime.run(source.chunk(ID, download.position, 700)), None
        )
        for chunk in chunks:
            if node.runtime.run(download.received(chunk)):
                break
        node.runtime.run(download.finish(CLUSTER_ID))
        node.raft.truncate_fully_to(*ID)
        node.follow(*after)

    deaths = Deaths(prepare, story)
    installed = 0
    for dead, again, where in deaths:
        assert again.loaded is not None
        batches, names = again.batches(), list(again.loaded.image.topics)
        assert not [name for name in again.raft.log.aux.names() if name.endswith(".part")]
        if again.raft.snapshots.latest == ID:
            installed += 1
            assert again.raft.start_offset == 50, where
            assert names == [f"t{number}" for number in range(1, 6)] + ["after"] * len(batches), where
            assert again.loaded.voters == VOTERS, where
            assert again.raft.end_offset >= max([50, *dead.flushed]), where
        else:
            assert batches == old, where
            assert names == [record.name for record in topics(*[f"e1-{n}" for n in range(6)])], where
            story(again)
            assert again.batches() == after, where
    assert 0 < installed < deaths.count
