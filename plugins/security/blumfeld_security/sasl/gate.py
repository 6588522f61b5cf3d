"""The gate of a SASL listener: it passes requests to the broker once the client has logged in.

A connection goes through these states, as with Kafka's ``SaslServerAuthenticator``:

* *new*: ApiVersions (once) and SaslHandshake are served.
* *exchange*: SaslAuthenticate is served; after a SaslHandshake of version 0 each frame is a token without a header.
* *open*: everything is served. SaslHandshake begins another exchange (KIP-368), at the end of which mechanism and
  principal must be the same. A session that has an end is closed at the first request after it.
* *failed*: nothing is served. The answer is held back, then it is sent and the connection closed.

Whatever comes out of turn closes the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import msgspec

from blumfeld.client.security.refusals import LoginRefused
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, Principal, RequestContext
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Timer, pause
from blumfeld.spi.security import Authenticator, BrokerConnectionHandler, Mechanisms, Stepped
from blumfeld.spi.transport import Connection, Exchange
from blumfeld.wire.api import API_BY_KEY, ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from blumfeld.wire.schema import Message
from blumfeld_security.sasl.counts import LoginCounts
from blumfeld_security.sasl.failed_logins import FailedLogins

_KEY_AND_VERSION = struct.Struct(">hh")
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = (
    int(ApiKey.API_VERSIONS),
    int(ApiKey.SASL_HANDSHAKE),
    int(ApiKey.SASL_AUTHENTICATE),
)
REAUTHENTICATION_INTERVAL_MS = 1_000
"""Shortest time between two re-authentications of a connection, as in Kafka."""
API_VERSIONS_MAX = 3
"""ApiVersions before a handshake: one in a version that we don't serve, another one, and one to spare."""


class GateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the connections of one listener."""

    receive_bytes_max: int = 524_288
    """``sasl.server.max.receive.size``: the largest frame before the login."""
    frame_bytes_max: int = 104_857_600
    """``socket.request.max.bytes``: the largest frame after it."""
    failure_delay_ms: int = 100
    """``connection.failed.authentication.delay.ms``: how long the answer to a failed login is held back."""
    reauth_ms: int = 0
    """``connections.max.reauth.ms``: the longest session; 0: no end."""
    login_ms_max: int = 30_000
    """How long a connection may take to log in, and to log in again."""


class State(Enum):
    """See the module."""

    NEW = "new"
    EXCHANGE = "exchange"
    OPEN = "open"
    FAILED = "failed"


class Session:
    """A gate's state of one connection."""

    __slots__ = (
        "api_versions",
        "authenticator",
        "began_ms",
        "connection",
        "expires_ms",
        "gate",
        "is_refused",
        "mechanism",
        "principal",
        "raw",
        "state",
        "timer",
        "wrong_mechanism",
    )

    def __init__(self, gate: Gate, connection: Connection) -> None:
        self.gate = gate
        self.connection = connection
        self.state = State.NEW
        self.api_versions = 0
        self.mechanism = ""
        """Mechanism of the present exchange, or of the last one."""
        self.authenticator: Authenticator | None = None
        self.is_refused = False
        """Whether the exchange has failed and its failure is counted, though the client may send another step."""
        self.raw = False
        """Whether tokens come without a header."""
        self.wrong_mechanism: str | None = None
        """The other mechanism that a re-authentication asked for."""
        self.principal: Principal | None = None
        """``None`` until the first login."""
        self.expires_ms: float | None = None
        """End of the session, in monotonic time."""
        self.began_ms = float("-inf")
        """Begin of the last re-authentication."""
        self.timer: Timer | None = None

    @property
    def kind(self) -> str:
        """``authentication`` or ``re-authentication``, for texts."""
        return "authentication" if self.principal is None else "re-authentication"


