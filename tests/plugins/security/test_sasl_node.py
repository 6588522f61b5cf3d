"""A node with SASL listeners: what its manifest must say, and logins over a socket."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.security.sasl import BEARER_ERROR_READ, Credentials, bearer_message
from blumfeld.client.security.scram import SHA_256, ScramClient
from blumfeld.kernel.composing.plan import make_plan
from blumfeld.kernel.formatting.directories import Formatting, format_directories
from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld.plugging.errors import ManifestError
from blumfeld.spi.completion import Completion
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.api import response_class
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from blumfeld.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from blumfeld.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from blumfeld.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from blumfeld.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld.wire.schema import Message
from blumfeld_security.acls.composing import STANDARD_AUTHORIZER
from blumfeld_security.exchanges.passwords import hash_password
from blumfeld_security.sasl.peer_login import PeerLogin

MAP = {"listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"}


class Files:
    """The files of a node's users and of its own login."""

    def __init__(self, directory: Path) -> None:
        self.users = directory / "users.toml"
        self.login = directory / "login.toml"
        lines = [
            f"{user} = '{hash_password(user + '-pw', user.encode() * 4)}'" for user in ("admin", "alice")
        ]
        self.users.write_text("\n".join(["[users]", *lines, ""]))
        self.login.write_text('user = "admin"\npassword = "admin-pw"\n')
        for file in (self.users, self.login):
            file.chmod(0o600)

    @property
    def options(self) -> dict[str, str]:
        return {"plain_users": str(self.users), "peer_login": str(self.login)}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("secrets"))


def manifest(options: dict[str, Any], *listeners: dict[str, Any]) -> dict[str, Any]:
    default = {"name": "CLIENTS", "bind": "127.0.0.1:0", "inter_broker": True}
    return {
        "network": {"listeners": list(listeners) or [default]},
        "security": {"plugin": "security", "options": options},
    }


def config(**more: Any) -> dict[str, Any]:
    between = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    return {**MAP, **between, "sasl.enabled.mechanisms": ["PLAIN", "SCRAM-SHA-256"], **more}


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(manifest=manifest(files.options), config=config()) as running:
        yield running


