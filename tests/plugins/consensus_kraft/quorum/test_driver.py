"""The driver of a replica: effects in order, nothing before ``quorum-state`` is on the device, requests it refuses."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blumfeld.log.quorum_state import EPOCH_MAX, QuorumState
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import fetch, vote
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.quorum.driver import PERSIST_RETRY_MS, RaftDriver, ReplicaOwner
from blumfeld_consensus_kraft.quorum.endpoints import QuorumEndpoints
from blumfeld_consensus_kraft.quorum.wire_form import FetchSettings, to_wire
from blumfeld_consensus_kraft.quorum_state_file import QuorumStateFile
from blumfeld_consensus_kraft.raft.messages import BeginEpoch, FetchRequest, VoteRequest
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.roles import Prospective
from blumfeld_consensus_kraft.raft.settings import Stored
from blumfeld_consensus_kraft.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.coordinator.fakes import Events
from tests.plugins.consensus_kraft.kraft_node import CLUSTER_ID
from tests.plugins.consensus_kraft.raft.one_replica import ME, SETTINGS, VOTERS, log_of

WIRE = FetchSettings(CLUSTER_ID, 500, 8 << 20)
CANDIDATE = VoteRequest(3, ReplicaKey(2), ME, 2, 3, pre_vote=False)


class StateFile:
    """Keeps what is to be written until a test says that it is on the device."""

    def __init__(self) -> None:
        self.writes: list[tuple[QuorumState, Completion[None]]] = []

    def persist(self, state: QuorumState) -> Completion[None]:
        done: Completion[None] = Completion()
        self.writes.append((state, done))
        return done


class Peers:
    """Channels to other nodes that keep what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Message, Completion[Message]]] = []
        self._node_id = 0

    def channel(self, node_id: int, *_: object) -> Peers:
        self._node_id = node_id
        return self

    def send(self, request: Message, _timeout_ms: float) -> Completion[Message]:
        done: Completion[Message] = Completion()
        self.sent.append((self._node_id, request, done))
        return done


