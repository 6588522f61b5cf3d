"""The matrix by one way in: a wrong password that comes through is a failure, and one that doesn't is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from campaigns.clients import matrix
from campaigns.clients.access import TOKEN, VARIABLE, Access
from campaigns.clients.matrix import FAILED, NOT_OFFERED, OK, Cell, Row, problems
from campaigns.secured.__main__ import REFUSED, main, refused_cell, rows_of

SCRAM = Access("127.0.0.1:1", "SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", "correct horse")


def _rows(
    access: Access, folder: Path, monkeypatch: pytest.MonkeyPatch, *, lets_anybody_in: bool = False
) -> list[Row]:
    def run_cell(*_: object) -> Cell:
        given = json.loads(Path(os.environ[VARIABLE]).read_text())
        is_right = given["password"] == SCRAM.password
        return Cell(OK, "", 1.0) if is_right or lets_anybody_in else Cell(FAILED, "refused", 1.0)

    monkeypatch.setattr(matrix, "run_cell", run_cell)
    return rows_of(["confluent-kafka"], ["topics", REFUSED], access, folder, "127.0.0.1:1", lambda *_: None)


def test_a_wrong_password_must_not_come_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = _rows(SCRAM, tmp_path, monkeypatch)
    assert row.cells == {"topics": Cell(OK, "", 1.0), REFUSED: Cell(OK, "", 1.0)}
    through = problems(_rows(SCRAM, tmp_path, monkeypatch, lets_anybody_in=True))
    assert through == ["confluent-kafka, wrong-login: a wrong password came through"]


def test_a_way_without_a_password_has_no_wrong_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = Access("127.0.0.1:1", "SASL_PLAINTEXT", TOKEN, password=SCRAM.password)
    [row] = _rows(token, tmp_path, monkeypatch)
    assert list(row.cells) == ["topics"]


def test_a_check_that_a_client_does_not_offer_says_nothing_of_passwords() -> None:
    cell = Cell(NOT_OFFERED, "no way", 0.0)
    assert refused_cell(cell) == cell


def test_an_unknown_column_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--columns", "tape"]) == 2
    assert "no column tape" in capsys.readouterr().err