class Over:
    """``Dialled`` over a socket."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    def send(self, request: Message, version: int, answer: Completion[Message]) -> None:
        key = type(request).meta.key
        assert key is not None
        answer.complete(self._connection.ask(request, response_class(key), version))


def connect(broker: EmbeddedBroker) -> BlockingConnection:
    return BlockingConnection(broker.host, broker.port, "test", 20.0)


def log_in(connection: BlockingConnection, mechanism: str, user: str, password: str) -> None:
    async def run() -> None:
        runtime = AsyncioRuntime(lambda where, error: None)
        await PeerLogin(runtime, Credentials(mechanism, user, password)).authenticate(Over(connection))

    asyncio.run(run())


def brokers_seen(connection: BlockingConnection) -> int:
    return len(connection.ask(MetadataRequest(), MetadataResponse, 9).brokers)


def test_a_user_of_the_file_logs_in_and_is_served(broker: EmbeddedBroker) -> None:
    with connect(broker) as connection:
        log_in(connection, "PLAIN", "alice", "alice-pw")
        assert brokers_seen(connection) == 1
    with connect(broker) as connection, pytest.raises(ConnectionError, match="Invalid username or password"):
        log_in(connection, "PLAIN", "alice", "wrong")


def test_without_a_login_nothing_is_served(broker: EmbeddedBroker) -> None:
    with connect(broker) as connection, pytest.raises(OSError, match=r"clos|reset|ended"):
        brokers_seen(connection)


def test_a_credential_of_scram_is_made_used_and_described(broker: EmbeddedBroker) -> None:
    salt = b"0123456789abcdef"
    upsertion = ScramCredentialUpsertion(
        name="carol",
        mechanism=1,
        iterations=4096,
        salt=salt,
        salted_password=SHA_256.salted_password("carol-pw", salt, 4096),
    )
    with connect(broker) as admin:
        log_in(admin, "PLAIN", "admin", "admin-pw")
        altered = admin.ask(
            AlterUserScramCredentialsRequest(upsertions=[upsertion]), AlterUserScramCredentialsResponse, 0
        )
        assert [(result.user, result.error_code) for result in altered.results] == [("carol", 0)]
        with connect(broker) as carol:
            log_in(carol, "SCRAM-SHA-256", "carol", "carol-pw")
            assert brokers_seen(carol) == 1
        described = admin.ask(
            DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse, 0
        )
        assert [(each.user, each.credential_infos[0].iterations) for each in described.results] == [
            ("carol", 4096)
        ]


def test_a_plaintext_listener_says_that_it_has_no_sasl(files: Files) -> None:
    listeners = (
        {"name": "PLAINTEXT", "bind": "127.0.0.1:0", "inter_broker": True},
        {"name": "CLIENTS", "bind": "127.0.0.1:0"},
    )
    open_too = EmbeddedBroker(manifest=manifest(files.options, *listeners), config=config())
    with open_too as running, connect(running) as connection:
        answered = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        assert answered.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert brokers_seen(connection) == 1


@pytest.mark.parametrize(
    ("options", "changed", "complaint"),
    [
        ({}, {"sasl.enabled.mechanisms": ["GSSAPI"]}, "Kerberos is not implemented"),
        ({}, {"sasl.enabled.mechanisms": ["DIGEST-MD5"]}, "DIGEST-MD5 for the listener CLIENTS"),
        ({"plain_users": ""}, {}, "security.options.plain_users: found nothing, and PLAIN is enabled"),
        ({}, {"sasl.enabled.mechanisms": ["OAUTHBEARER"]}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({}, {"sasl.jaas.config": "x"}, "passwords lie in files of their own"),
        ({"plain_users": "/absent"}, {}, "No such file"),
    ],
)
def test_a_listener_without_what_it_needs_is_refused(
    files: Files, options: dict[str, Any], changed: dict[str, Any], complaint: str
) -> None:
    with (
        pytest.raises(Exception, match=complaint),
        EmbeddedBroker(manifest=manifest({**files.options, **options}), config=config(**changed)),
    ):
        pass


def test_an_open_controller_listener_is_refused_unless_it_is_said(files: Files) -> None:
    client = {"name": "CLIENTS", "kind": "broker", "bind": "127.0.0.1:0", "inter_broker": True}
    controller = {
        "name": "CONTROLLER",
        "kind": "controller",
        "bind": "0.0.0.0:0",
        "advertised": "127.0.0.1:9",
    }
    said = {"allow_open_controller_listener": True}
    with (
        pytest.raises(Exception, match="whoever reaches it controls the cluster"),
        EmbeddedBroker(manifest=manifest(files.options, client, controller), config=config()),
    ):
        pass
    with EmbeddedBroker(
        manifest=manifest({**files.options, **said}, client, controller), config=config()
    ) as running:
        assert running.port


@pytest.mark.parametrize(
    ("client_auth", "acls", "is_refused"),
    [
        ("none", False, True),
        ("none", True, True),
        ("requested", False, True),
        ("requested", True, False),
        ("required", False, False),
    ],
)
def test_a_controller_listener_of_tls_that_takes_strangers_is_open(
    tmp_path: Path, client_auth: str, acls: bool, is_refused: bool
) -> None:
    pytest.importorskip("cryptography")
    from campaigns.certificates import private
    from tests.plugins.security.tls.authority import AUTHORITY, SERVER

    given: dict[str, Any] = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": private(tmp_path / "node.pem", SERVER.pem()),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": private(tmp_path / "trust.pem", AUTHORITY.pem),
        "listener.name.controller.ssl.client.auth": client_auth,
    }
    if acls:
        given["authorizer.class.name"] = STANDARD_AUTHORIZER
    listeners = (
        {"name": "PLAINTEXT", "kind": "broker", "bind": "127.0.0.1:0", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": "0.0.0.0:0", "advertised": "127.0.0.1:9"},
    )
    running = EmbeddedBroker(manifest=manifest({}, *listeners), config=given)
    if is_refused:
        with pytest.raises(Exception, match="whoever reaches it controls the cluster"), running:
            pass
    else:
        with running:
            assert running.port


def test_formatting_leaves_credentials_that_voters_log_in_by(tmp_path: Path) -> None:
    def formatted(name: str, *more: str) -> list[Message]:
        directory = tmp_path / name

        async def main() -> None:
            text = read_manifest("\n".join(more), "m.toml", data_dir=str(directory))
            runtime = AsyncioRuntime(lambda where, error: None)
            added = Formatting(add_scram=("SCRAM-SHA-256=[name=alice,password=pencil]",))
            format_directories(make_plan(text, "m.toml"), runtime, added)

        asyncio.run(main())
        return decode_checkpoint((directory / "bootstrap.checkpoint").read_bytes(), "b").records

    [record] = [each for each in formatted("a", "[security]", 'plugin = "security"') if each.meta.key == 11]
    assert record.name == "alice"  # type: ignore[attr-defined]
    with pytest.raises(ManifestError, match="no plug-in of this build keeps credentials"):
        formatted("b")


def test_a_bearer_token_of_the_issuer_logs_in(files: Files, tmp_path: Path) -> None:
    """Another one is answered with the error's message, and refused when the client has read it (RFC 7628)."""
    pytest.importorskip("joserfc")
    from tests.plugins.security.sasl.test_bearer_tokens import CLAIMS, JWKS, RSA, STRANGER, signed

    (tmp_path / "keys.json").write_bytes(JWKS)
    oauth = {
        "sasl.enabled.mechanisms": ["PLAIN", "OAUTHBEARER"],
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/keys.json",
        "sasl.oauthbearer.expected.audience": ["kafka"],
    }
    now_s = int(time.time())
    claims = {**CLAIMS, "iat": now_s, "exp": now_s + 100}
    with EmbeddedBroker(manifest=manifest(files.options), config=config(**oauth)) as running:
        with connect(running) as connection:
            answered = bearer(connection, signed(RSA, "RS256", claims))
            assert (answered.error_code, answered.auth_bytes) == (0, b"")
            assert 90_000 < answered.session_lifetime_ms <= 100_000
            assert brokers_seen(connection) == 1
        with connect(running) as connection:
            answered = bearer(connection, signed(STRANGER, "RS256", claims))
            assert (answered.error_code, answered.auth_bytes) == (0, b'{"status":"invalid_token"}')
            told = step(connection, BEARER_ERROR_READ)
            assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert told.error_message == '{"status":"invalid_token"}'


