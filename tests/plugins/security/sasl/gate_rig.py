"""A gate in front of a real dispatcher, on virtual time; the clients' side of an exchange."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from blumfeld.broker.serving.dispatch import Dispatcher
from blumfeld.client.security.refusals import LoginRefused
from blumfeld.client.security.scram import MECHANISMS
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, Principal, RequestContext
from blumfeld.spi.security import Mechanisms
from blumfeld.spi.transport import Connection, Exchange, Listener
from blumfeld.wire.api import response_class
from blumfeld.wire.codec import decode
from blumfeld.wire.headers import response_body_offset
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from blumfeld.wire.messages.sasl_handshake import SaslHandshakeRequest
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.exchanges.plain import WRONG, PlainLogin
from blumfeld_security.exchanges.scram import ClientFirst, credential_of
from blumfeld_security.sasl.authenticators import PlainAuthenticator, ScramAuthenticator, ScramUser
from blumfeld_security.sasl.counts import LoginCounts
from blumfeld_security.sasl.failed_logins import FailedLogins
from blumfeld_security.sasl.gate import Gate, GateSettings, Session, sasl_handlers
from blumfeld_security.scram.credentials import Credentials
from tests.broker.harness import FakeConnection, FakeExchange, Quiet

M = TypeVar("M", bound=Message)
LISTENER = Listener(
    name="CLIENTS", kind="broker", host="127.0.0.1", port=9092, security_protocol="SASL_PLAINTEXT"
)
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
SCRAM_USERS = Credentials(
    {
        (user, mechanism.number): credential_of(
            mechanism, mechanism.salted_password(password, b"salt" * 4, 4096), b"salt" * 4, 4096
        )
        for user, password in PASSWORDS.items()
        for mechanism in MECHANISMS.values()
    }
)


class GateConnection(FakeConnection):
    """A connection of the listener, with the limit of its frames."""

    def __init__(self, number: int, listener: Listener = LISTENER) -> None:
        super().__init__(listener)
        self.id = number
        self.frame_bytes_max = 104_857_600

    def limit_frames(self, bytes_max: int) -> None:
        self.frame_bytes_max = bytes_max


def verify(login: PlainLogin) -> Completion[None]:
    """The verifier of PLAIN, without its slow hashes."""
    if PASSWORDS.get(login.user) == login.password:
        return Completion.of(None)
    refused: Completion[None] = Completion()
    refused.fail(LoginRefused("wrong", WRONG))
    return refused


def find(first: ClientFirst) -> ScramUser:
    """The look-up of SCRAM."""
    mechanism = MECHANISMS["SCRAM-SHA-256"]
    credential = SCRAM_USERS.find(mechanism, first.user)
    if credential is None:
        return ScramUser(SCRAM_USERS.made_up(mechanism, first.user), None)
    return ScramUser(credential, Principal(first.user))


class GateRig:
    """One listener with its gate. Each method ends the turn."""

    def __init__(
        self,
        mechanisms: Mechanisms | None = None,
        *,
        failures_max: int = 0,
        **settings: Any,
    ) -> None:
        self.runtime = FakeRuntime()
        self.log = Quiet()
        self.sessions: dict[int, Session] = {}
        self.counts = LoginCounts()
        self.dispatcher = Dispatcher("broker", self.runtime, self.log)
        for handler in (*sasl_handlers(self.sessions), *served()):
            self.dispatcher.register(handler)
        self.gate = Gate(
            self.dispatcher,
            self.sessions,
            mechanisms
            or {
                "PLAIN": lambda *_: PlainAuthenticator(verify),
                "SCRAM-SHA-256": lambda *_: ScramAuthenticator(
                    MECHANISMS["SCRAM-SHA-256"], find, lambda: "nonce"
                ),
            },
            GateSettings(**settings),
            self.runtime,
            self.log,
            self.counts,
            FailedLogins(failures_max),
        )
        self._connections = 0

    def connect(self) -> GateConnection:
        """Returns a connection that was just accepted."""
        self._connections += 1
        connection = GateConnection(self._connections)
        self.gate.opened(cast("Connection", connection))
        return connection

    def send(self, connection: GateConnection, request: Message, version: int) -> FakeExchange:
        """Send a request."""
        from blumfeld.client.frames import request_frame

        return self.send_frame(connection, request_frame(request, version, 7, "test")[4:])

    def send_frame(self, connection: GateConnection, frame: bytes) -> FakeExchange:
        """Send a frame."""
        exchange = FakeExchange(connection)
        self.gate.request(cast("Exchange", exchange), memoryview(bytearray(frame)))
        self.runtime.run_turn()
        return exchange

    def ask(self, connection: GateConnection, request: Message, version: int) -> Any:
        """Send a request; returns its answer."""
        return answer(self.send(connection, request, version), request, version)

    def handshake(self, connection: GateConnection, mechanism: str = "PLAIN", version: int = 1) -> Any:
        """Choose a mechanism."""
        return self.ask(connection, SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, connection: GateConnection, token: bytes, version: int = 2) -> Any:
        """Send a token; an answer that is held back is waited for."""
        request = SaslAuthenticateRequest(auth_bytes=token)
        exchange = self.send(connection, request, version)
        if not exchange.settled:
            self.runtime.advance(self.gate.settings.failure_delay_ms)
        return answer(exchange, request, version)

    def plain(self, connection: GateConnection, user: str = "alice", password: str | None = None) -> Any:
        """Log in by PLAIN."""
        assert self.handshake(connection).error_code == 0
        return self.authenticate(connection, f"\0{user}\0{password or PASSWORDS[user]}".encode())

    def principal(self, connection: GateConnection) -> str | None:
        """Returns the principal that a request has, or ``None`` where it isn't served."""
        exchange = self.send(connection, MetadataRequest(), 9)
        if exchange.unanswered:
            return None
        return str(answer(exchange, MetadataRequest(), 9).cluster_id)

    def reasons(self) -> list[str]:
        """Returns the reasons in the log."""
        return [values["reason"] for _, _, values in self.log.events if "reason" in values]


def answer(exchange: FakeExchange, request: Message, version: int) -> Any:
    """Returns an answer."""
    key = type(request).meta.key
    assert key is not None
    data = memoryview(exchange.data())
    _, position = response_body_offset(data, key, version)
    return decode(response_class(key), data, version, position)


def served() -> list[ApiHandler]:
    """ApiVersions, and a Metadata that says under which principal it was asked."""

    def failed(_request: Message, code: int, _message: str | None) -> Message:
        raise AssertionError(code)

    def metadata(_request: MetadataRequest, context: RequestContext) -> Message:
        return MetadataResponse(cluster_id=str(context.principal))

    return [
        ApiHandler(
            key=18,
            min_version=0,
            max_version=4,
            handle=lambda request, context: ApiVersionsResponse(),
            error_response=failed,
        ),
        ApiHandler(key=3, min_version=0, max_version=13, handle=metadata, error_response=failed),
    ]


API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
