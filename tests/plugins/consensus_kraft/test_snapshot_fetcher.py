"""FetchSnapshot from request to image: two voters, the messages between them, and what may go wrong there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from blumfeld.metadata.image.checkpoint import CheckpointId, encode_checkpoint
from blumfeld.spi.completion import Completion
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft import snapshot_image
from blumfeld_consensus_kraft.snapshot_fetcher import LOST_MAX, RETRY_MS, SnapshotFetcher
from blumfeld_consensus_kraft.snapshot_server import KnownLeader, chunk_of, serve_snapshot, snapshot_request
from blumfeld_consensus_kraft.snapshot_source import SnapshotSource
from blumfeld_consensus_kraft.stored_state import Loaded
from tests.plugins.consensus_kraft.kraft_node import CLUSTER_ID
from tests.plugins.consensus_kraft.log_node import TIME_MS, LogNode, topics

ID = CheckpointId(50, 4)
NAMES = [f"t{number}" for number in range(200)]
DATA = encode_checkpoint(topics(*NAMES), epoch=4, timestamp_ms=TIME_MS)
ME = (7, b"d" * 16)
LEADER = KnownLeader(1, 6, True, [(1, "localhost", 9093)])


class Pair:
    """A leader, and a follower whose requests reach it as bytes."""

    def __init__(self) -> None:
        self.leader = LogNode().start()
        self.leader.raft.log.aux.write(ID.name, DATA)
        self.leader.raft.snapshots.added(ID)
        self.source = SnapshotSource(self.leader.runtime, self.leader.raft.snapshots)
        self.known = LEADER
        self.follower = LogNode(seed=1, loop=self.leader.runtime.loop).start()
        self.asked: list[tuple[int, int]] = []
        """(node, position) of each request."""
        self.lost = 0
        """Requests to come that get no answer."""
        self.changed: Callable[[FetchSnapshotResponse], None] = lambda response: None
        self.alive: list[int] = []
        self.fetched: list[tuple[int, Loaded]] = []
        self.failed: list[tuple[int, Exception]] = []
        self.fetcher = SnapshotFetcher(
            self.follower.runtime,
            self.follower.raft.snapshots,
            self._ask,
            cluster_id=CLUSTER_ID,
            replica=ME,
            alive=self.alive.append,
            fetched=lambda epoch, _, loaded: self.fetched.append((epoch, loaded)),
            failed=lambda epoch, error: self.failed.append((epoch, error)),
            bytes_max=1_000,
        )

    def serve(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        return self.leader.runtime.run(serve_snapshot(request, self.source, self.known))

    def _ask(self, node_id: int, message: Message) -> Completion[Message]:
        request = decode(FetchSnapshotRequest, encode(message, 1), 1)
        self.asked.append((node_id, request.topics[0].partitions[0].position))
        answered: Completion[Message] = Completion()
        if self.lost:
            self.lost -= 1
            answered.fail(ConnectionResetError("lost"))
            return answered

        async def answer() -> None:
            served = await serve_snapshot(request, self.source, self.known)
            response = decode(FetchSnapshotResponse, encode(served, 1), 1)
            self.changed(response)
            self.follower.runtime.call_later(1, lambda: answered.complete(response))

        self.leader.runtime.spawn(answer(), "answer")
        return answered

    def fetch(self, leader: int = 1, epoch: int = 6, ms: float = 10_000) -> None:
        self.fetcher.fetch(leader, epoch, ID)
        self.run(ms)

    def run(self, ms: float = 10_000) -> None:
        self.follower.runtime.advance(ms)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two voters; a part has 1,000 bytes, so there are about twelve."""
    made = Pair()
    yield made
    made.fetcher.stop()
    made.run()


def test_a_snapshot_is_fetched(pair: Pair) -> None:
    pair.fetch()
    assert pair.failed == []
    ((epoch, loaded),) = pair.fetched
    assert (epoch, loaded.snapshot, list(loaded.image.topics)) == (6, ID, NAMES)
    assert [position for _, position in pair.asked] == list(range(0, len(DATA), 1_000))
    assert len(pair.alive) >= len(pair.asked)
    assert set(pair.alive) == {6}
    assert pair.follower.raft.snapshots.latest == ID


