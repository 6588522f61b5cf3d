"""The gate: what passes before a login, how a login goes and fails, and how a session ends."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.client.security.sasl import BEARER_ERROR_READ, bearer_message
from blumfeld.client.security.scram import SHA_256, ScramClient
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld.spi.security import Stepped
from blumfeld.spi.transport import Connection
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest
from blumfeld_security.exchanges.scram import ClientFirst
from blumfeld_security.sasl.authenticators import (
    BearerAuthenticator,
    BearerUser,
    InvalidToken,
    ScramAuthenticator,
    ScramUser,
)
from blumfeld_security.sasl.failed_logins import ADDRESSES_MAX, WINDOW_MS, FailedLogins
from tests.plugins.security.sasl.gate_rig import (
    API_VERSIONS,
    PASSWORDS,
    SCRAM_USERS,
    GateConnection,
    GateRig,
    answer,
)


def scram_final(client: ScramClient, challenge: bytes, password: str) -> bytes:
    read = client.read(challenge)
    return client.proof(read, SHA_256.salted_password(password, read.salt, read.iterations))


def scram(rig: GateRig, connection: GateConnection, user: str, password: str) -> Any:
    client = ScramClient(SHA_256, user, "client-nonce")
    assert rig.handshake(connection, "SCRAM-SHA-256").error_code == 0
    challenge = rig.authenticate(connection, client.first())
    assert challenge.error_code == 0
    final = scram_final(client, bytes(challenge.auth_bytes), password)
    last = rig.authenticate(connection, final)
    if last.error_code == 0:
        client.verify(bytes(last.auth_bytes))
    return last


@pytest.mark.parametrize(
    "log_in", [lambda r, c: r.plain(c), lambda r, c: scram(r, c, "alice", "alice-secret")]
)
def test_a_client_that_logs_in_is_served_under_its_name(
    log_in: Callable[[GateRig, GateConnection], Any],
) -> None:
    rig = GateRig()
    connection = rig.connect()
    assert rig.ask(connection, API_VERSIONS, 3).error_code == 0
    assert connection.frame_bytes_max == 524_288
    answered = log_in(rig, connection)
    assert (answered.error_code, answered.error_message, answered.session_lifetime_ms) == (0, None, 0)
    assert rig.principal(connection) == "User:alice"
    assert connection.frame_bytes_max == 104_857_600
    rig.runtime.advance(10_000_000)
    assert rig.principal(connection) == "User:alice"
    assert sum(rig.counts.logins.values()) == 1


@pytest.mark.parametrize("key", sorted({*range(93)} - {17, 18, 36}))
def test_nothing_else_passes_before_a_login(key: int) -> None:
    """Neither at first nor within an exchange: the connection is closed without an answer."""
    for prelude in ([], ["handshake"]):
        rig = GateRig()
        connection = rig.connect()
        if prelude:
            rig.handshake(connection)
        exchange = rig.send_frame(connection, struct.pack(">hhih", key, 0, 1, -1) + bytes(20))
        assert exchange.unanswered
        assert connection.closed is not None
        assert rig.principal(connection) is None


def test_a_request_right_behind_a_failed_login_is_not_served() -> None:
    rig = GateRig()
    connection = rig.connect()
    rig.handshake(connection)
    rig.send(connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    assert rig.principal(connection) is None
    assert rig.send(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1).unanswered


def test_an_answer_to_a_wrong_password_is_held_back_then_the_connection_closes() -> None:
    rig = GateRig(failure_delay_ms=100)
    connection = rig.connect()
    rig.handshake(connection)
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong")
    exchange = rig.send(connection, request, 2)
    rig.runtime.advance(99)
    assert not exchange.settled
    assert connection.closed is None
    rig.runtime.advance(1)
    answered = answer(exchange, request, 2)
    assert answered.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answered.error_message == "Authentication failed: Invalid username or password"
    assert connection.closed is not None
    assert rig.counts.logins == {("CLIENTS", "PLAIN", "failed"): 1}


def test_an_unknown_user_of_scram_is_answered_as_a_wrong_password_is() -> None:
    """The log alone tells them apart."""
    answers = []
    for user, reason in (
        ("alice", "the proof is wrong: user 'alice'"),
        ("mallory", "no such user: 'mallory'"),
    ):
        rig = GateRig()
        answers.append(scram(rig, rig.connect(), user, "wrong"))
        assert rig.reasons() == [reason]
    assert answers[0] == answers[1]
    assert answers[0].error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    rig = GateRig()
    connection = rig.connect()
    request = SaslHandshakeRequest(mechanism="GSSAPI")
    exchange = rig.send(connection, request, 1)
    rig.runtime.advance(100)
    answered = answer(exchange, request, 1)
    assert answered.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answered.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert connection.closed is not None
    assert rig.principal(connection) is None
    assert any("'GSSAPI'; enabled: PLAIN, SCRAM-SHA-256" in reason for reason in rig.reasons())


def test_an_authentication_without_a_handshake_is_out_of_turn() -> None:
    rig = GateRig()
    connection = rig.connect()
    answered = rig.authenticate(connection, b"\0alice\0alice-secret")
    assert answered.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.closed is not None
    assert rig.principal(connection) is None


def test_a_second_handshake_within_an_exchange_is_out_of_turn() -> None:
    rig = GateRig()
    connection = rig.connect()
    rig.handshake(connection)
    request = SaslHandshakeRequest(mechanism="PLAIN")
    exchange = rig.send(connection, request, 1)
    rig.runtime.advance(100)
    assert answer(exchange, request, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert connection.closed is not None


def test_after_an_old_handshake_tokens_come_bare() -> None:
    rig = GateRig()
    connection = rig.connect()
    rig.handshake(connection, version=0)
    exchange = rig.send_frame(connection, b"\0alice\0alice-secret")
    assert exchange.data() == b""
    assert rig.principal(connection) == "User:alice"
    other = rig.connect()
    rig.handshake(other, version=0)
    exchange = rig.send_frame(other, b"\0alice\0wrong")
    rig.runtime.advance(100)
    assert exchange.unanswered
    assert other.closed is not None


def test_a_token_without_any_handshake_is_not_taken() -> None:
    rig = GateRig()
    connection = rig.connect()
    assert rig.send_frame(connection, b"\x60\x82\x02\x7b gssapi").unanswered
    assert connection.closed is not None


def test_a_connection_has_some_time_to_log_in() -> None:
    rig = GateRig(login_ms_max=5_000)
    slow, quick, silent = rig.connect(), rig.connect(), rig.connect()
    rig.handshake(slow)
    rig.plain(quick)
    rig.runtime.advance(5_000)
    assert slow.closed == silent.closed == "no login in time"
    assert quick.closed is None
    assert len(rig.reasons()) == 1, "a connection that said nothing gets no line"
    assert rig.principal(slow) is None


def test_a_connection_that_goes_leaves_nothing_behind() -> None:
    """Also one that goes while its login is being checked, or its refusal held back."""
    waiting: list[Completion[Stepped]] = []

    class Slow:
        def step(self, token: bytes) -> Completion[Stepped]:
            waiting.append(Completion())
            return waiting[-1]

    rig = GateRig({"SLOW": lambda *_: Slow()})
    ends: list[Callable[[Completion[Stepped]], None]] = [
        lambda outcome: outcome.complete(Stepped(reply=b"", principal=Principal("alice"))),
        lambda outcome: outcome.fail(LoginRefused("no")),
        lambda outcome: outcome.fail(RuntimeError("defect")),
    ]
    for end in ends:
        connection = rig.connect()
        rig.handshake(connection, "SLOW")
        rig.send(connection, SaslAuthenticateRequest(auth_bytes=b"x"), 2)
        rig.gate.closed(cast("Connection", connection), "gone")
        end(waiting.pop())
        rig.runtime.advance(1_000)
    assert not rig.sessions
    assert not rig.gate._watched


def test_a_defect_of_an_authenticator_lets_nobody_in() -> None:
    class Defective:
        def step(self, token: bytes) -> Stepped:
            raise KeyError("secret")

    rig = GateRig({"X": lambda *_: Defective()})
    connection = rig.connect()
    rig.handshake(connection, "X")
    answered = rig.authenticate(connection, b"x")
    assert answered.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "secret" not in answered.error_message
    assert rig.principal(connection) is None


def test_an_address_with_many_failures_must_wait() -> None:
    rig = GateRig(failures_max=3)
    for _ in range(3):
        rig.plain(rig.connect(), "alice", "wrong")
    refused = rig.plain(rig.connect())
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "too many failed logins" in refused.error_message
    rig.runtime.advance(WINDOW_MS)
    assert rig.plain(rig.connect()).error_code == 0


def test_addresses_are_counted_apart_and_in_bounds() -> None:
    failed = FailedLogins(2)
    for number in range(ADDRESSES_MAX + 5):
        for _ in range(2):
            failed.failed(str(number), 0.0)
    assert failed.must_wait("7", 1.0)
    assert not failed.must_wait("1", 1.0), "the oldest was forgotten"
    assert not failed.must_wait("7", WINDOW_MS)
    assert not FailedLogins(0).must_wait("7", 1.0)


# Re-authentication (KIP-368)


def test_a_session_has_the_length_that_the_broker_says_and_is_renewed() -> None:
    rig = GateRig(reauth_ms=60_000)
    connection = rig.connect()
    assert rig.plain(connection).session_lifetime_ms == 60_000
    for _ in range(3):
        rig.runtime.advance(50_000)
        assert rig.principal(connection) == "User:alice"
        assert rig.plain(connection).session_lifetime_ms == 60_000
    assert rig.counts.logins["CLIENTS", "PLAIN", "renewed"] == 3


def test_an_expired_session_is_closed_at_its_next_request() -> None:
    rig = GateRig(reauth_ms=60_000)
    connection, late = rig.connect(), rig.connect()
    rig.plain(connection)
    rig.plain(late)
    rig.runtime.advance(60_000)
    assert rig.principal(connection) is None
    assert connection.closed is not None
    assert "expired" in connection.closed
    assert rig.counts.expired == 1
    assert rig.plain(late).error_code == 0, "a client may log in again late, as in Kafka"
    assert rig.principal(late) == "User:alice"


def test_a_session_ends_with_its_credential() -> None:
    class Token:
        def step(self, token: bytes) -> Stepped:
            return Stepped(reply=b"", principal=Principal("alice"), lifetime_ms=5_000)

    rig = GateRig({"TOKEN": lambda *_: Token()}, reauth_ms=60_000)
    connection = rig.connect()
    rig.handshake(connection, "TOKEN")
    assert rig.authenticate(connection, b"x").session_lifetime_ms == 5_000
    rig.runtime.advance(5_000)
    assert rig.principal(connection) is None


def test_a_renewal_has_some_time_as_a_login_has() -> None:
    """What was looked up for its first message holds meanwhile, also of a user that is taken away."""
    rig = GateRig(login_ms_max=10_000)
    connection = rig.connect()
    rig.plain(connection)
    rig.handshake(connection)
    rig.runtime.advance(10_000)
    assert connection.closed is not None


@pytest.mark.parametrize("left_ms", [0.0, 5_000.0])
def test_a_token_that_ends_within_the_exchange_logs_nobody_in(left_ms: float) -> None:
    left = [86_400_000.0]
    mechanism = SHA_256
    credential = SCRAM_USERS.by_user["alice", mechanism.number]

    def find(_: ClientFirst) -> ScramUser:
        return ScramUser(credential, Principal("alice", token_authenticated=True), lambda: left[0])

    rig = GateRig({mechanism.name: lambda *_: ScramAuthenticator(mechanism, find, lambda: "nonce")})
    connection, client = rig.connect(), ScramClient(mechanism, "token-id", "nonce")
    rig.handshake(connection, mechanism.name)
    challenge = bytes(rig.authenticate(connection, client.first()).auth_bytes)
    final = scram_final(client, challenge, PASSWORDS["alice"])
    left[0] = left_ms
    answered = rig.authenticate(connection, final)
    assert (answered.error_code == 0, answered.session_lifetime_ms) == (left_ms > 0, left_ms)


def test_a_session_keeps_its_principal() -> None:
    rig = GateRig(reauth_ms=60_000)
    connection = rig.connect()
    rig.plain(connection)
    refused = rig.plain(connection, "bob")
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == (
        "Cannot change principals during re-authentication from User:alice: User:bob"
    )
    assert connection.closed is not None
    assert rig.principal(connection) is None


def test_a_session_may_go_on_by_a_token_of_its_principal() -> None:
    """As in Kafka: how a principal logged in makes it no other one."""
    alice = Principal("alice")
    steps = iter([alice, msgspec.structs.replace(alice, token_authenticated=True)])

    class Either:
        def step(self, token: bytes) -> Stepped:
            return Stepped(reply=b"", principal=next(steps))

    rig = GateRig({"EITHER": lambda *_: Either()}, reauth_ms=60_000)
    connection = rig.connect()
    for _ in range(2):
        rig.handshake(connection, "EITHER")
        assert rig.authenticate(connection, b"x").error_code == 0
    assert rig.principal(connection) == "User:alice"


def test_a_session_keeps_its_mechanism() -> None:
    rig = GateRig(reauth_ms=60_000)
    connection = rig.connect()
    rig.plain(connection)
    assert rig.handshake(connection, "SCRAM-SHA-256").error_code == 0
    refused = rig.authenticate(connection, ScramClient(SHA_256, "alice", "nonce").first())
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in refused.error_message
    assert connection.closed is not None


def test_a_wrong_password_at_a_renewal_ends_the_session() -> None:
    rig = GateRig(reauth_ms=60_000)
    connection = rig.connect()
    rig.plain(connection)
    assert rig.plain(connection, "alice", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert rig.principal(connection) is None


def test_nothing_but_the_exchange_passes_within_a_renewal() -> None:
    rig = GateRig()
    connection = rig.connect()
    rig.plain(connection)
    rig.handshake(connection)
    assert rig.send(connection, MetadataRequest(), 9).unanswered
    assert connection.closed is not None


def test_a_renewal_right_behind_another_is_refused_and_the_session_goes_on() -> None:
    rig = GateRig()
    connection = rig.connect()
    rig.plain(connection)
    rig.plain(connection)
    assert rig.handshake(connection).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert rig.principal(connection) == "User:alice"
    assert rig.authenticate(connection, b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert rig.principal(connection) == "User:alice"


def test_no_secret_is_in_the_log() -> None:
    rig = GateRig()
    rig.plain(rig.connect(), "alice", "hunter2-secret")
    scram(rig, rig.connect(), "alice", "hunter2-secret")
    rig.plain(rig.connect())
    assert "secret" not in str(rig.log.events)
    assert not any(password in str(rig.log.events) for password in PASSWORDS.values())


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([17, 36, 18, 3, 0, -1]), st.integers(0, 2), st.binary(max_size=40)))
)
def test_whatever_frames_come_nobody_is_in(frames: list[tuple[int, int, bytes]]) -> None:
    """No frame raises, and none opens a session."""
    rig = GateRig()
    connection = rig.connect()
    for key, version, body in frames:
        rig.send_frame(connection, struct.pack(">hhih", key, version, 1, -1) + body)
        rig.runtime.advance(200)
        if connection.closed is not None:
            break
    assert all(session.principal is None for session in rig.sessions.values())
    assert not rig.runtime.defects
    assert not [event for event in rig.log.events if event[0] == "error"]


def test_a_token_that_is_not_taken_is_counted_though_the_client_hangs_up() -> None:
    """The client is to read the error's message first. One that does not reply leaves a line and a count, too."""

    def verify(_: str) -> Completion[BearerUser]:
        refused: Completion[BearerUser] = Completion()
        refused.fail(InvalidToken("the signature is wrong"))
        return refused

    rig = GateRig({"OAUTHBEARER": lambda *_: BearerAuthenticator(verify)}, failures_max=2)
    connection = rig.connect()
    rig.handshake(connection, "OAUTHBEARER")
    assert rig.authenticate(connection, bearer_message("token")).error_code == 0
    failed = {("CLIENTS", "OAUTHBEARER", "failed"): 1}
    assert (rig.reasons(), rig.counts.logins) == (["the signature is wrong"], failed)
    told = rig.authenticate(connection, BEARER_ERROR_READ)
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (rig.reasons(), rig.counts.logins) == (["the signature is wrong"], failed), "once"
