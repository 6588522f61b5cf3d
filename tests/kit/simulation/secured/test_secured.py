"""The workload of changing rights keeps its promises, and its oracle sees what it must."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld_kit.simulation.secured.workload import Secured
from blumfeld_kit.simulation.swarm import Shape, Swarm, SwarmFailure
from blumfeld_security.acls.authorizer import AclAuthorizer
from blumfeld_security.sasl.gate import Gate
from tests.everyday import first


def test_without_faults_rights_change_and_sessions_end() -> None:
    report = Swarm(Shape(seed=2, clients=4, seconds=8.0, faults=()), Secured()).run()
    counts = Counter(report.counts)
    for name in (
        "requests allowed",
        "requests refused",
        "verdicts while rights changed",
        "fetches that waited while metadata changed",
        "logins by password",
        "logins again",
        "logins refused",
    ):
        assert counts[name], name
    assert not counts["verdicts without rights"]
    assert not counts["excuses"]


@pytest.mark.parametrize("seed", first(1, range(20)))
def test_rights_hold_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=12.0), Secured()).run()
    assert report.counts["verdicts"] > 50


@pytest.mark.parametrize("seed", first(1, range(20)))
def test_rights_hold_on_a_zookeeper_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=8.0, consensus="zookeeper"), Secured()).run()
    assert report.counts["verdicts"] > 50


def test_a_verdict_that_outlives_its_acl_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AclAuthorizer, "generation", property(lambda _: 1, lambda *_: None), raising=False)
    with pytest.raises(SwarmFailure, match="the rights forbid it at each step"):
        Swarm(Shape(seed=0, clients=4, seconds=4.0, faults=()), Secured()).run()


def test_a_session_that_changes_its_user_fails_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "_check_same", lambda *_: None)
    with pytest.raises(SwarmFailure, match="log in again as"):
        Swarm(Shape(seed=0, clients=4, seconds=4.0, faults=()), Secured()).run()