def test_the_leader_is_alive_while_a_large_image_is_made(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or its follower would begin an election, because it fetches nothing meanwhile."""
    monkeypatch.setattr(snapshot_image, "READ_BYTES", 500)
    pair.fetch()
    assert len(pair.alive) >= len(pair.asked) + len(DATA) // 500 - 1


def test_a_stop_while_the_image_is_made_tells_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_image, "READ_BYTES", 500)
    pair.follower.runtime.offload_delay_ms = lambda: 1.0
    pair.fetcher.fetch(1, 6, ID)
    parts = len(range(0, len(DATA), 1_000))
    while len(pair.alive) < parts + 2:
        pair.run(1)
    pair.fetcher.stop()
    alive = len(pair.alive)
    pair.run()
    assert (len(pair.alive), pair.fetched, pair.failed) == (alive, [], [])
    assert pair.follower.raft.snapshots.latest is None
    assert ID.name not in pair.follower.raft.log.aux.names()


def test_lost_requests_are_sent_again(pair: Pair) -> None:
    pair.fetch(ms=3)
    pair.lost = LOST_MAX - 1
    pair.run()
    assert pair.failed == []
    assert pair.fetched
    assert len(pair.asked) == len(range(0, len(DATA), 1_000)) + LOST_MAX - 1


def test_a_leader_that_does_not_answer_is_given_up_and_what_came_is_kept(pair: Pair) -> None:
    pair.fetch(ms=3)
    pair.lost = 1_000
    pair.run(LOST_MAX * RETRY_MS + 100)
    ((epoch, error),) = pair.failed
    assert epoch == 6
    assert isinstance(error, ConnectionResetError)
    _, position = pair.asked[-1]
    assert position > 0
    pair.lost = 0
    pair.fetch()
    assert pair.asked[-1][1] > position
    assert [requested_position for _, requested_position in pair.asked].count(0) == 1
    assert pair.fetched


def test_another_leader_is_asked_from_the_beginning(pair: Pair) -> None:
    pair.fetch(ms=3)
    pair.known = KnownLeader(2, 7, True)
    pair.fetch(2, 7)
    assert [position for node, position in pair.asked if node == 2] == list(range(0, len(DATA), 1_000))
    assert [epoch for epoch, _ in pair.fetched] == [7]
    assert pair.failed == [], "nothing is told of the download that was given up"


def test_a_download_that_is_asked_for_again_goes_on(pair: Pair) -> None:
    """Each fetch of records is answered with the snapshot until the log is behind it."""
    for _ in range(5):
        pair.fetch(ms=1)
    pair.run()
    assert [position for _, position in pair.asked] == list(range(0, len(DATA), 1_000))
    assert len(pair.fetched) == 1


def test_a_new_epoch_of_the_same_leader_begins_anew(pair: Pair) -> None:
    """An answer of the old epoch may be on its way, and must not count twice."""
    pair.fetch(ms=3)
    pair.known = KnownLeader(1, 7, True)
    pair.fetch(epoch=7)
    assert [epoch for epoch, _ in pair.fetched] == [7]
    assert pair.failed == []


def test_a_stopped_download_tells_nothing(pair: Pair) -> None:
    pair.fetch(ms=3)
    pair.fetcher.stop()
    alive = len(pair.alive)
    pair.run()
    assert (len(pair.alive), pair.fetched, pair.failed) == (alive, [], [])


def other_snapshot(response: FetchSnapshotResponse) -> None:
    response.topics[0].partitions[0].snapshot_id.end_offset = 51


def nothing(response: FetchSnapshotResponse) -> None:
    response.topics = []


def error_above(response: FetchSnapshotResponse) -> None:
    response.error_code, response.topics = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, []


def error_of_the_partition(response: FetchSnapshotResponse) -> None:
    response.topics[0].partitions[0].error_code = ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (error_above, "CLUSTER_AUTHORIZATION_FAILED"),
        (error_of_the_partition, "FENCED_LEADER_EPOCH"),
        (other_snapshot, "a part of 00000000000000000051-0000000004.checkpoint"),
        (nothing, "UNKNOWN"),
    ],
)
def test_an_answer_without_the_part_ends_it_until_the_next_fetch(
    pair: Pair, change: Callable[[FetchSnapshotResponse], None], error: str
) -> None:
    pair.changed = change
    pair.fetch()
    ((_, failed),) = pair.failed
    assert error in (failed.code.name if isinstance(failed, BrokerError) else str(failed))
    pair.changed = lambda response: None
    pair.fetch()
    assert pair.fetched


# The leader's answer


def asked(epoch: int = 6, snapshot: CheckpointId = ID, position: int = 0) -> FetchSnapshotRequest:
    return snapshot_request(CLUSTER_ID, ME, epoch, snapshot, position, 100)


def test_a_request_says_who_asks_for_what() -> None:
    request = asked(position=12)
    assert (request.cluster_id, request.replica_id, request.max_bytes) == (CLUSTER_ID, 7, 100)
    (topic,) = request.topics
    (part,) = topic.partitions
    assert (topic.name, part.partition, part.position) == ("__cluster_metadata", 0, 12)
    assert (part.snapshot_id.end_offset, part.snapshot_id.epoch) == ID
    assert (part.current_leader_epoch, part.replica_directory_id) == (6, ME[1])


def test_an_answer_has_the_part_and_the_leader(pair: Pair) -> None:
    response = pair.serve(asked(position=100))
    (part,) = response.topics[0].partitions
    assert (part.size, part.position, part.unaligned_records) == (len(DATA), 100, DATA[100:200])
    assert (part.snapshot_id.end_offset, part.snapshot_id.epoch) == ID
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (1, 6)
    assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
        (1, "localhost", 9093)
    ]
    assert chunk_of(response, ID).data == DATA[100:200]


@pytest.mark.parametrize(
    ("request_", "known", "error"),
    [
        (asked(epoch=5), LEADER, ErrorCode.FENCED_LEADER_EPOCH),
        (asked(epoch=7), LEADER, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (asked(), KnownLeader(2, 6, False), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (asked(), KnownLeader(-1, 6, False), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (asked(snapshot=CheckpointId(50, 5)), LEADER, ErrorCode.SNAPSHOT_NOT_FOUND),
        (asked(position=len(DATA)), LEADER, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_what_is_refused_says_who_leads(
    pair: Pair, request_: FetchSnapshotRequest, known: KnownLeader, error: ErrorCode
) -> None:
    pair.known = known
    (part,) = pair.serve(request_).topics[0].partitions
    assert part.error_code == error
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (known.leader_id, 6)
    assert not part.unaligned_records


@pytest.mark.parametrize("what", ["topic", "partition", "nothing"])
def test_no_other_partition_has_snapshots(pair: Pair, what: str) -> None:
    request = asked()
    if what == "topic":
        request.topics[0].name = "alpha"
    elif what == "partition":
        request.topics[0].partitions[0].partition = 1
    else:
        request.topics = []
    (part,) = pair.serve(request).topics[0].partitions
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
