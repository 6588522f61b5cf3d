"""The order of a run: which node is told what and when, and what ends with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import pytest

from blumfeld.cli.cluster.state import ClusterError
from blumfeld.testing.cluster import BROKER, COMBINED, CONTROLLER, LOOPBACK, Roles, node_places
from blumfeld.testing.process import NodeError
from blumfeld.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from blumfeld_kit.cluster import Cluster, Node
from campaigns import zookeeper_server
from campaigns.clients.load.acknowledged_records import Account
from campaigns.clients.load.load import Load, NoLoadError
from campaigns.clients.load.producers import CUT_SHORT_S, FINISH_S, Librdkafka, Watcher
from campaigns.cluster.contenders import this_build
from campaigns.cluster.ensemble import Ensemble
from campaigns.cluster.faults import Leadership, plan_of
from campaigns.cluster.harm import Harm
from campaigns.cluster.namespaces import Namespaces
from campaigns.cluster.observer import Observer, voters_behind
from campaigns.cluster.report import ContenderReport
from campaigns.cluster.rounds import Run, Settings
from campaigns.cluster.storm import Blow, Wave
from campaigns.cluster.tree import Tree
from campaigns.zookeeper_server import ZOOKEEPER, ZooKeeperServer

THREE = (COMBINED,) * 3
QUICK = Settings(partitions=3, down_s=0.0, steady_s=0.0, settle_s=0.0, heal_s=0.0)


class Diary(Librdkafka):
    """The acts, in order, and the producer of the load, which finishes when it is told to."""

    def __init__(self) -> None:
        super().__init__("", "", 3, 0.0)
        self.done: list[str] = []
        self.waits: list[float] = []

    def start(self, watcher: Watcher) -> None:
        for partition in range(3):
            watcher.acknowledged(partition, 0, 0)

    def finish(self, wait_s: float = FINISH_S) -> None:
        self.waits.append(wait_s)


@pytest.fixture
def diary(monkeypatch: pytest.MonkeyPatch) -> Diary:
    """Nodes that only write down what they are told, a cluster that is always whole, and controller 1."""
    diary = Diary()

    def note(what: str, answer: object = None) -> Callable[..., object]:
        def noted(node: Node, *_: object, **__: object) -> object:
            diary.done.append(f"{what} {node.place.id}")
            return answer

        return noted

    for method, answer in (
        ("terminate", None),
        ("await_end", True),
        ("launch", None),
        ("await_ready", None),
        ("kill", None),
    ):
        monkeypatch.setattr(Node, method, note(method, answer))

    def leadership(observer: Observer) -> Leadership:
        diary.done.clear()  # the fault begins
        nodes = tuple(node.place.id for node in observer._cluster.nodes)
        return Leadership(controller=1, leaders=(2, 3, 1), nodes=nodes, brokers=(1, 2, 3))

    def whole(observer: Observer, timeout_s: float, since: float | None = None) -> bool:
        diary.done.append("whole" if since is None else "whole and following")
        return True

    monkeypatch.setattr(Observer, "leadership", leadership)
    monkeypatch.setattr(Observer, "elect_preferred", lambda *_: "")
    monkeypatch.setattr(Observer, "await_whole", whole)
    monkeypatch.setattr(Load, "make_topic", lambda *_: None)
    monkeypatch.setattr(Load, "await_acks", lambda *_: True)
    monkeypatch.setattr(Load, "account", lambda *_: Account())
    return diary


class Wires(Namespaces):
    """A network that can't be changed."""

    def __init__(self) -> None:
        """No namespaces are made."""

    def drop(self, sender: int, receiver: int) -> None:
        raise ClusterError("ip neigh replace: Cannot find device")

    def pass_again(self, sender: int, receiver: int) -> None:
        raise AssertionError


def run(diary: Diary, fault: str, folder: Path, roles: Sequence[Roles] = THREE) -> ContenderReport:
    """Run one fault; the diary begins with it."""
    contender = this_build()
    cluster = Cluster(contender.commands, node_places([LOOPBACK] * len(roles), 0, roles), folder)
    cluster_run = Run(contender, cluster, QUICK, Wires(), lambda _: None, lambda *_: diary)
    return cluster_run.run(plan_of([fault], 1))


def test_two_nodes_stop_at_once_and_start_when_both_have_ended(diary: Diary, tmp_path: Path) -> None:
    report = run(diary, "stop-both", tmp_path)
    assert diary.done == [
        *("terminate 2", "terminate 1", "await_end 2", "await_end 1"),
        *("launch 2", "launch 1", "await_ready 2", "await_ready 1", "whole and following"),
    ]
    assert report.faults[0].notes[0].startswith("node 2 and node 1 took ")


def test_a_rolling_restart_goes_on_when_the_quorum_has_the_node_again(diary: Diary, tmp_path: Path) -> None:
    """Nodes that are only controllers are in no partition of the topic."""
    run(diary, "rolling", tmp_path, (BROKER, BROKER, BROKER, CONTROLLER))
    steps = ("terminate {}", "await_end {}", "launch {}", "await_ready {}", "whole and following")
    assert diary.done == [step.format(node) for node in (1, 2, 3, 4) for step in steps]