class Owner:
    """Takes note of what the driver tells it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.told.append((name, values))


class Driven:
    """A driver, and all that it touches."""

    def __init__(self, *, elect_when_refused: bool = True) -> None:
        self.runtime = FakeRuntime(0)
        self.file, self.peers, self.owner, self.events = StateFile(), Peers(), Owner(), Events()
        log = log_of("112")
        raft = Raft(ME, VoterHistory(VOTERS), log, SETTINGS, Stored(2), lambda below: below / 2)
        self.driver = RaftDriver(
            self.runtime,
            raft,
            cast(RaftLog, log),
            cast(ReplicaOwner, self.owner),
            self.events,
            state_file=cast(QuorumStateFile, self.file),
            peers=lambda: cast(Any, self.peers),
            endpoints=QuorumEndpoints({}),
            listener="CONTROLLER",
            own_endpoints=list,
            fetch=WIRE,
            request_timeout_ms=2_000,
            elect_when_refused=elect_when_refused,
        )
        self.driver.start()

    def handle(
        self, request: VoteRequest | FetchRequest, cluster_id: str | None = CLUSTER_ID
    ) -> Completion[Message]:
        message: Any = to_wire(request, WIRE, [])
        message.cluster_id = cluster_id
        return self.driver.handle(message, "10.0.0.9", 2)

    def follow(self, leader_id: int, epoch: int) -> None:
        """Let the open fetch name the leader, and the file be written."""
        _, _, done = self.peers.sent[-1]
        partition = fetch.PartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            current_leader=fetch.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch),
        )
        done.complete(fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[partition])]))
        self.file.writes[-1][1].complete(None)


@pytest.fixture
def driven() -> Driven:
    return Driven()


def granted(answer: Completion[Message]) -> bool:
    response = answer.result()
    assert isinstance(response, vote.VoteResponse)
    return response.topics[0].partitions[0].vote_granted


def test_a_request_of_another_cluster_is_refused(driven: Driven) -> None:
    with pytest.raises(BrokerError) as refused:
        driven.handle(CANDIDATE, "another cluster's id..")
    assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert driven.driver.raft.epoch == 2
    assert driven.file.writes == []


def test_a_request_that_names_no_cluster_is_served(driven: Driven) -> None:
    """As in Kafka."""
    driven.handle(CANDIDATE, None)
    assert driven.driver.raft.epoch == 3


def test_a_request_for_another_topic_is_invalid(driven: Driven) -> None:
    message: Any = to_wire(CANDIDATE, WIRE, [])
    message.topics[0].topic_name = "another"
    with pytest.raises(BrokerError) as refused:
        driven.driver.handle(message, "10.0.0.9", 2)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_replica_is_told_the_leader_at_the_listener_by_which_it_asks() -> None:
    """While controllers move to another listener, some dial by the old one and some by the new one."""
    driven = Driven()
    old, new = Endpoint("CONTROLLER", "localhost", 1), Endpoint("SECURE", "localhost", 2)
    driven.driver._own_endpoints = lambda: [new, old]
    driven.driver.endpoints.set_voters(VoterSet([Voter(ReplicaKey(2), (old, new))]))
    for leader_id in (ME.id, 2):
        told = [driven.driver.leader_node(leader_id, each.listener) for each in (old, new)]
        assert told == [[(leader_id, "localhost", 1)], [(leader_id, "localhost", 2)]]
        assert driven.driver.leader_node(leader_id, "OTHER")
    assert driven.driver.leader_node(9, "SECURE") == []


def test_a_driver_that_stopped_refuses_requests(driven: Driven) -> None:
    driven.driver.stop()
    with pytest.raises(BrokerError) as refused:
        driven.handle(CANDIDATE)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_vote_is_answered_when_it_is_on_the_device(driven: Driven) -> None:
    answer = driven.handle(CANDIDATE)
    (epoch, written) = driven.file.writes[0]
    assert (epoch.leader_epoch, epoch.voted_id, answer.done) == (3, -1, False)
    written.complete(None)
    (state, written) = driven.file.writes[1]
    assert (state.leader_epoch, state.voted_id, answer.done) == (3, 2, False)
    written.complete(None)
    assert granted(answer)


def test_later_answers_wait_for_an_earlier_write(driven: Driven) -> None:
    """The second answer tells of an epoch that isn't on the device either."""
    driven.handle(CANDIDATE)
    second = driven.handle(CANDIDATE._replace(candidate=ReplicaKey(3)))
    assert not second.done
    for _ in range(2):
        driven.file.writes[-1][1].complete(None)
    assert not granted(second)


def test_requests_to_others_wait_for_the_write_before_them(driven: Driven) -> None:
    before = len(driven.peers.sent)
    driven.handle(CANDIDATE)
    assert len(driven.peers.sent) == before
    for _ in range(2):
        driven.file.writes[-1][1].complete(None)
    assert len(driven.peers.sent) == before + 1, "it looks for the leader of the new epoch"


def test_a_write_that_fails_is_repeated_and_no_promise_leaves_meanwhile(driven: Driven) -> None:
    """A request that waits is refused: the next one on its connection may say which node leads."""
    sent = len(driven.peers.sent)
    answer = driven.handle(CANDIDATE)
    error = OSError("disk full")
    driven.file.writes[0][1].fail(error)
    assert driven.owner.told == [("not_persisted", (error,)), ("leader_is", (3, -1))]
    driven.runtime.advance(PERSIST_RETRY_MS - 1)
    assert len(driven.file.writes) == 1
    driven.runtime.advance(1)
    assert driven.file.writes[1][0] == driven.file.writes[0][0]
    assert refused(answer)
    assert refused(driven.handle(CANDIDATE))
    assert len(driven.peers.sent) == sent
    for _ in range(2):
        driven.file.writes[-1][1].complete(None)
    assert granted(driven.handle(CANDIDATE))


