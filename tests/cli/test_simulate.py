"""``blumfeld simulate``: rows, the faults by class, and a failure that is reduced and repeated by one command."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from blumfeld.cli.main import main
from blumfeld_kit.simulation import command
from blumfeld_kit.simulation.seeds import seeds_of

FRAGILE = "tests.kit.simulation.swarm.test_swarm:Fragile"


def test_a_row_for_each_seed_and_the_faults_by_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "3-4", "--seconds", "20", "--clients", "6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["seed", "3", "4"]
    assert any("clock-rate" in line for line in lines[3:])
    assert lines[-1].startswith("2 seeds, ")


def test_seeds_are_named_one_by_one_or_as_ranges() -> None:
    assert seeds_of("3") == [3]
    assert seeds_of("1,4-6") == [1, 4, 5, 6]


def test_processes_side_by_side_give_the_same_runs_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """The second is told to end at once: what has begun by then is shown."""
    options = ["simulate", "--seconds", "2", "--clients", "1", "--nodes", "1"]
    assert main([*options, "--seeds", "4-5"]) == 0
    alone = capsys.readouterr().out.splitlines()[1:3]
    assert main([*options, "--seeds", "4-9", "--jobs", "2", "--minutes", "0"]) == 0
    together = capsys.readouterr().out.splitlines()
    assert [line.split()[6:] for line in together[1:3]] == [line.split()[6:] for line in alone]
    assert together[-1].startswith("2 seeds, ")


def test_the_totals_are_shown_and_written(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> None:
    report = tmp_path / "totals.json"
    options = ["--seconds", "5", "--clients", "1", "--nodes", "1", "--seeds", "4-5", "--report", str(report)]
    assert main(["simulate", *options]) == 0
    shown = capsys.readouterr().out
    totals = json.loads(report.read_text())
    assert totals["seeds"] == 2
    assert totals["virtual_hours"] > 0
    assert totals["progress"] == totals["counts"]["acked"] > 0
    assert set(totals["faults"]) == set(totals["seeds_with_class"])
    assert ["│", "acked", "│", str(totals["counts"]["acked"]), "│"] in [
        line.split() for line in shown.splitlines()
    ]


def test_no_seed_begins_when_the_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seconds", "2", "--clients", "1", "--nodes", "1", "--minutes", "0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 seeds, ")


def test_a_failure_prints_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reduction says that it begins, and how far it is: here before each run."""
    monkeypatch.setattr(command, "PROGRESS_S", 0.0)
    assert main(["simulate", "--seeds", "67", "--seconds", "60", "--workload", FRAGILE]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"^reducing it: 60 runs at most, of about \d+\.\d s or less each", shown, flags=re.M)
    (runs,) = re.findall("reduced in ([0-9]+) runs", shown)
    told = re.findall(r"^  \d+ s, run (\d+) begins; .* (\d+) events, blumfeld simulate", shown, flags=re.M)
    assert [int(run) for run, _ in told] == list(range(1, int(runs) + 1))
    assert int(told[-1][1]) < int(told[0][1])
    assert "a process was killed" in shown
    last = shown.splitlines()[-1]
    assert last.startswith("again: blumfeld ")
    assert main([*shlex.split(last)[2:], "--no-shrink"]) == 1
    again = capsys.readouterr().out
    assert again.splitlines()[-20:] == shown.splitlines()[-20:]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--seeds", "x"], "--seeds"),
        (["--faults", "rain"], "allowed are kill"),
        (["--workload", "cluster", "--faults", "kill,zk-cut"], "zk-cut needs --consensus zookeeper"),
        (["--workload", "nothing"], "one of brokers"),
        (["--workload", "tests:nothing"], "can't be loaded"),
        (["--storage", "nothing"], "storage"),
    ],
)
def test_what_can_not_be_run_is_refused(
    capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert main(["simulate", *options]) == 2
    assert complaint in capsys.readouterr().err


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    """No order of a set of names reaches what is done, on any machine."""
    command = [sys.executable, "-m", "blumfeld.cli.main", "simulate", "--seeds", "3", "--seconds", "12"]
    digests = []
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        digests.append(ran.stdout.splitlines()[1].split()[5])
    assert len(digests[0]) == 32
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--consensus", "etcd"], "--consensus: 'etcd'; allowed are kraft and zookeeper"),
        (
            ["--consensus", "zookeeper"],
            "allowed with it are the workloads cluster, transactions, tiered and secured",
        ),
    ],
)
def test_a_consensus_that_cannot_be_simulated_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *options]) == 2
    assert said in capsys.readouterr().err


def test_a_seed_on_a_zookeeper_names_its_consensus_in_the_command_that_repeats_it() -> None:
    from blumfeld_kit.simulation.swarm import Shape

    assert (
        "--workload cluster --consensus zookeeper"
        in Shape(workload="cluster", consensus="zookeeper").command()
    )