def test_a_voter_is_back_when_it_has_caught_up_after_that_instant() -> None:
    """Its end offset is as it was: the leader remembers it."""
    voters = [
        ReplicaState(replica_id=4, log_end_offset=70, last_caught_up_timestamp=100_900),
        ReplicaState(replica_id=5, log_end_offset=70, last_caught_up_timestamp=100_100),
        ReplicaState(replica_id=6, log_end_offset=-1, last_caught_up_timestamp=-1),
    ]
    quorum = ResponsePartitionData(leader_id=4, high_watermark=70, current_voters=voters)
    assert voters_behind(quorum, 100.5) == [5, 6]
    assert voters_behind(quorum, 100.0) == [6]


class TreeInWords(Tree):
    """A tree that two former controllers wrote to."""

    def __init__(self) -> None:
        """It connects to nothing."""

    def writes_of_former_controllers(self) -> list[str]:
        return ["a former controller wrote"]


def test_without_zookeeper_acknowledgements_go_on_and_no_former_controller_writes(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer of the diary has one acknowledgement for each partition, from before the fault."""
    monkeypatch.setattr(zookeeper_server, "server_command", lambda *_: ["true"])
    ensemble = Ensemble((ZooKeeperServer(tmp_path / "zookeeper"),), TreeInWords())
    contender = this_build()
    cluster = Cluster(contender.commands, node_places([LOOPBACK] * 3, 0, THREE), tmp_path)
    settings = attrs.evolve(QUICK, zookeeper_down_s=0.02)
    cluster_run = Run(contender, cluster, settings, None, lambda _: None, lambda *_: diary, ensemble=ensemble)
    report = cluster_run.run(plan_of(["kill-zookeeper"], 1))
    assert diary.done == ["kill 0", "launch 0", "await_ready 0", "whole and following"]
    silent, stale = report.wrong
    assert re.fullmatch(r"kill-zookeeper: no acknowledgement for \d\.\d s without ZooKeeper", silent)
    assert stale == "kill-zookeeper: a former controller wrote"
    assert report.faults[0].nodes == (ZOOKEEPER,)


def test_a_wire_that_cannot_be_cut_ends_the_run_and_is_told(diary: Diary, tmp_path: Path) -> None:
    report = run(diary, "cut-leader", tmp_path)
    assert report.wrong == ("cut-leader: ip neigh replace: Cannot find device",)
    assert not report.is_good
    assert diary.waits == [FINISH_S]


def test_a_node_that_does_not_come_back_ends_the_run_and_is_told(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(node: Node) -> None:
        raise NodeError("node 2 ended")

    monkeypatch.setattr(Node, "launch", launch)
    monkeypatch.setattr(Cluster, "start", lambda _: None)
    assert run(diary, "kill-leader", tmp_path).wrong == ("kill-leader: node 2 ended",)


def storm(
    diary: Diary, wave: Wave, folder: Path, monkeypatch: pytest.MonkeyPatch, up: bool = True
) -> ContenderReport:
    """Run one wave, without its groups; the diary begins with it."""
    monkeypatch.setattr(Node, "is_up", property(lambda _: up))
    monkeypatch.setattr(Node, "printed", lambda _: "no room")
    monkeypatch.setattr(Observer, "await_led", lambda *_: [])
    contender = this_build()
    cluster = Cluster(contender.commands, node_places([LOOPBACK] * 3, 0, THREE), folder)
    return Run(contender, cluster, QUICK, Wires(), lambda _: None, lambda *_: diary).run([wave])


def test_a_waves_blows_overlap_and_then_the_cluster_is_to_be_whole(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wave = Wave(1, (Blow(0.0, "kill", (1, 2), 0.02), Blow(0.01, "stop", (3,), 0.0)))
    report = storm(diary, wave, tmp_path, monkeypatch)
    assert diary.done == [
        *("kill 1", "kill 2", "terminate 3", "await_end 3", "launch 3", "launch 1", "launch 2"),
        "whole and following",
    ]
    assert report.wrong == ()
    assert report.faults[0].nodes == (1, 2, 3)


def test_a_node_that_ends_by_itself_is_wrong_but_on_a_full_disk(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Harm, "begin", lambda *_: None)
    monkeypatch.setattr(Harm, "end", lambda *_: [])
    report = storm(diary, Wave(1, (Blow(0.0, "fill", (1, 3), 0.0),)), tmp_path, monkeypatch, up=False)
    assert report.wrong == ("node 2 had ended by itself: no room",)
    assert [note[:6] for note in report.faults[0].notes] == ["node 1", "node 3"]
    assert diary.done[:3] == ["launch 1", "launch 2", "launch 3"]


@pytest.mark.parametrize("error", [SystemExit(143), KeyboardInterrupt()])
def test_the_producer_ends_soon_when_the_run_is_broken_off(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken(*_: object) -> str:
        raise error

    monkeypatch.setattr(Observer, "elect_preferred", broken)
    with pytest.raises(type(error)):
        run(diary, "kill-leader", tmp_path)
    assert diary.waits == [CUT_SHORT_S]


def test_the_producer_ends_soon_when_the_cluster_takes_no_records(
    diary: Diary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diary, "start", lambda _: None)
    with pytest.raises(NoLoadError, match="records acknowledged by partition"):
        run(diary, "kill-leader", tmp_path)
    assert diary.waits == [CUT_SHORT_S]
