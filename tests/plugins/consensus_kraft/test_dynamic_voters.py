"""Voters come and go while the quorum works (KIP-853), on simulated machines."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.kernel.formatting.directories import Formatting, format_directories
from blumfeld.kernel.formatting.quorum import InitialQuorum
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.context import ANONYMOUS
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import add_raft_voter as add
from blumfeld.wire.messages import update_raft_voter as update
from blumfeld.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.raft.voters import ReplicaKey
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.simulation.machine.host import Machine, address_of
from tests.plugins.consensus_kraft.test_three_nodes import CONTROLLER_PORT, Cluster, plan

CLIENT = OnBehalf(ANONYMOUS, "127.0.0.1", "test")
QUORUM = {
    "controller.quorum.bootstrap.servers": ",".join(
        f"{address_of(node_id)}:{CONTROLLER_PORT}" for node_id in (1, 2, 3)
    )
}


class DynamicCluster(Cluster):
    """Machines that are formatted for a dynamic quorum: node 1 is its first voter."""

    def __init__(self, seed: int = 1, nodes: int = 3, **keys: object) -> None:
        super().__init__(seed, brokers=nodes - 3, **keys)

    def made(self, node_id: int, disk: int = 0) -> Machine:
        return self.formatted(node_id, standalone=node_id == 1, disk=disk)

    def formatted(self, node_id: int, *, standalone: bool = False, disk: int = 0) -> Machine:
        made = plan(node_id, keys=self.keys, quorum=QUORUM)
        machine = self.machine(self.seed * 100 + node_id * 10 + disk, made)
        quorum = InitialQuorum(standalone=standalone, no_initial_controllers=not standalone)
        runtime = FakeRuntime(self.seed * 1000 + node_id * 10 + disk, disk=machine.disk)
        format_directories(made, runtime, Formatting(quorum=quorum))
        return machine

    def key(self, node_id: int) -> ReplicaKey:
        return self.metadata(node_id).replica.driver.raft.me

    def voters(self, at: int) -> list[int]:
        return list(self.metadata(at).replica.driver.raft.voters.ids)

    def ask(self, at: int, request: Message, timeout_ms: float = 5_000) -> Any:
        metadata = self.metadata(at)
        answer = metadata.submit(request, timeout_ms, on_behalf=CLIENT, wait_image=False)
        return self.run(self.machines[at].run(answer))

    def add(self, node_id: int, at: int = 1, **fields: Any) -> Any:
        key = self.key(node_id)
        request = add.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=5_000,
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            listeners=[add.Listener(name="CONTROLLER", host=address_of(node_id), port=CONTROLLER_PORT)],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.ask(at, request)

    def remove(self, key: ReplicaKey, at: int = 1) -> Any:
        return self.ask(
            at, RemoveRaftVoterRequest(cluster_id=None, voter_id=key.id, voter_directory_id=key.directory_id)
        )

    def grown(self) -> DynamicCluster:
        """All started, and voters."""
        self.start()
        for node_id in self.machines:
            if node_id != 1:
                assert self.add(node_id).error_code == 0
        return self


@pytest.fixture
def cluster() -> DynamicCluster:
    """Three nodes, the first of which is the quorum."""
    made = DynamicCluster()
    made.start()
    return made


def test_a_voter_takes_back_what_others_say_of_it(cluster: DynamicCluster) -> None:
    """Each time, also in one epoch: an address where it isn't would keep it from being asked for its vote."""
    cluster.add(2)
    cluster.wait(1)
    voters = cluster.metadata(2).replica.driver.raft.voters
    (listener,) = voters.voters[2].endpoints
    for number in range(3):
        request = update.UpdateRaftVoterRequest(
            cluster_id=None,
            current_leader_epoch=cluster.metadata(1).replica.driver.raft.epoch,
            voter_id=2,
            voter_directory_id=cluster.key(2).directory_id,
            listeners=[update.Listener(name=listener.listener, host="nowhere", port=9 + number)],
            kraft_version_feature=update.KRaftVersionFeature(max_supported_version=1),
        )
        voter_update: Any = cluster.metadata(1).replica.membership.updated(request)
        assert cluster.run(cluster.machines[1].run(voter_update)).error_code == 0
        cluster.until(lambda: cluster.metadata(2).replica.driver.raft.voters != voters, 1)
        cluster.until(lambda: cluster.metadata(2).replica.driver.raft.voters == voters, 10)
        cluster.wait(1)  # until that is committed, too: before, another change is refused
    assert not cluster.defects


