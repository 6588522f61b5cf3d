"""A voter on a full disk whose leader has it change its log: what was broken off is made good, and it goes on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any, cast

import pytest

from blumfeld.metadata.image.checkpoint import CheckpointId, encode_checkpoint
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import fetch
from blumfeld.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.quorum.wire_form import to_wire
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, VoteRequest
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from blumfeld_kit.fakes.files import FakeDisk
from tests.plugins.consensus_kraft.kraft_node import KraftNode
from tests.plugins.consensus_kraft.log_node import READS, TIME_MS, batch, topics
from tests.plugins.consensus_kraft.quorum.test_driver import WIRE, Peers

LEADER, EPOCH = 2, 7
OLD = [batch(0, 5, "a", "b"), batch(2, 5, "c", "d"), batch(4, 6, "x", "y")]
"""The last one was never committed."""


class Follower:
    """A voter with records, whose leader is the test."""

    def __init__(self, **config: Any) -> None:
        voters = "1@127.0.0.1:9093,2@127.0.0.1:9193"
        config = {
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.fetch.timeout.ms": 60_000,
            **config,
        }
        self.node = KraftNode(FakeDisk(), config=config)
        self.peers = Peers()
        cast("Any", self.node.parts).peers = self.peers
        self.node.start()
        self.runtime, self.disk, self.metadata = self.node.runtime, self.node.runtime.disk, self.node.metadata
        begin = to_wire(BeginEpoch(EPOCH, LEADER, ReplicaKey(1)), WIRE, [])
        self.metadata.replica.driver.handle(begin, "127.0.0.1", 1)
        self.pass_ms(10)
        for sent in OLD:
            self.answer(records=sent, high_watermark=0)
        self.answer(high_watermark=4)
        assert self.end == 6
        self.node.parts.local_storage.checkpoint([])
        self.pass_ms(1_000)

    @property
    def end(self) -> int:
        return self.metadata.replica.log.log.written_end_offset

    @property
    def open_fetch(self) -> tuple[fetch.FetchRequest, Completion[Message]] | None:
        fetches = [(r, done) for _, r, done in self.peers.sent if isinstance(r, fetch.FetchRequest)]
        return None if fetches[-1][1].done else fetches[-1]

    def place(self) -> tuple[int, int]:
        """Offset and last epoch of the fetch that waits."""
        assert self.open_fetch is not None
        partition = self.open_fetch[0].topics[0].partitions[0]
        return partition.fetch_offset, partition.last_fetched_epoch

    def answer(self, *, records: bytes = b"", high_watermark: int = 4, **changes: Any) -> None:
        """The leader answers the fetch that waits."""
        assert self.open_fetch is not None
        leader = fetch.LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=EPOCH)
        partition = fetch.PartitionData(
            records=memoryview(records), high_watermark=high_watermark, current_leader=leader, **changes
        )
        topic = fetch.FetchableTopicResponse(partitions=[partition])
        self.open_fetch[1].complete(fetch.FetchResponse(responses=[topic]))
        self.pass_ms(10)

    def diverges(self) -> None:
        """The leader has nothing of epoch 6."""
        self.answer(diverging_epoch=fetch.EpochEndOffset(epoch=5, end_offset=4))

    def pass_ms(self, ms: float) -> None:
        self.runtime.advance(ms)

    def names(self) -> set[str]:
        image: ClusterImage = self.metadata.image
        return set(image.topics)


def fill(follower: Follower, nth: int = 1, error_number: int = errno.ENOSPC) -> list[str]:
    """From the ``nth`` operation on that changes the disk, there is no room. Returns the operations so far."""
    seen: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation in (*READS, "unlink"):
            return
        seen.append(f"{operation} {path}")
        if len(seen) >= nth:
            raise OSError(error_number, "it fails", path)

    follower.disk.watch = watch
    return seen


def test_a_cut_that_is_broken_off_anywhere_is_made_once_there_is_room() -> None:
    """The leader goes on to ask for it."""
    for nth in range(1, 100):
        follower = Follower()
        seen = fill(follower, nth)
        follower.diverges()
        if len(seen) < nth:
            break
        follower.pass_ms(5_000)
        assert follower.runtime.defects == [], seen
        follower.disk.watch = None
        follower.pass_ms(2_200)
        if follower.place() == (6, 6):
            follower.diverges()
        assert (follower.end, follower.place()) == (4, (4, 5)), seen
        follower.answer(records=batch(4, 7, "e"), high_watermark=5)
        follower.answer(high_watermark=5)
        assert follower.names() == {"a", "b", "c", "d", "e"}
        assert follower.runtime.defects == []
    assert nth > 3


SNAPSHOT = CheckpointId(20, 6)


def serve_snapshot(follower: Follower) -> None:
    """The leader has a snapshot instead of the records, and gives all of it."""
    follower.answer(snapshot_id=fetch.SnapshotId(end_offset=SNAPSHOT.end_offset, epoch=SNAPSHOT.epoch))
    request, done = next(
        (r, d) for _, r, d in reversed(follower.peers.sent) if isinstance(r, FetchSnapshotRequest)
    )
    data = encode_checkpoint(
        topics("s"), epoch=SNAPSHOT.epoch, timestamp_ms=TIME_MS, last_contained_ms=TIME_MS
    )
    part = request.topics[0].partitions[0]
    answer = ResponsePartitionSnapshot(
        snapshot_id=part.snapshot_id,
        current_leader=LeaderIdAndEpoch(leader_id=LEADER, leader_epoch=EPOCH),
        size=len(data),
        unaligned_records=memoryview(data),
    )
    topic = ResponseTopicSnapshot(name="__cluster_metadata", partitions=[answer])
    done.complete(FetchSnapshotResponse(topics=[topic]))
    follower.pass_ms(10)


def test_a_log_that_is_to_begin_anew_does_so_once_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is broken off may leave no segment at all. Nothing but the snapshot says what was committed."""
    for nth in range(1, 100):
        follower = Follower()
        raft = follower.metadata.replica.log
        change, seen = raft.truncate_fully_to, list[str]()

        def begin_anew(
            offset: int,
            epoch: int,
            follower: Follower = follower,
            nth: int = nth,
            change: Callable[[int, int], None] = change,
            seen: list[str] = seen,
        ) -> None:
            if not seen:
                seen[:] = ["it begins"]
                seen = fill(follower, nth)
            change(offset, epoch)

        monkeypatch.setattr(raft, "truncate_fully_to", begin_anew)
        serve_snapshot(follower)
        if not follower.metadata.replica.driver._held:
            break
        follower.pass_ms(5_000)
        assert follower.metadata.replica.driver._held
        follower.disk.watch = None
        follower.pass_ms(2_200)
        assert (follower.end, follower.place()) == (20, (20, 6)), seen
        follower.answer(records=batch(20, 7, "t"), high_watermark=21)
        follower.answer(high_watermark=21)
        assert follower.names() == {"s", "t"}
        assert follower.runtime.defects == []
    assert nth > 2


