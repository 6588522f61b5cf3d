"""The runner survives what a client may do to it, and its exit status tells."""

from __future__ import annotations

import pytest

from campaigns.clients.__main__ import main
from campaigns.clients.client import Client, NotOffered
from campaigns.clients.matrix import FAILED, NOT_OFFERED, OK, Cell, Row, problems, remarks, run_cell

NOBODY = "127.0.0.1:1"


def test_a_broker_that_is_not_there_is_a_failed_cell() -> None:
    cell = run_cell("kcat", "metadata", NOBODY, "tag")
    assert cell.verdict == FAILED
    assert "refused" in cell.note


def test_a_step_that_takes_too_long_is_killed() -> None:
    cell = run_cell("kcat", "metadata", NOBODY, "tag", timeout_s=0.01)
    assert cell == Cell(FAILED, "killed after 0 s", 0.01)


def test_a_step_that_dies_is_a_failed_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a client's C code might: no verdict is printed."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert run_cell("kcat", "metadata", NOBODY, "tag").note.startswith("died with status 1")


def test_the_exit_status_is_1_when_something_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "confluent-kafka", "--columns", "metadata", "--bootstrap", NOBODY]) == 1
    assert "confluent-kafka, metadata: " in capsys.readouterr().out


def test_an_unknown_client_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "sarama"]) == 2
    assert "no client sarama" in capsys.readouterr().out


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
