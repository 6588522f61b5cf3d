"""How clients of the matrix log in: what each is given for the same access."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.clients.access import JAVA_FILE, TOKEN, VARIABLE, Access, access
from campaigns.clients.verdicts import NotOffered

SCRAM = Access("127.0.0.1:1", "SASL_SSL", "SCRAM-SHA-256", "alice", "correct horse", ca="/ca.pem")


def test_without_an_access_clients_dial_as_they_did() -> None:
    plain = Access()
    assert (plain.librdkafka(), plain.kafka_python(), plain.aiokafka(), plain.to_json()) == ({}, {}, {}, {})
    assert plain.java_options() == []


def test_a_step_finds_its_access_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SCRAM.save(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert access() == SCRAM
    option, path = SCRAM.java_options()
    assert option == "--command-config"
    java = Path(path).read_text()
    assert 'ScramLoginModule required username="alice" password="correct horse";' in java
    assert "ssl.truststore.location=/ca.pem" in java
    monkeypatch.delenv(VARIABLE)
    assert access() == Access()


def test_each_client_gets_the_login_in_its_own_words() -> None:
    assert SCRAM.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "correct horse",
    }
    assert SCRAM.kafka_python()["sasl_plain_username"] == "alice"
    assert SCRAM.kafka_python()["ssl_cafile"] == "/ca.pem"


def test_a_client_that_asks_an_issuer_is_given_its_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "https://localhost:1/token"
    oidc = Access("127.0.0.1:1", "SASL_SSL", TOKEN, "alice", "a secret", endpoint=url, ca="/ca.pem")
    for program in (False, True):
        given = oidc.librdkafka(program=program)
        assert given["sasl.oauthbearer.method"] == "oidc"
        assert given["sasl.oauthbearer.token.endpoint.url"] == url
        assert (given["sasl.oauthbearer.client.id"], given["https.ca.location"]) == ("alice", "/ca.pem")
        assert "sasl.password" not in given
    environment = oidc.save(tmp_path)
    assert environment["JAVA_TOOL_OPTIONS"].endswith(f"allowed.urls={url}")
    java = (tmp_path / JAVA_FILE).read_text()
    assert f"sasl.oauthbearer.token.endpoint.url={url}" in java
    assert "sasl.oauthbearer.client.credentials.client.secret=a secret" in java
    for other in (oidc.kafka_python, oidc.aiokafka, oidc.to_json):
        with pytest.raises(NotOffered):
            other()
