"""A node's own login at another node, against a real gate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.security.sasl import Credentials
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.completion import Completion
from blumfeld.spi.secret_files import BadSecretFile
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld.wire.schema import Message
from blumfeld_security.sasl.peer_login import Login, PeerLogin, read_login
from tests.plugins.security.sasl.gate_rig import GateRig, answer


class ToGate:
    """``Dialled`` to a gate."""

    def __init__(self, rig: GateRig) -> None:
        self.rig = rig
        self.connection = rig.connect()
        self.sent: list[Message] = []

    def send(self, request: Message, version: int, done: Completion[Message]) -> None:
        self.sent.append(request)
        exchange = self.rig.send(self.connection, request, version)
        if not exchange.settled:
            self.rig.runtime.advance(200)
        done.complete(answer(exchange, request, version))


class Lying:
    """``Dialled`` to a node that says yes to everything, and knows no credential."""

    def send(self, request: Message, version: int, done: Completion[Message]) -> None:
        if isinstance(request, SaslHandshakeRequest):
            done.complete(SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
        else:
            token: Any = request.auth_bytes  # type: ignore[attr-defined]
            nonce = token.decode().partition("r=")[2]
            first = f"r={nonce}more,s=c2FsdA==,i=4096".encode()
            done.complete(SaslAuthenticateResponse(auth_bytes=first if token[:1] == b"n" else b"v=c2FsdA=="))


def log_in(
    rig: GateRig, mechanism: str, user: str = "alice", password: str = "alice-secret"
) -> tuple[float | None, ToGate]:
    client = ToGate(rig)
    login = PeerLogin(rig.runtime, Credentials(mechanism, user, password))

    async def run() -> float | None:
        return await login.authenticate(client)

    return drive(rig, run()), client


def drive(rig: GateRig, coroutine: Any) -> Any:
    """Run a coroutine that waits for offloaded work only: the gate's turns are run by :class:`ToGate`."""
    try:
        waited = coroutine.send(None)
        while True:
            rig.runtime.advance(1)
            assert waited.done()
            waited = coroutine.send(None)
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_node_with_the_password_is_let_in(mechanism: str) -> None:
    rig = GateRig(reauth_ms=9_000)
    lifetime_ms, client = log_in(rig, mechanism)
    assert lifetime_ms == 9_000
    assert rig.principal(client.connection) == "User:alice"


@pytest.mark.parametrize(
    ("mechanism", "password", "why"),
    [
        ("PLAIN", "wrong", "Invalid username or password"),
        ("SCRAM-SHA-256", "wrong", "invalid credentials"),
        ("SCRAM-SHA-512", "alice-secret", "takes PLAIN, SCRAM-SHA-256 only"),
    ],
)
def test_a_refusal_says_why(mechanism: str, password: str, why: str) -> None:
    with pytest.raises(ConnectionError, match=f"login of 'alice' by {mechanism}: .*{why}"):
        log_in(GateRig(), mechanism, "alice", password)


def test_a_listener_without_sasl_is_named() -> None:
    rig = GateRig()
    client = ToGate(rig)
    rig.sessions.clear()
    rig.gate._watched.clear()
    with pytest.raises(ConnectionError, match="the server's listener has no SASL"):
        drive(rig, PeerLogin(rig.runtime, Credentials("PLAIN", "a", "b")).authenticate(client))


def test_a_node_that_knows_no_credential_of_ours_is_not_believed() -> None:
    rig = GateRig()
    login = PeerLogin(rig.runtime, Credentials("SCRAM-SHA-256", "alice", "alice-secret"))
    with pytest.raises(ConnectionError, match="couldn't prove"):
        drive(rig, login.authenticate(Lying()))


def test_a_salted_password_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = GateRig()
    login = PeerLogin(rig.runtime, Credentials("SCRAM-SHA-256", "alice", "alice-secret"))
    drive(rig, login.authenticate(ToGate(rig)))

    def never(*_: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(rig.runtime, "offload", never)
    drive(rig, login.authenticate(ToGate(rig)))


def test_a_login_lies_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "login.toml"
    file.write_text('user = "broker"\npassword = "hunter2"\n')
    file.chmod(0o600)
    assert read_login(RealFiles(), str(file)) == Login("broker", "hunter2")
    assert "hunter2" not in repr(Login("broker", "hunter2"))
    file.chmod(0o644)
    with pytest.raises(BadSecretFile, match="do: chmod o="):
        read_login(RealFiles(), str(file))


@pytest.mark.parametrize(
    "text",
    [
        "",
        'user = "broker"',
        'user = "broker"\npassword = hunter2',
        'user = "broker"\npassword = "hunter2"\nmore = 1',
        'user = ""\npassword = "hunter2"',
        'user = "broker"\npassword = ["hunter2"]',
    ],
)
def test_another_file_is_refused_without_its_content(tmp_path: Path, text: str) -> None:
    file = tmp_path / "login.toml"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(BadSecretFile, match="allowed: two lines") as refused:
        read_login(RealFiles(), str(file))
    assert "hunter2" not in str(refused.value)