def test_a_voter_says_nothing_of_a_log_that_it_can_not_open() -> None:
    """It could else be elected by records that are gone."""
    follower = Follower(**{"controller.quorum.fetch.timeout.ms": 2_000})
    fill(follower)
    follower.diverges()
    sent = len(follower.peers.sent)
    candidate = VoteRequest(EPOCH + 1, ReplicaKey(LEADER), ReplicaKey(1), 6, 9, pre_vote=False)
    answer = follower.metadata.replica.driver.handle(to_wire(candidate, WIRE, []), "127.0.0.1", 2)
    assert isinstance(answer.error, BrokerError)
    assert answer.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    follower.pass_ms(20_000)
    assert len(follower.peers.sent) == sent
    follower.disk.watch = None
    follower.pass_ms(5_000)
    assert len(follower.peers.sent) > sent
    assert follower.metadata.replica.driver.raft.epoch == EPOCH


def test_a_node_stops_while_its_metadata_log_can_not_be_opened() -> None:
    follower = Follower()
    fill(follower)
    follower.diverges()
    follower.disk.watch = None
    follower.node.stop()
    assert follower.runtime.defects == []


def test_a_bad_disk_in_a_cut_is_no_defect() -> None:
    """The directory is offline, and the storage says so."""
    follower = Follower()
    fill(follower, error_number=errno.EIO)
    follower.diverges()
    assert ("error", "the metadata log failed") in follower.node.parts.events.told
