"""Wrong logins of the matrix: one that comes through is a failure, and so is one of which no node says why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from campaigns.clients.access import TOKEN, VARIABLE, Access
from campaigns.clients.matrix import FAILED, NOT_OFFERED, OK, Cell, Row, problems
from campaigns.secured import __main__ as campaign
from campaigns.secured.__main__ import Try, main, refused_cell
from campaigns.secured.wrong_logins import wrong_logins

SCRAM = Access("127.0.0.1:1", "SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", "correct horse")

SAID = "login failed reason='the proof is wrong: user 'alice''"


class FakeCluster:
    def __init__(self, folder: Path, log: str) -> None:
        self.folder, self.log, self.bootstrap = folder, log, "127.0.0.1:1"

    def said(self, text: str) -> int:
        return self.log.count(text)

    def shown(self, name: str) -> dict[str, str]:
        return {"certificate": f"{name}.pem", "key": f"{name}.key"}


def _cluster(folder: Path, log: str = "") -> Any:
    return FakeCluster(folder, log)


def _tried(folder: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell, log: str, client: str) -> Row:
    used = []

    def run_cell(*_: object, environment: dict[str, str], **__: object) -> Cell:
        used.append(json.loads(Path(environment[VARIABLE]).read_text())["password"])
        return cell

    monkeypatch.setattr(campaign, "run_cell", run_cell)
    cluster = _cluster(folder, log)
    row = Row(client)
    Try(row, "a wrong password", wrong_logins(cluster, SCRAM)["a wrong password"], 0).tried(cluster)
    assert used == ["wrong"]
    return row


def test_a_wrong_password_must_not_come_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = "confluent-kafka"
    refused = Cell(FAILED, "refused", 1.0)
    assert problems([_tried(tmp_path, monkeypatch, refused, SAID, client)]) == []
    through = problems([_tried(tmp_path, monkeypatch, Cell(OK, "", 1.0), SAID, client)])
    assert through == ["confluent-kafka, a wrong password: a wrong password came through"]
    unsaid = problems([_tried(tmp_path, monkeypatch, refused, "nothing of it", client)])
    assert unsaid == ["confluent-kafka, a wrong password: no node says: wrong password or the proof is wrong"]


def test_java_must_report_the_refusal_and_not_run_out_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = Cell(FAILED, "[p] … / org.apache.kafka.common.errors.SaslAuthenticationException: …", 1.0)
    assert problems([_tried(tmp_path, monkeypatch, reported, SAID, "java")]) == []
    late = Cell(FAILED, "killed after 30 s", 30.0)
    assert problems([_tried(tmp_path, monkeypatch, late, SAID, "java")]) == [
        "java, a wrong password: the client doesn't report SaslAuthenticationException: killed after 30 s"
    ]


def test_each_way_in_has_its_own_wrong_logins(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    users = ["a wrong password", "an unknown user", "a user without rights"]
    in_tls = ["plain text to TLS", "a signer that the client doesn't trust"]
    certificates = ["an expired certificate", "a foreign certificate", "no certificate"]
    ways = {
        "SASL_PLAINTEXT": (SCRAM, [*users, "TLS to plain text"]),
        "SASL_SSL": (Access(protocol="SASL_SSL", mechanism="PLAIN"), [*users, *in_tls]),
        "a token": (Access(protocol="SASL_SSL", mechanism=TOKEN), ["a forged token", *in_tls]),
        "an endpoint": (
            Access(protocol="SASL_SSL", mechanism=TOKEN, endpoint="https://localhost:1/token"),
            ["a forged token", "an expired token", "a wrong secret", *in_tls],
        ),
        "PLAINTEXT": (Access(), ["TLS to plain text"]),
        "SSL": (Access(protocol="SSL"), in_tls),
        "mutual": (Access(protocol="SSL", certificate="alice.pem"), [*certificates, *in_tls]),
    }
    for access, expected in ways.values():
        assert list(wrong_logins(cluster, access)) == expected
    assert wrong_logins(cluster, Access())["TLS to plain text"].access.protocol == "SSL"
    for way, clear in (("SASL_SSL", "SASL_PLAINTEXT"), ("SSL", "PLAINTEXT")):
        assert wrong_logins(cluster, ways[way][0])["plain text to TLS"].access.protocol == clear


def test_a_check_that_a_client_does_not_offer_says_nothing_of_passwords() -> None:
    cell = Cell(NOT_OFFERED, "no way", 0.0)
    assert refused_cell(cell, "a wrong password", "") == cell


def test_an_unknown_column_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--columns", "tape"]) == 2
    assert "no column tape" in capsys.readouterr().err