def bearer(connection: BlockingConnection, token: str) -> SaslAuthenticateResponse:
    connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), SaslHandshakeResponse, 1)
    return step(connection, bearer_message(token))


def step(connection: BlockingConnection, token: bytes) -> SaslAuthenticateResponse:
    return connection.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, 2)


class Tokens:
    """Delegation tokens over one connection."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    def create(self, **fields: Any) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, **fields)
        return self._connection.ask(request, CreateDelegationTokenResponse, 3)

    def renew(self, secret: bytes) -> int:
        request = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=-1)
        return self._connection.ask(request, RenewDelegationTokenResponse, 2).error_code

    def expire(self, secret: bytes) -> int:
        request = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1)
        return self._connection.ask(request, ExpireDelegationTokenResponse, 2).error_code

    def described(self, *owners: str) -> list[str]:
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
        request = DescribeDelegationTokenRequest(owners=named or None)
        answered = self._connection.ask(request, DescribeDelegationTokenResponse, 3)
        assert answered.error_code == 0
        return [token.token_id for token in answered.tokens]


def log_in_by_token(connection: BlockingConnection, token_id: str, secret: bytes) -> SaslAuthenticateResponse:
    client = ScramClient(SHA_256, token_id, "nonce", {"tokenauth": "true"})
    connection.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), SaslHandshakeResponse, 1)
    password = base64.b64encode(secret).decode()
    challenge = bytes(step(connection, client.first()).auth_bytes)
    read = client.read(challenge)
    final = client.proof(read, SHA_256.salted_password(password, read.salt, read.iterations))
    return step(connection, final)


def test_a_delegation_token_logs_in_for_its_owner_and_makes_no_other(files: Files) -> None:
    with (
        EmbeddedBroker(
            manifest=manifest(files.options), config=config(**{"delegation.token.secret.key": "key"})
        ) as running,
        connect(running) as alice,
        connect(running) as other,
    ):
        log_in(alice, "PLAIN", "alice", "alice-pw")
        renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
        made = Tokens(alice).create(renewers=renewers)
        assert (made.error_code, made.principal_name) == (0, "alice")
        with connect(running) as client:
            answered = log_in_by_token(client, made.token_id, bytes(made.hmac))
            assert answered.error_code == 0
            assert 0 < answered.session_lifetime_ms <= 86_400_000
            assert brokers_seen(client) == 1
            not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert Tokens(client).create().error_code == not_allowed
            assert Tokens(client).renew(bytes(made.hmac)) == not_allowed
        with connect(running) as thief:
            refused = log_in_by_token(thief, made.token_id, b"wrong")
            assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        log_in(other, "PLAIN", "admin", "admin-pw")
        assert Tokens(other).renew(bytes(made.hmac)) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert Tokens(alice).renew(bytes(made.hmac)) == 0
        for owners, shown in (((), 1), (("alice",), 1), (("carol", "bob"), 1), (("carol",), 0)):
            assert len(Tokens(alice).described(*owners)) == shown, owners
        assert Tokens(alice).expire(bytes(made.hmac)) == 0
        assert Tokens(alice).described() == []
        with connect(running) as late:
            gone = log_in_by_token(late, made.token_id, bytes(made.hmac))
            assert gone.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
