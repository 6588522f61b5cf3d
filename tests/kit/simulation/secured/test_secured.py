"""The workload of changing rights keeps its promises, and its oracle sees what it must."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld_kit.simulation.secured.workload import Secured
from blumfeld_kit.simulation.swarm import Shape, Swarm, SwarmFailure
from blumfeld_security.acls.authorizer import AclAuthorizer
from blumfeld_security.sasl.gate import Gate
from tests.everyday import first


def test_without_faults_rights_change_and_nothing_is_excused() -> None:
    counts = Counter(Swarm(Shape(seed=2, clients=4, seconds=6.0, faults=()), Secured()).run().counts)
    for name in ("requests allowed", "requests refused", "logins by password", "verdicts"):
        assert counts[name], name
    assert not counts["verdicts without rights"]
    assert not counts["excuses"]


@pytest.mark.slow
def test_in_some_seeds_everything_happens() -> None:
    counts = Counter[str]()
    for seed in range(12):
        counts.update(Swarm(Shape(seed=seed, clients=4, seconds=10.0, faults=()), Secured()).run().counts)
    for name in (
        "verdicts while rights changed",
        "fetches that waited while metadata changed",
        "logins by token",
        "logins refused",
        "logins again",
        "logins again refused",
        "sessions that ended",
    ):
        assert counts[name], name


@pytest.mark.parametrize("seed", first(1, range(20)))
def test_rights_hold_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=12.0), Secured()).run()
    assert report.counts["verdicts"] > 50


@pytest.mark.parametrize("seed", first(1, range(20)))
def test_rights_hold_on_a_zookeeper_under_every_fault_of_the_seed(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=8.0, consensus="zookeeper"), Secured()).run()
    assert report.counts["verdicts"] > 50


def complaint() -> str:
    """Return the failure of the first seed that fails. A change of the product makes each seed another run."""
    for seed in range(8):
        try:
            Swarm(Shape(seed=seed, clients=4, seconds=6.0, faults=()), Secured()).run()
        except SwarmFailure as failure:
            return str(failure)
    return "no seed fails"


@pytest.mark.slow
def test_a_verdict_that_outlives_its_acl_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AclAuthorizer, "generation", property(lambda _: 1, lambda *_: None), raising=False)
    assert "the rights forbid it at each step" in complaint()


def test_a_session_that_changes_its_user_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "_check_same", lambda *_: None)
    assert "log in again as" in complaint()
