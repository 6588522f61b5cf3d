"""Nodes of this build and of Apache Kafka 4.3.1 in one cluster, restarted in turn under load. Slow: starts Java.

Each cluster is whole before a node stops: every broker, ours and Kafka's, says that all replicas are in sync. So a
partition is led by each side in turn, and each side fetches from the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.cluster.contenders import Contender
from campaigns.cluster.faults import plan_of
from campaigns.cluster.report import ContenderReport
from campaigns.cluster.rounds import Run, Settings
from tests.interop.mixed_cluster import Member, mixed_cluster
from tests.kafka_peer import peer_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMBINED = ("broker", "controller")
KAFKA = Member("kafka", COMBINED)
OURS = Member("blumfeld", COMBINED)
SETTINGS = Settings(rate_per_s=300, steady_s=3, settle_s=1, down_s=11)
"""The down time is longer than Kafka's ``broker.session.timeout.ms``."""


def run(members: Sequence[Member], faults: Sequence[str], folder: Path) -> ContenderReport:
    """Run the faults under load (librdkafka, idempotent, acks=all), and end every node."""
    cluster = mixed_cluster(members, Path(peer_script()), folder)
    try:
        contender = Contender("mixed", {})
        return Run(contender, cluster, SETTINGS, None, print).run(plan_of(faults, 1))
    finally:
        cluster.stop()


def check(report: ContenderReport) -> None:
    """Nothing was lost, doubled or refused, and every partition recovered from each fault."""
    assert not report.wrong
    assert not report.given_up
    assert (report.account.lost, report.account.doubled, report.account.disordered) == (0, 0, 0)
    assert report.account.acked == report.sent > 0
    assert all(fault.recovered for fault in report.faults)
    assert not [note for fault in report.faults for note in fault.notes if "took" not in note]


def test_our_broker_beside_kafkas_under_kafkas_controllers(tmp_path: Path) -> None:
    report = run([KAFKA, KAFKA, KAFKA, Member("blumfeld", ("broker",))], ["rolling"], tmp_path)
    check(report)
    assert report.faults[0].nodes == (1, 2, 3, 4)
    assert report.faults[0].led[3] > 0, "our broker led nothing"


def test_our_controller_votes_with_two_of_kafkas(tmp_path: Path) -> None:
    """The active controller stops until each node was one, ours among them."""
    report = run([KAFKA, KAFKA, OURS], ["rolling", *["stop-controller"] * 4], tmp_path)
    check(report)
    assert 3 in [fault.controller for fault in report.faults], "our controller was never active"
    assert [fault.controller for fault in report.faults][-1] > 0


def test_kafkas_broker_under_our_controllers(tmp_path: Path) -> None:
    faults = ["rolling", "kill-controller", "stop-leader"]
    report = run([OURS, OURS, OURS, Member("kafka", ("broker",))], faults, tmp_path)
    check(report)
    assert report.faults[0].led[3] > 0, "Kafka's broker led nothing"
