"""The byte layer against OpenSSL's other end: handshakes, data, alerts, and what isn't TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from blumfeld.config.values import BrokerConfig
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.spi.context import Principal
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.tls import layer as layer_module
from blumfeld_security.tls.contexts import NO_OPTIONS, server_context
from blumfeld_security.tls.contexts import client_context as peer_context
from blumfeld_security.tls.handshakes import Handshakes
from blumfeld_security.tls.layer import TlsLayer
from blumfeld_security.tls.options import TlsOptions
from blumfeld_security.tls.settings import settings_of
from campaigns.certificates import Authority, private
from tests.plugins.security.tls.authority import AUTHORITY, CLIENT, SERVER, client_context
from tests.plugins.security.tls.ends import End, Stranger, join, server, shake

OTHER = Authority("another")


def config(**more: str) -> BrokerConfig:
    """A configuration with a keystore and a truststore in itself."""
    keys = {key.replace("_", "."): value for key, value in more.items()}
    return BrokerConfig(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": SERVER.key_pem().decode(),
            "ssl.keystore.certificate.chain": SERVER.certificate_pem.decode(),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": AUTHORITY.pem.decode(),
            **keys,
        }
    )


def context(options: TlsOptions = NO_OPTIONS, **more: str) -> ssl.SSLContext:
    """The context of a listener with these keys."""
    return server_context(RealFiles(), settings_of(config(**more), "SSL", with_sasl=False), options).context


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_bytes_pass_both_ways_after_the_handshake(runtime: FakeRuntime, tmp_path: Path, version: str) -> None:
    handshakes = Handshakes(runtime)
    near = server(runtime, context(ssl_enabled_protocols=version), handshakes)
    far = Stranger(client_context(tmp_path))
    shake(near, far)
    assert near.layer.completed
    assert far.tls.version() == version
    near.take(far.say(b"request"))
    assert near.plain == b"request"
    large = bytes(range(256)) * 2_000
    near.send(large)
    assert far.hear(near.sent()) == large
    near.take(far.say(large))
    assert near.plain == b"request" + large
    assert (handshakes.completed, handshakes.failed) == (1, 0)
    assert handshakes.seconds >= 0


def test_nothing_is_worked_on_the_loop_during_a_handshake(runtime: FakeRuntime, tmp_path: Path) -> None:
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    near.take(far.step())
    assert near.layer.waiting, "a worker has the step"
    assert near.out == b""
    assert near.sent()
    assert not near.layer.waiting


def test_a_request_may_come_with_the_end_of_the_handshake(runtime: FakeRuntime, tmp_path: Path) -> None:
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    near.take(far.step())
    far.incoming.write(near.sent())
    near.take(far.step() + far.say(b"request"))
    near.sent()
    assert near.plain == b"request"


def test_pieces_of_any_size_make_a_handshake(runtime: FakeRuntime, tmp_path: Path) -> None:
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    for byte in far.step():
        near.take(bytes((byte,)))
        far.incoming.write(near.sent())
    for byte in far.step() + far.say(b"request"):
        near.take(bytes((byte,)))
        near.sent()
    assert near.plain == b"request"


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (bytes.fromhex("0000002300120003"), "plain text: its security.protocol must be SSL"),
        (b"GET / HTTP/1.1\r\n", "speaks HTTP"),
        (b"\x00", "plain text"),
    ],
)
def test_what_is_not_tls_is_named(runtime: FakeRuntime, first: bytes, words: str) -> None:
    said: list[str] = []
    near = server(runtime, context(), failed=lambda _, reason: said.append(reason))
    near.take(first)
    assert near.broken is not None
    assert words in near.broken
    assert said == [near.broken]
    assert near.out == b"", (
        "librdkafka guesses the cause best from a connection that is closed without a word"
    )


def failing(near: End, far: Stranger) -> str:
    """Shake hands, which must fail at the near end; the reason."""
    shake(near, far)
    assert near.broken is not None
    assert not near.layer.completed
    assert near.layer.peer_certificate() is None
    return near.broken


def test_a_client_without_the_required_certificate_is_refused_with_an_alert(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    near, far = server(runtime, context(ssl_client_auth="required")), Stranger(client_context(tmp_path))
    near.take(far.step())
    far.incoming.write(near.sent())
    near.take(far.step())
    alert = near.sent()
    assert near.broken == "the client sent no certificate, and ssl.client.auth is required"
    far.incoming.write(alert)
    with pytest.raises(ssl.SSLError, match=r"CERTIFICATE_REQUIRED"):
        far.tls.read(1)


def test_a_client_that_does_not_trust_us_is_named(runtime: FakeRuntime, tmp_path: Path) -> None:
    near, far = server(runtime, context()), Stranger(client_context(tmp_path, authority=OTHER))
    assert "its truststore lacks the signer" in failing(near, far)


def test_certificates_of_clients_are_verified(runtime: FakeRuntime, tmp_path: Path) -> None:
    ended = AUTHORITY.leaf(since_days=10, until_days=-1)
    foreign = OTHER.leaf()
    for leaf, words in (
        (ended, "certificate has expired"),
        (
            foreign,
            "no signer in this node's truststore has signed it, self-signed certificate in certificate chain",
        ),
    ):
        near = server(runtime, context(ssl_client_auth="required"))
        assert words in failing(near, Stranger(client_context(tmp_path, leaf)))


def test_a_revoked_client_is_refused(runtime: FakeRuntime, tmp_path: Path) -> None:
    lists = tmp_path / "crl"
    lists.write_bytes(AUTHORITY.revocation_list(CLIENT))
    served = context(TlsOptions(revocation_lists=(str(lists),)), ssl_client_auth="required")
    near = server(runtime, served)
    assert "revoked" in failing(near, Stranger(client_context(tmp_path, CLIENT)))
    another = server(runtime, served)
    shake(another, Stranger(client_context(tmp_path, AUTHORITY.leaf())))
    assert another.layer.completed


@pytest.mark.parametrize(("auth", "shown"), [("requested", True), ("requested", False), ("required", True)])
def test_the_layer_knows_the_clients_certificate(
    runtime: FakeRuntime, tmp_path: Path, auth: str, shown: bool
) -> None:
    near = server(runtime, context(ssl_client_auth=auth))
    shake(near, Stranger(client_context(tmp_path, CLIENT if shown else None)))
    assert near.layer.peer_certificate() == (CLIENT.der if shown else None)


def test_versions_and_suites_are_those_of_the_settings(runtime: FakeRuntime, tmp_path: Path) -> None:
    older = client_context(tmp_path)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    near = server(runtime, context(ssl_enabled_protocols="TLSv1.3"))
    assert "no version of TLS" in failing(near, Stranger(older))
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    chosen = server(runtime, context(ssl_cipher_suites=suite))
    far = Stranger(client_context(tmp_path))
    shake(chosen, far)
    assert far.tls.cipher() == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2", 128)


def test_sessions_are_resumed(runtime: FakeRuntime, tmp_path: Path) -> None:
    served, client = context(ssl_client_auth="required"), client_context(tmp_path, CLIENT)
    near, far = server(runtime, served), Stranger(client)
    shake(near, far)
    near.send(b"x")
    far.hear(near.sent())  # TLS 1.3 gives tickets after the handshake
    again = Stranger(client)
    again.tls.session = far.tls.session
    next_one = server(runtime, served)
    shake(next_one, again)
    assert again.tls.session_reused
    assert next_one.layer.peer_certificate() == CLIENT.der


def test_a_renegotiation_is_refused(runtime: FakeRuntime) -> None:
    assert context().options & ssl.OP_NO_RENEGOTIATION
    assert context().options & ssl.OP_NO_COMPRESSION


def test_bytes_before_an_orderly_end_are_handed_on(runtime: FakeRuntime, tmp_path: Path) -> None:
    """A producer with acks=0 sends, and is gone."""
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    shake(near, far)
    data = far.say(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        far.tls.unwrap()
    near.take(data + far.outgoing.read())
    assert (near.plain, near.broken) == (b"last", None)
    runtime.run_turn()
    assert near.broken == "closed by the peer"
    far.incoming.write(near.out)
    far.tls.unwrap()  # raises without our closing alert


def test_an_orderly_end_is_answered_with_one(runtime: FakeRuntime, tmp_path: Path) -> None:
    """asyncio waits 30 s for it: a client that left took a minute for its two connections."""
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    shake(near, far)
    with pytest.raises(ssl.SSLWantReadError):
        far.tls.unwrap()
    near.take(far.outgoing.read())
    assert near.broken == "closed by the peer"
    far.incoming.write(near.out)
    far.tls.unwrap()


def test_a_spoiled_record_ends_the_connection(runtime: FakeRuntime, tmp_path: Path) -> None:
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    shake(near, far)
    record = bytearray(far.say(b"request"))
    record[-1] ^= 1
    near.take(bytes(record))
    assert near.broken is not None
    assert near.plain == b""


def test_messages_of_tls_without_data_are_bounded(runtime: FakeRuntime, tmp_path: Path) -> None:
    """Key updates and empty records are work for nothing."""
    near, far = server(runtime, context()), Stranger(client_context(tmp_path))
    shake(near, far)
    for _ in range(layer_module.IDLE_BYTES_MAX // 20):
        near.take(far.say(b"0123456789abcdef"))
    assert near.broken is None, "small frames are data"
    with pytest.raises(ConnectionError, match="only messages of TLS"):
        near.layer._bound_idle(layer_module.IDLE_BYTES_MAX + 1, 0)
    with pytest.raises(ConnectionError, match="only messages of TLS"):
        near.layer.received(b"")


def test_a_layer_that_is_gone_does_nothing_when_its_step_ends(runtime: FakeRuntime, tmp_path: Path) -> None:
    handshakes = Handshakes(runtime)
    near, far = server(runtime, context(), handshakes), Stranger(client_context(tmp_path))
    near.take(far.step())
    assert near.layer.closing() == b"", "a worker has the connection's memory"
    near.layer.detach()
    assert near.sent() == b""
    assert (handshakes.completed, handshakes.failed) == (0, 1)


def nodes(runtime: FakeRuntime, host: str, **more: str) -> tuple[End, End]:
    """A node that dials another one."""
    settings = settings_of(config(**more), "SSL", with_sasl=False, dials=True)
    handshakes = Handshakes(runtime)
    dialling = End(runtime, TlsLayer(peer_context(RealFiles(), settings).context, handshakes, host=host))
    return dialling, server(runtime, context(ssl_client_auth="required"))


def test_a_node_dials_another_and_shows_its_certificate(runtime: FakeRuntime) -> None:
    dialling, dialled = nodes(runtime, "localhost")
    dialling.send(b"request")
    join(dialling, dialled)
    assert dialled.plain == b"request"
    assert dialled.layer.peer_certificate() == SERVER.der
    dialled.send(b"answer")
    join(dialling, dialled)
    assert dialling.plain == b"answer"


def test_a_node_does_not_talk_to_a_certificate_of_another_host(runtime: FakeRuntime) -> None:
    dialling, dialled = nodes(runtime, "elsewhere.example")
    dialling.send(b"request")
    join(dialling, dialled)
    assert dialled.plain == b""
    assert dialling.broken is not None
    assert "elsewhere.example" in dialling.broken
    without_check, other = nodes(runtime, "elsewhere.example", ssl_endpoint_identification_algorithm="")
    without_check.send(b"request")
    join(without_check, other)
    assert other.plain == b"request"


def test_the_end_of_a_handshake_may_be_refused_by_a_rule(runtime: FakeRuntime, tmp_path: Path) -> None:
    def no_rule(_: TlsLayer) -> None:
        raise ConnectionError("no rule matches")

    near = server(runtime, context(ssl_client_auth="required"), completed=no_rule)
    shake(near, Stranger(client_context(tmp_path, CLIENT)))
    assert near.broken == "no rule matches"
    assert near.layer.principal is None


def test_the_handler_is_told_before_the_first_request(runtime: FakeRuntime, tmp_path: Path) -> None:
    def completed(layer: TlsLayer) -> None:
        layer.principal = Principal(name="Alice")

    near, far = server(runtime, context(), completed=completed), Stranger(client_context(tmp_path))
    told: list[bytes] = []
    near.layer.when_completed = lambda: told.append(near.plain)
    near.take(far.step())
    far.incoming.write(near.sent())
    near.take(far.step() + far.say(b"request"))
    near.sent()
    assert told == [b""]
    assert near.plain == b"request"


def test_a_client_gets_the_certificate_of_the_name_that_it_asks_for(
    runtime: FakeRuntime, tmp_path: Path
) -> None:
    named = AUTHORITY.leaf(("CN", "named"), hosts=("named.example",))
    place = private(tmp_path / "named.pem", named.pem())
    served = context(TlsOptions(server_names={"named.example": place}), ssl_client_auth="required")
    for host, shown in (("named.example", named), ("localhost", SERVER)):
        near, far = server(runtime, served), Stranger(client_context(tmp_path, CLIENT), host)
        shake(near, far)
        assert far.tls.getpeercert(binary_form=True) == shown.der
        assert near.layer.peer_certificate() == CLIENT.der
    without = server(runtime, served)
    assert "the client sent no certificate" in failing(
        without, Stranger(client_context(tmp_path), "named.example")
    )
