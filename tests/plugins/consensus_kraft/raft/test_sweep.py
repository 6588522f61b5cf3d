"""A sweep over the seeds of a swarm adds up what happened, and stops at the first seed that breaks a promise."""

from __future__ import annotations

import json

import pytest

from tests.plugins.consensus_kraft.raft import sweep
from tests.plugins.consensus_kraft.raft.swarm import Swarm
from tests.plugins.consensus_kraft.raft.world import BrokenPromiseError, World


def test_the_totals_have_every_class_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["raft", "--seeds", "0-39"]) == 0
    totals = json.loads(capsys.readouterr().out)
    assert totals["seeds"] == 40
    assert totals["virtual hours"] > 0
    assert totals["leaders"] >= 40
    faults = {
        name.lstrip("_") for name in vars(Swarm) if name in totals["faults"] or name[1:] in totals["faults"]
    }
    expected = "cut_one_way contest heal isolate kill lose_disk lossy power_cut refuse resign slow_disk snapshot stall"
    assert faults == set(expected.split())
    assert totals["faults"]["killed voter"]


def test_voters_change_in_the_other_swarm(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main(["voters", "--seeds", "0-9"]) == 0
    totals = json.loads(capsys.readouterr().out)
    assert totals["voter sets"]
    assert totals["disks lost"]


def test_the_first_seed_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(swarm: Swarm) -> World:
        raise BrokenPromiseError("two leaders")

    monkeypatch.setattr(Swarm, "run", broken)
    assert sweep.main(["raft", "--seeds", "5-9"]) == 1
    assert capsys.readouterr().out.startswith("FAILED seed 5: ")