def refused(answer: Completion[Message]) -> bool:
    return isinstance(answer.error, BrokerError) and answer.error.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_voter_that_can_not_write_its_vote_knows_the_leader(driven: Driven) -> None:
    """Its broker needs the controller, to give its leaderships away."""
    driven.handle(CANDIDATE)
    driven.file.writes[0][1].fail(OSError("disk full"))
    message = to_wire(BeginEpoch(3, 2, ME), WIRE, [])
    answer = driven.driver.handle(message, "10.0.0.9", 1)
    assert refused(answer)
    assert driven.owner.told[-1] == ("leader_is", (3, 2))
    driven.runtime.advance(PERSIST_RETRY_MS)
    while not driven.file.writes[-1][1].done:
        driven.file.writes[-1][1].complete(None)
    assert [event for event in driven.owner.told if event[0] == "leader_is"][-1] == ("leader_is", (3, 2))


def test_a_leader_that_was_told_ahead_of_the_write_is_not_taken_back_by_what_waited(driven: Driven) -> None:
    driven.handle(CANDIDATE)
    driven.file.writes[0][1].fail(OSError("disk full"))
    driven.driver.handle(to_wire(BeginEpoch(4, 2, ME), WIRE, []), "10.0.0.9", 1)
    driven.runtime.advance(PERSIST_RETRY_MS)
    while not driven.file.writes[-1][1].done:
        driven.file.writes[-1][1].complete(None)
    assert [event for event in driven.owner.told if event[0] == "leader_is"] == [
        ("leader_is", (3, -1)),
        ("leader_is", (4, 2)),
    ]


def test_a_driver_that_stopped_does_nothing_more(driven: Driven) -> None:
    answer = driven.handle(CANDIDATE)
    sent = len(driven.peers.sent)
    driven.driver.stop()
    driven.file.writes[0][1].complete(None)
    driven.runtime.advance(60_000)
    assert (answer.done, len(driven.file.writes), len(driven.peers.sent)) == (False, 1, sent)


def test_a_static_quorums_file_lists_the_voters_and_no_directory(driven: Driven) -> None:
    driven.handle(CANDIDATE._replace(candidate=ReplicaKey(2, b"A" * 16)))
    driven.file.writes[-1][1].complete(None)
    state = driven.file.writes[-1][0]
    assert (state.data_version, state.voted_id, state.voted_directory_id) == (0, 2, bytes(16))
    assert state.current_voters == (1, 2, 3)


@pytest.mark.parametrize("elect", [True, False])
def test_a_leader_whose_port_refuses_is_left_if_so_configured(elect: bool) -> None:
    driven = Driven(elect_when_refused=elect)
    driven.follow(2, 4)
    node_id, request, done = driven.peers.sent[-1]
    assert (node_id, type(request)) == (2, fetch.FetchRequest)
    done.fail(ConnectionRefusedError())
    driven.runtime.advance(SETTINGS.refused_jitter_ms)
    assert isinstance(driven.driver.raft.role, Prospective) == elect


def test_a_leader_whose_connection_breaks_is_waited_for() -> None:
    driven = Driven()
    driven.follow(2, 4)
    driven.peers.sent[-1][2].fail(ConnectionResetError())
    driven.runtime.advance(SETTINGS.refused_jitter_ms)
    assert not isinstance(driven.driver.raft.role, Prospective)


def test_epochs_that_leap_are_logged_once_an_interval(driven: Driven) -> None:
    """Their sender may send as many as it likes."""
    leaping = CANDIDATE._replace(epoch=EPOCH_MAX, pre_vote=True)
    for _ in range(100):
        assert driven.handle(leaping).done
    assert [level for level, event in driven.events.told if "too far ahead" in event] == ["warning"]
    assert driven.driver.raft.epoch == 2
    assert driven.file.writes == []


def test_an_answer_behind_the_last_epoch_counts_as_none() -> None:
    driven = Driven()
    _, _, done = driven.peers.sent[-1]
    partition = fetch.PartitionData(
        current_leader=fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=EPOCH_MAX + 1)
    )
    done.complete(fetch.FetchResponse(responses=[fetch.FetchableTopicResponse(partitions=[partition])]))
    assert driven.driver.raft.epoch == 2
    assert ("warning", "a voter refuses this node") in driven.events.told