def test_a_voter_of_another_cluster_is_told_so_whatever_its_epoch(cluster: DynamicCluster) -> None:
    request = update.UpdateRaftVoterRequest(cluster_id="another", current_leader_epoch=0, voter_id=99)
    voter_update: Any = cluster.metadata(1).replica.membership.updated(request)
    answer = cluster.run(cluster.machines[1].run(voter_update))
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_quorum_of_one_grows_to_three_and_outlives_its_first_voter(cluster: DynamicCluster) -> None:
    assert cluster.create(3, "alone") == 0
    for voter_id in (2, 3):
        answer = cluster.add(voter_id, at=3)
        assert (answer.error_code, answer.error_message) == (0, None)
    cluster.wait(1)
    assert [cluster.voters(node_id) for node_id in (1, 2, 3)] == [[1, 2, 3]] * 3
    assert {cluster.metadata(2).replica.driver.raft.voters.key_of(node_id) for node_id in (1, 2, 3)} == {
        cluster.key(node_id) for node_id in (1, 2, 3)
    }
    cluster.machines[1].crash(power_cut=False)
    cluster.until(lambda: cluster.leader in (2, 3), 5)
    assert cluster.create(2, "without-the-first") == 0
    assert not cluster.defects


def test_the_voters_are_there_after_a_restart_of_all(cluster: DynamicCluster) -> None:
    for voter_id in (2, 3):
        assert cluster.add(voter_id).error_code == 0
    for voter_id in (1, 2, 3):
        cluster.machines[voter_id].crash(power_cut=True)
    cluster.start(2, 3)
    cluster.until(lambda: cluster.leader in (2, 3), 10)
    assert [cluster.voters(node_id) for node_id in (2, 3)] == [[1, 2, 3]] * 2


def test_a_leader_that_is_removed_resigns_and_stays_as_an_observer() -> None:
    cluster = DynamicCluster().grown()
    assert cluster.leader == 1
    assert cluster.remove(cluster.key(1), at=2).error_code == 0
    cluster.until(lambda: cluster.leader in (2, 3), 5)
    assert [cluster.voters(node_id) for node_id in (1, 2, 3)] == [[2, 3]] * 3
    assert not cluster.metadata(1).replica.driver.raft.is_voter
    assert cluster.create(1, "from-an-observer") == 0
    cluster.wait(1)
    assert not cluster.defects


def test_a_voter_that_lost_its_disk_is_not_the_old_voter() -> None:
    """It asks with its new directory id: until it is added again, nobody counts its word."""
    cluster = DynamicCluster().grown()
    lost = cluster.key(3)
    cluster.machines[3].crash(power_cut=False)
    cluster.machines[3] = cluster.formatted(3, disk=1)
    cluster.start(3)
    assert cluster.key(3) != lost
    assert not cluster.metadata(3).replica.driver.raft.is_voter
    cluster.until(lambda: cluster.leader == 1, 5)
    answer = cluster.add(3)
    assert answer.error_code == ErrorCode.DUPLICATE_VOTER
    assert "remove that voter first" in answer.error_message
    assert cluster.remove(cluster.key(3)).error_code == ErrorCode.VOTER_NOT_FOUND
    assert cluster.remove(lost).error_code == 0
    assert cluster.add(3).error_code == 0
    cluster.wait(1)
    assert cluster.metadata(3).replica.driver.raft.is_voter
    assert not cluster.defects


