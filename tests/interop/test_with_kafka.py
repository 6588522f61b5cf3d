"""Nodes of this build and of Apache Kafka 4.3.1 in one cluster, restarted in turn under load. Slow: starts Java.

Each cluster is whole before a node stops: every broker, ours and Kafka's, says that all replicas are in sync. So a
partition is led by each side in turn, and each side fetches from the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from campaigns.clients.load.load import TOPIC
from campaigns.cluster.contenders import Contender
from campaigns.cluster.faults import Fault, parse_fault, plan_of
from campaigns.cluster.observer import Observer
from campaigns.cluster.report import ContenderReport
from campaigns.cluster.rounds import Run, Settings
from tests.interop.mixed_cluster import Member, mixed_cluster
from tests.interop.producer_epochs import NOBODY, EpochLog
from tests.kafka_peer import peer_script

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default:Kafka's answers"),  # else a warning is an error
]

COMBINED = ("broker", "controller")
KAFKA = Member("kafka", COMBINED)
OURS = Member("blumfeld", COMBINED)
SETTINGS = Settings(rate_per_s=300, steady_s=3, settle_s=1, down_s=15)
"""The broker of a paused controller is fenced after the next election and ``broker.session.timeout.ms`` (9 s). After a
shorter pause the cluster would look whole, and wouldn't be a moment later."""
ELECTIONS_MAX = 12
"""Ours is one of two candidates when Kafka's controller stops. With equal luck it would lose all once in 4,096 runs."""


@attrs.frozen
class Outcome:
    """What a run came to, and the producer epochs that a broker's answer began."""

    report: ContenderReport
    epochs: EpochLog
    ours: frozenset[int]
    """The brokers of this build."""


def run(
    members: Sequence[Member], faults: Sequence[str], folder: Path, led_by: int | None = None, then: str = ""
) -> Outcome:
    """Run the faults under load (librdkafka, idempotent, acks=all), and end every node.

    :param led_by: stop the active controller after these faults until this node is active
    :param then: the faults for that node as the active controller, by comma; each waits until it is active again
    """
    cluster = mixed_cluster(members, Path(peer_script()), folder)
    epochs = EpochLog()

    def plan() -> Iterator[Fault]:
        yield from plan_of(faults, 1)
        if led_by is not None:
            for name in then.split(","):
                yield from until_active(Observer(cluster, TOPIC), led_by)
                yield parse_fault(name)

    try:
        contender = Contender("mixed", {})
        report = Run(contender, cluster, SETTINGS, None, print, epochs.producer).run(plan())
    finally:
        cluster.stop()
    ours = frozenset(n for n, member in enumerate(members, 1) if member.kind == "blumfeld")
    return Outcome(report, epochs, ours)


def until_active(observer: Observer, node: int) -> Iterator[Fault]:
    """Stop the active controller until ``node`` is the active one. Each election chooses among two voters at least."""
    for _ in range(ELECTIONS_MAX):
        if observer.controller() == node:
            return
        yield parse_fault("stop-controller")
    raise AssertionError(f"node {node} was not elected in {ELECTIONS_MAX} elections")


def check(outcome: Outcome) -> ContenderReport:
    """Nothing was lost or refused, and every partition recovered from each fault.

    Nothing was doubled either, unless an answer of Kafka made librdkafka begin a new producer epoch. No answer of ours
    may do that, whether or not something was doubled.
    """
    report, begun = outcome.report, outcome.epochs.begun
    assert not outcome.epochs.brokers() & outcome.ours, f"our answer began a producer epoch: {begun}"
    assert not report.given_up
    assert report.account.acked == report.sent > 0
    assert report.account.lost == 0
    if report.account.doubled and outcome.epochs.brokers():
        assert NOBODY not in outcome.epochs.brokers(), f"something else began a producer epoch: {begun}"
        warnings.warn(
            f"Kafka's answers made librdkafka double {report.account.doubled}: {begun}", stacklevel=2
        )
    else:
        assert not report.wrong
        assert (report.account.doubled, report.account.disordered) == (0, 0)
    assert all(fault.recovered for fault in report.faults)
    assert not [note for fault in report.faults for note in fault.notes if "took" not in note]
    return report


def test_our_broker_beside_kafkas_under_kafkas_controllers(tmp_path: Path) -> None:
    faults = ["rolling", "kill-4", "pause-4", "kill-controller", "pause-controller"]
    report = check(run([KAFKA, KAFKA, KAFKA, Member("blumfeld", ("broker",))], faults, tmp_path))
    assert report.faults[0].nodes == (1, 2, 3, 4)
    assert all(fault.led[fault.nodes.index(4)] > 0 for fault in report.faults[:3]), "our broker led nothing"


def test_our_controller_votes_with_two_of_kafkas(tmp_path: Path) -> None:
    """Controllers stop until ours is active. It loses that when it stops, when it sleeps, and when it is killed."""
    lost = "stop-controller,pause-controller,kill-controller"
    # A controller of Kafka that stops names its successors: those with most records first, then the lowest id.
    report = check(run([OURS, KAFKA, KAFKA], ["rolling"], tmp_path, led_by=1, then=lost))
    hit = {fault.fault for fault in report.faults if fault.nodes == (1,) and fault.controller == 1}
    assert hit == set(lost.split(","))


def test_kafkas_broker_under_our_controllers(tmp_path: Path) -> None:
    faults = ["rolling", "kill-controller", "pause-controller", "stop-leader", "kill-4", "pause-4"]
    report = check(run([OURS, OURS, OURS, Member("kafka", ("broker",))], faults, tmp_path))
    hit = [fault for fault in report.faults if 4 in fault.nodes]
    assert len(hit) >= 3
    assert all(fault.led[fault.nodes.index(4)] > 0 for fault in hit), "Kafka's broker led nothing"
