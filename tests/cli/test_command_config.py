"""The verbs that dial a broker, at one that speaks SASL_SSL alone and has ACLs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.testing import EmbeddedBroker
from campaigns.certificates import Authority
from tests.secured import ALICE, MODULE, Secured, password_of, secured_broker


class Target:
    """A secured broker and a plain one, and a verb that asks either."""

    def __init__(self, secured: EmbeddedBroker, plain: EmbeddedBroker, files: Secured) -> None:
        self.secured, self.plain = (f"{broker.host}:{broker.port}" for broker in (secured, plain))
        self.files = files


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as (secured, files), EmbeddedBroker() as plain:
        yield Target(secured, plain, files)


VERBS = {
    "cluster": ("cluster", "status", "--json", "--bootstrap"),
    "plan": ("plan", "--json", "--of"),
}
verbs = pytest.mark.parametrize("verb", VERBS)


def ask(verb: str, address: str, config: str | None) -> int:
    given = () if config is None else ("--command-config", config)
    return run_app([*VERBS[verb], address, *given])


@verbs
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_verb_logs_in(
    verb: str, mechanism: str, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    config = target.files.properties(sasl_mechanism=mechanism)
    assert ask(verb, target.secured, config) == 0
    out, err = capsys.readouterr()
    assert err == ""
    told = json.loads(out)
    if verb == "cluster":
        assert told["quorum"]["leader"] == 1
        assert [node["answers"] for node in told["nodes"]] == [True]
    else:
        assert "security" in out


WRONG = f'{MODULE} required username="{ALICE}" password="wrong";'


@verbs
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            None,
            "the server closed the connection before it served anything. Its listener may want TLS or a login",
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "ssl_truststore_type": None,
                "ssl_truststore_location": None,
            },
            "the server closed the connection before it served anything. Its listener may want TLS, or no login",
        ),
        (
            {"security_protocol": "SSL", "sasl_mechanism": None, "sasl_jaas_config": None},
            "the server closed the connection before it served anything. Its listener may want a login, or a cert",
        ),
        (
            {"sasl_jaas_config": WRONG},
            f"login of '{ALICE}' by SCRAM-SHA-256: the server refuses: Authentication failed",
        ),
        (
            {"ssl_truststore_location": "OTHER"},
            "the server's certificate isn't accepted: no certificate of ssl.truststore.location has signed it",
        ),
        (
            {
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_jaas_config": None,
                "sasl_oauthbearer_token_endpoint_url": "TOKEN",
            },
            "login by OAUTHBEARER: the server takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 only",
        ),
    ],
)
def test_a_verb_says_why_it_is_not_let_in(
    verb: str,
    changed: dict[str, str | None] | None,
    told: str,
    target: Target,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "other.pem").write_bytes(Authority().pem)
    (tmp_path / "token").write_text("a.b.c")
    places = {"OTHER": str(tmp_path / "other.pem"), "TOKEN": f"file://{tmp_path}/token"}
    given = {key: places.get(value or "", value) for key, value in (changed or {}).items()}
    config = None if changed is None else target.files.properties("other.properties", **given)
    assert ask(verb, target.secured, config) in (1, 2)
    _, err = capsys.readouterr()
    assert f"{target.secured}: {told}" in err
    assert err.count("\n") == 1
    assert "wrong" not in err


@verbs
def test_tls_to_a_plain_listener_is_named(
    verb: str, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(verb, target.plain, target.files.properties()) in (1, 2)
    told = "the server closed the connection in the TLS handshake: is that listener's security.protocol PLAINTEXT"
    assert f"{target.plain}: {told}" in capsys.readouterr().err


@verbs
def test_a_wrong_file_is_refused_before_anything_is_dialled(
    verb: str, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    config = target.files.properties("wrong.properties", linger_ms="1")
    assert ask(verb, target.secured, config) == 2
    assert f"{config}: linger.ms: found a key that has no effect here; allowed: " in capsys.readouterr().err


def test_a_file_that_others_may_read_is_warned_of(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    config = target.files.properties("open.properties")
    Path(config).chmod(0o644)
    assert ask("cluster", target.secured, config) == 0
    assert f"warning: {config}: every user of this machine may read or change it" in capsys.readouterr().err


def test_a_user_without_rights_is_told_so(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    escaped = password_of(ALICE).replace("\\", "\\\\").replace('"', '\\"')
    jaas = f'{MODULE} required username="{ALICE}" password="{escaped}";'
    config = target.files.properties("alice.properties", sasl_jaas_config=jaas)
    assert ask("plan", target.secured, config) == 2
    assert "not authorised" in capsys.readouterr().err
    assert ask("cluster", target.secured, config) == 0
    assert "this user may not Describe the cluster: its quorum" in capsys.readouterr().err


def test_a_plan_of_a_manifest_takes_no_login(target: Target, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["plan", "--command-config", target.files.properties()]) == 2
    assert "--command-config: only where a HOST:PORT of a broker is asked" in capsys.readouterr().err