def test_a_minority_does_not_get_a_majority_by_a_lost_disk() -> None:
    """Two of three voters: one with an empty disk, one that never had the last records. They must not elect."""
    cluster = DynamicCluster().grown()
    cluster.machines[2].crash(power_cut=False)
    assert cluster.create(1, "acknowledged") == 0
    cluster.machines[1].crash(power_cut=False)
    cluster.machines[3].crash(power_cut=False)
    cluster.machines[3] = cluster.formatted(3, disk=1)

    async def start(node_id: int) -> None:
        await cluster.machines[node_id].start()

    starting = [cluster.loop.create_task(start(node_id)) for node_id in (2, 3)]
    cluster.wait(20)
    known = {cluster.metadata(node_id).replica.driver.raft.leader_id for node_id in (2, 3)}
    assert known == {-1}
    for voter_id in (2, 3):
        cluster.machines[voter_id].crash(power_cut=False)
    cluster.wait(1)
    del starting


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"listeners": []}, ErrorCode.INVALID_REQUEST, "the quorum's listener CONTROLLER"),
        (
            {"listeners": [add.Listener(name=f"L{number}") for number in range(101)]},
            ErrorCode.INVALID_REQUEST,
            "100 are allowed",
        ),
        ({"voter_directory_id": bytes(16)}, ErrorCode.INVALID_REQUEST, "a directory id"),
        ({"voter_id": 1}, ErrorCode.DUPLICATE_VOTER, "is a voter already"),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST, "a node id"),
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster"),
        ({"voter_id": 9}, ErrorCode.REQUEST_TIMED_OUT, "has not fetched the metadata log"),
        (
            {"listeners": [add.Listener(name="CONTROLLER", host=address_of(2), port=1)]},
            ErrorCode.REQUEST_TIMED_OUT,
            "can't be asked for its versions",
        ),
    ],
)
def test_what_cannot_be_a_voter_is_refused(
    cluster: DynamicCluster, fields: dict[str, Any], error: ErrorCode, says: str
) -> None:
    cluster.wait(1)
    answer = cluster.add(2, **fields)
    assert answer.error_code == error
    assert says in answer.error_message
    assert cluster.voters(1) == [1]
    assert cluster.add(2).error_code == 0, "a refused request leaves nothing behind"


def test_the_last_voter_stays(cluster: DynamicCluster) -> None:
    answer = cluster.remove(cluster.key(1))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "only voter" in answer.error_message


def test_one_change_at_a_time() -> None:
    """While the first isn't committed, for want of the other voters, the next one is refused."""
    cluster = DynamicCluster().grown()
    second, third = cluster.key(2), cluster.key(3)
    cluster.machines[2].crash(power_cut=True)
    cluster.machines[3].crash(power_cut=True)
    removal = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=second.id, voter_directory_id=second.directory_id
    )
    waits = cluster.metadata(1).submit(removal, 2_000, wait_image=False)
    cluster.wait(0.1)
    assert cluster.voters(1) == [1, 3], "a set counts when it is appended"
    answer = cluster.remove(third)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "is not committed yet" in answer.error_message
    cluster.wait(2)
    assert isinstance(waits.error, BrokerError)
    assert waits.error.code == ErrorCode.REQUEST_TIMED_OUT


def test_controllers_join_by_themselves_where_they_may() -> None:
    cluster = DynamicCluster(**{"controller.quorum.auto.join.enable": True})
    cluster.start()
    cluster.until(lambda: cluster.voters(1) == [1, 2, 3], 20)
    lost = cluster.key(3)
    cluster.machines[3].crash(power_cut=False)
    cluster.machines[3] = cluster.formatted(3, disk=1)
    cluster.start(3)
    cluster.until(lambda: cluster.metadata(3).replica.driver.raft.is_voter, 20)
    assert cluster.key(3) != lost
    assert cluster.voters(1) == [1, 2, 3]


def test_a_new_follower_and_a_snapshot_learn_the_voters() -> None:
    keys = {"metadata.log.max.record.bytes.between.snapshots": 2000}
    cluster = DynamicCluster(nodes=4, **keys)
    cluster.start(1, 2, 3)
    for voter_id in (2, 3):
        assert cluster.add(voter_id).error_code == 0
    for number in range(30):
        assert cluster.create(1, f"topic-{number}") == 0
    cluster.wait(2)
    raft = cluster.metadata(1).replica.log
    latest = raft.snapshots.latest
    assert latest is not None
    raft.start_at(latest)
    cluster.start(4)
    cluster.wait(2)
    assert cluster.voters(4) == [1, 2, 3]
    assert cluster.metadata(4).replica.driver.raft.history.latest.kraft_version == 1
    assert len(cluster.metadata(4).image.topics) == 30