class Gate:
    """The ``ConnectionHandler`` of one SASL listener.

    :param sessions: connection id → session, of all gates of the node
    :param mechanisms: name → what makes an authenticator, in the order in which clients are told them
    """

    def __init__(
        self,
        broker: BrokerConnectionHandler,
        sessions: dict[int, Session],
        mechanisms: Mechanisms,
        settings: GateSettings,
        runtime: Runtime,
        events: EventLog,
        counts: LoginCounts,
        failed_logins: FailedLogins,
    ) -> None:
        self.settings = settings
        self._broker = broker
        self._serve = broker.request
        self._sessions = sessions
        self._watched: dict[int, Session] = {}
        """Sessions whose requests are looked at: all but those that are open without an end."""
        self._mechanisms = mechanisms
        self._runtime = runtime
        self._events = events
        self._repeated = RepeatedEvents(runtime)
        self._counts = counts
        self._failed_logins = failed_logins

    # ConnectionHandler

    def opened(self, connection: Connection) -> None:
        """Begin a session. The connection has some time to log in."""
        self._broker.opened(connection)
        connection.limit_frames(self.settings.receive_bytes_max)
        session = Session(self, connection)
        self._sessions[connection.id] = self._watched[connection.id] = session
        self._bound(session)

    def closed(self, connection: Connection, reason: str) -> None:
        """Forget the session."""
        session = self._sessions.pop(connection.id, None)
        self._watched.pop(connection.id, None)
        if session is not None:
            session.state = State.FAILED
            _stop_timer(session)
        self._broker.closed(connection, reason)

    def request(self, exchange: Exchange, frame: memoryview) -> None:
        """Pass a request on, if the session lets it. Every request of the listener comes here."""
        session = self._watched.get(exchange.connection.id)
        if session is None:
            self._serve(exchange, frame)
        else:
            self._look_at(session, exchange, frame)

    def _look_at(self, session: Session, exchange: Exchange, frame: memoryview) -> None:
        if session.state is State.EXCHANGE and session.raw:
            self._take_raw(session, exchange, bytes(frame))
            return
        key, version = _KEY_AND_VERSION.unpack_from(frame) if len(frame) >= 4 else (-1, -1)
        reason = self._objection(session, key, version)
        if reason is None:
            self._serve(exchange, frame)
        else:
            exchange.no_answer()
            self._close(session, reason)

    def _objection(self, session: Session, key: int, version: int) -> str | None:
        """Returns why a request may not pass; ``None`` if it may."""
        if session.state is State.OPEN:
            assert session.expires_ms is not None
            if key == _HANDSHAKE or self._runtime.monotonic_ms() < session.expires_ms:
                return None
            self._counts.expired += 1
            return "the session has expired and the client didn't log in again"
        if session.state is State.NEW:
            if key == _API_VERSIONS:
                session.api_versions += 1
                return None if session.api_versions <= API_VERSIONS_MAX else "ApiVersions again and again"
            # The handler says ILLEGAL_SASL_STATE to an authentication without a handshake.
            if key in (_HANDSHAKE, _AUTHENTICATE):
                return None
        if session.state is State.EXCHANGE and key in (_HANDSHAKE, _AUTHENTICATE):
            return None
        name = API_BY_KEY[key].name if key in API_BY_KEY else f"API key {key}"
        return f"{name} v{version} before the login: the listener wants SASL"

    def _bound(self, session: Session) -> None:
        """Begin the time of a login."""
        session.timer = self._runtime.call_later(self.settings.login_ms_max, lambda: self._too_late(session))

    def _too_late(self, session: Session) -> None:
        """Close a connection that took too long. One that said nothing gets no line in the log: a controller that
        has no login for brokers watches them by such connections, and opens the next."""
        reason = "no login in time"
        if session.state is State.NEW and not session.api_versions:
            self._shut(session)
            session.connection.close(reason)
        else:
            self._close(session, reason)

    def _close(self, session: Session, reason: str) -> None:
        """Close a connection that didn't log in."""
        self._shut(session)
        connection = session.connection
        self._say(session, "connection closed", reason)
        connection.close(reason)

    def _shut(self, session: Session) -> None:
        """Serve nothing more on this connection."""
        session.state = State.FAILED
        _stop_timer(session)
        if session.connection.id in self._sessions:  # or it has gone
            self._watched[session.connection.id] = session

    def _say(self, session: Session, event: str, reason: str) -> None:
        connection = session.connection
        key = (event, connection.peer_host, reason.partition(":")[0])
        values = {"reason": reason, "peer": connection.peer_host, "listener": connection.listener.name}
        if session.mechanism:
            values["mechanism"] = session.mechanism
        self._repeated.say(self._events.info, event, key, **values)

    # SaslHandshake

    def handshake(self, session: Session, mechanism: str, version: int) -> Message | Completion[Any]:
        """Begin an exchange."""
        if session.state is State.OPEN:
            if not self._may_begin_again(session):
                return handshake_failed(None, ErrorCode.ILLEGAL_SASL_STATE, None)
            return self._begin_again(session, mechanism)
        if session.state is not State.NEW:
            return self._held_back(
                session,
                handshake_failed(None, ErrorCode.ILLEGAL_SASL_STATE, None),
                "SaslHandshake out of turn",
            )
        offered = list(self._mechanisms)
        if mechanism not in self._mechanisms:
            answer = SaslHandshakeResponse(
                error_code=int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), mechanisms=offered
            )
            self._counts.failed(session.connection.listener.name, "unknown")
            return self._held_back(
                session, answer, f"unsupported mechanism: {mechanism[:40]!r}; enabled: {', '.join(offered)}"
            )
        session.mechanism, session.raw = mechanism, version == 0
        session.authenticator = self._authenticator(session, mechanism)
        session.state = State.EXCHANGE
        return SaslHandshakeResponse(mechanisms=offered)

    def _authenticator(self, session: Session, mechanism: str) -> Authenticator:
        connection = session.connection
        return self._mechanisms[mechanism](connection.listener, connection.peer_host)

    def _may_begin_again(self, session: Session) -> bool:
        now_ms = self._runtime.monotonic_ms()
        if now_ms - session.began_ms < REAUTHENTICATION_INTERVAL_MS:
            return False
        session.began_ms = now_ms
        return True

    def _begin_again(self, session: Session, mechanism: str) -> Message:
        # Kafka answers a wrong mechanism at the first SaslAuthenticate: only that has a place for a text.
        session.wrong_mechanism = None if mechanism == session.mechanism else mechanism
        session.authenticator = self._authenticator(session, session.mechanism)
        session.raw = False
        session.state = State.EXCHANGE
        self._watched[session.connection.id] = session
        self._bound(session)
        return SaslHandshakeResponse(mechanisms=list(self._mechanisms))

    # SaslAuthenticate

    def authenticate(self, session: Session, token: bytes) -> Message | Completion[Any]:
        """Take a token of the client."""
        if session.state is not State.EXCHANGE or session.raw:
            if session.state is State.OPEN:
                text = "SaslAuthenticate request received after successful authentication"
                return authentication_failed(None, ErrorCode.ILLEGAL_SASL_STATE, text)
            text = "Unexpected Kafka request of type SASL_AUTHENTICATE during SASL handshake."
            answer = authentication_failed(None, ErrorCode.ILLEGAL_SASL_STATE, text)
            return self._held_back(session, answer, "SaslAuthenticate without a handshake")
        answered: Completion[Any] = Completion()

        def stepped(step: Stepped) -> None:
            lifetime_ms = 0 if step.principal is None else self._log_in(session, step)
            answered.complete(
                SaslAuthenticateResponse(
                    error_message=None, auth_bytes=step.reply, session_lifetime_ms=lifetime_ms
                )
            )

        def refused(refusal: BrokerError) -> None:
            told = refusal.message or (
                f"Authentication failed during {session.kind} due to invalid credentials with SASL mechanism "
                f"{session.mechanism}"
            )
            answer = authentication_failed(None, ErrorCode.SASL_AUTHENTICATION_FAILED, told)
            self._fail(session, refusal).when_done(
                lambda _: self._answer_and_close(session, answered, answer)
            )

        self._step(session, token, stepped, refused)
        return answered

    def _take_raw(self, session: Session, exchange: Exchange, token: bytes) -> None:
        """Take a token without a header (SaslHandshake v0). A refusal has no answer."""

        def stepped(step: Stepped) -> None:
            if step.principal is not None:
                self._log_in(session, step)
            exchange.answer((step.reply,))

        def refused(refusal: BrokerError) -> None:
            def close(_: Completion[None]) -> None:
                exchange.no_answer()
                session.connection.close("the login failed")

            self._fail(session, refusal).when_done(close)

        self._step(session, token, stepped, refused)

    def _step(
        self,
        session: Session,
        token: bytes,
        stepped: Callable[[Stepped], None],
        refused: Callable[[BrokerError], None],
    ) -> None:
        """Have the authenticator take a token, and call one of both, once."""

        def done(completion: Completion[Stepped]) -> None:
            error = completion.error
            if error is None:
                try:
                    self._check_same(session, completion.result())
                except LoginRefused as refusal:
                    refused(refusal)
                else:
                    step = completion.result()
                    if step.refused is not None:
                        self._note_failure(session, step.refused)
                    stepped(step)
            elif isinstance(error, BrokerError):
                refused(error)
            else:
                self._events.error("authenticator failed", mechanism=session.mechanism, exc_info=error)
                refused(LoginRefused("a defect of the authenticator"))

        self._outcome(session, token).when_done(done)

    def _outcome(self, session: Session, token: bytes) -> Completion[Stepped]:
        failed: Completion[Stepped] = Completion()
        authenticator = session.authenticator
        assert authenticator is not None
        try:
            self._check_before(session)
            outcome = authenticator.step(token)
        except Exception as error:
            failed.fail(error)
            return failed
        return outcome if isinstance(outcome, Completion) else Completion.of(outcome)

    def _check_before(self, session: Session) -> None:
        if session.wrong_mechanism is not None:
            raise LoginRefused(
                "another mechanism than before",
                f"SASL mechanism '{session.wrong_mechanism[:40]}' requested by client is not supported for "
                f"re-authentication of mechanism '{session.mechanism}'",
            )
        if self._failed_logins.must_wait(session.connection.peer_host, self._runtime.monotonic_ms()):
            raise LoginRefused(
                "too many failed logins of this address",
                "Authentication failed: too many failed logins of this address; try again in a minute",
            )

    def _check_same(self, session: Session, step: Stepped) -> None:
        before, now = session.principal, step.principal
        # As in Kafka, a token of the same principal may take the place of its password.
        if before is None or now is None or str(before) == str(now):
            return
        raise LoginRefused(
            f"re-authentication as {now}, before as {before}",
            f"Cannot change principals during re-authentication from {before}: {now}",
        )

    def _log_in(self, session: Session, step: Stepped) -> int:
        """Open the session; returns its length in ms, 0 for no end."""
        assert step.principal is not None
        connection = session.connection
        if session.state is not State.EXCHANGE:
            return 0  # the connection has gone, or was closed meanwhile
        _stop_timer(session)
        self._counts.succeeded(
            connection.listener.name, session.mechanism, again=session.principal is not None
        )
        session.principal, session.authenticator = step.principal, None
        self._broker.set_principal(connection, step.principal)
        connection.limit_frames(self.settings.frame_bytes_max)
        session.state = State.OPEN
        lifetime_ms = self._lifetime_ms(step)
        if lifetime_ms is None:
            session.expires_ms = None
            self._watched.pop(connection.id, None)
            return 0
        session.expires_ms = self._runtime.monotonic_ms() + lifetime_ms
        self._watched[connection.id] = session
        return lifetime_ms

    def _lifetime_ms(self, step: Stepped) -> int | None:
        limits: list[float] = []
        if self.settings.reauth_ms > 0:
            limits.append(self.settings.reauth_ms)
        if step.lifetime_ms is not None:
            limits.append(step.lifetime_ms)
        return max(0, int(min(limits))) if limits else None

    # Failures

    def _fail(self, session: Session, refusal: BrokerError) -> Completion[None]:
        """Count and log a failed login. Completes when its answer may be sent."""
        self._shut(session)
        if not session.is_refused:
            self._note_failure(session, refusal.reason if isinstance(refusal, LoginRefused) else str(refusal))
        return self._delay()

    def _note_failure(self, session: Session, reason: str) -> None:
        connection = session.connection
        session.is_refused = True
        self._counts.failed(connection.listener.name, session.mechanism)
        self._failed_logins.failed(connection.peer_host, self._runtime.monotonic_ms())
        self._say(session, f"{session.kind} failed", reason)

    def _delay(self) -> Completion[None]:
        delay_ms = self.settings.failure_delay_ms
        return pause(self._runtime, delay_ms) if delay_ms > 0 else Completion.of(None)

    def _held_back(self, session: Session, answer: Message, reason: str) -> Completion[Any]:
        """Answer after the delay, then close."""
        self._shut(session)
        self._say(session, "connection closed", reason)
        answered: Completion[Any] = Completion()
        self._delay().when_done(lambda _: self._answer_and_close(session, answered, answer))
        return answered

    def _answer_and_close(self, session: Session, answered: Completion[Any], answer: Message) -> None:
        answered.complete(answer)
        session.connection.close("the login failed")


