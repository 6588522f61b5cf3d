"""The runner survives what a client may do to it, and its exit status tells."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import NoReturn

import pytest

from blumfeld.testing.endings import TOLD_TO_END
from campaigns.clients.__main__ import main
from campaigns.clients.client import Client, NotOffered
from campaigns.clients.lacking import brokers_lack
from campaigns.clients.matrix import (
    ALL_COLUMNS,
    FAILED,
    NOT_OFFERED,
    OK,
    Cell,
    Row,
    problems,
    remarks,
    run_cell,
    run_matrix,
)
from campaigns.consensus import CONSENSUS, KRAFT, ZOOKEEPER
from campaigns.waits import await_true

NOBODY = "127.0.0.1:1"


def test_a_broker_that_is_not_there_is_a_failed_cell() -> None:
    cell = run_cell("kcat", "metadata", NOBODY, "tag")
    assert cell.verdict == FAILED
    assert "refused" in cell.note


def test_a_step_that_takes_too_long_is_killed() -> None:
    cell = run_cell("kcat", "metadata", NOBODY, "tag", timeout_s=0.01)
    assert cell == Cell(FAILED, "killed after 0 s", 0.01)


def test_a_step_that_takes_too_long_is_killed_with_its_members(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They have sessions of their own, as a group's members have."""
    monkeypatch.setattr("sys.executable", _endless(tmp_path))
    assert run_cell("kcat", "metadata", NOBODY, "tag", timeout_s=1.0).note == "killed after 1 s"
    assert await_true(lambda: not _runs(tmp_path / "member"), 5.0, 0.001)


def test_a_campaign_that_is_told_to_end_kills_the_step_and_its_members(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps = []

    def told_to_end(step: subprocess.Popen[bytes], timeout: float) -> NoReturn:
        steps.append(step)
        while not (tmp_path / "member").exists():
            time.sleep(0.001)
        raise SystemExit(TOLD_TO_END)

    monkeypatch.setattr("sys.executable", _endless(tmp_path))
    monkeypatch.setattr(subprocess.Popen, "communicate", told_to_end)
    with pytest.raises(SystemExit):
        run_cell("kcat", "metadata", NOBODY, "tag")
    assert steps[0].returncode == -signal.SIGKILL
    assert await_true(lambda: not _runs(tmp_path / "member"), 5.0, 0.001)


def _endless(folder: Path) -> str:
    """Return a program that starts a member, writes its process id to ``folder``, and waits for it."""
    script = folder / "step"
    member = folder / "member"
    script.write_text(
        f"#!/bin/sh\nsetsid sleep 20 >{folder}/printed 2>&1 &\necho $! > {member}.new\nmv {member}.new {member}\nwait\n"
    )
    script.chmod(0o755)
    return str(script)


def _runs(written: Path) -> bool:
    """Whether the process with the id in a file runs."""
    try:
        state = Path(f"/proc/{written.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_step_that_dies_is_a_failed_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a client's C code might: no verdict is printed."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert run_cell("kcat", "metadata", NOBODY, "tag").note.startswith("died with status 1")


def test_the_exit_status_is_1_when_something_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "confluent-kafka", "--columns", "metadata", "--bootstrap", NOBODY]) == 1
    assert "confluent-kafka, metadata: " in capsys.readouterr().out


def test_an_unknown_client_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "sarama"]) == 2
    assert "no client sarama" in capsys.readouterr().err


def test_what_is_not_offered_is_remarked_and_no_problem() -> None:
    rows = [
        Row(
            "a", cells={"x": Cell(OK, "", 0), "y": Cell(NOT_OFFERED, "no y", 0), "z": Cell(FAILED, "bad", 0)}
        ),
        Row("b", absent="apt install b"),
    ]
    assert problems(rows) == ["a, z: bad"]
    assert remarks(rows) == ["a, y: no y", "b did not run: apt install b"]


def test_a_client_offers_only_what_it_says() -> None:
    class Bare(Client):
        name = "bare"

    with pytest.raises(NotOffered, match="bare has no call for it"):
        Bare(NOBODY).group_ids()


def test_columns_that_a_zookeeper_has_no_way_to_serve_are_declared_with_the_reason() -> None:
    lacking = {
        consensus: [column for column in ALL_COLUMNS if brokers_lack(consensus, column)]
        for consensus in CONSENSUS
    }
    kip_848 = [column for column in ALL_COLUMNS if column.startswith(("848-", "migration"))]
    assert lacking == {KRAFT: [], ZOOKEEPER: [*kip_848, "quorum"]}
    [row] = run_matrix(["confluent-kafka"], ["migration"], NOBODY, lambda *_: None, ZOOKEEPER)
    assert row.cells["migration"].verdict == NOT_OFFERED
    assert "no group.version" in row.cells["migration"].note