def _stop_timer(session: Session) -> None:
    if session.timer is not None:
        session.timer.cancel()
        session.timer = None


def sasl_handlers(sessions: Mapping[int, Session]) -> tuple[ApiHandler, ...]:
    """Returns the handlers of SaslHandshake and SaslAuthenticate, for all listeners.

    A connection of a listener without SASL has no session: ILLEGAL_SASL_STATE, as in Kafka.
    """

    def handshake(request: SaslHandshakeRequest, context: RequestContext) -> Message | Completion[Any]:
        session = sessions.get(context.connection_id)
        if session is None:
            return handshake_failed(request, ErrorCode.ILLEGAL_SASL_STATE, None)
        return session.gate.handshake(session, request.mechanism, context.api_version)

    def authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> Message | Completion[Any]:
        session = sessions.get(context.connection_id)
        if session is None:
            text = "SaslAuthenticate request received after successful authentication"
            return authentication_failed(request, ErrorCode.ILLEGAL_SASL_STATE, text)
        return session.gate.authenticate(session, bytes(request.auth_bytes))

    listeners = ("broker", "controller")
    return (
        ApiHandler(
            key=_HANDSHAKE,
            min_version=0,
            max_version=1,
            listeners=listeners,
            handle=handshake,
            error_response=handshake_failed,
        ),
        ApiHandler(
            key=_AUTHENTICATE,
            min_version=0,
            max_version=2,
            listeners=listeners,
            handle=authenticate,
            error_response=authentication_failed,
        ),
    )


def handshake_failed(_request: Message | None, code: int, _message: str | None) -> Message:
    """Returns an answer with this error."""
    return SaslHandshakeResponse(error_code=int(code))


def authentication_failed(_request: Message | None, code: int, message: str | None) -> Message:
    """Returns an answer with this error."""
    return SaslAuthenticateResponse(error_code=int(code), error_message=message)
