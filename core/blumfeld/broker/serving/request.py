"""The context of one request for its handler: implements ``spi.context.RequestContext``."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.context import ANONYMOUS, Principal
from blumfeld.spi.security import Authorizer
from blumfeld.spi.transport import Exchange, Listener
from blumfeld.wire.primitives import DecodeError

ALLOWED_MAX = 1_000
"""Verdicts that a connection remembers."""
HEADER_BYTES = 10
"""Bytes of a request's header before the client id."""
CLIENT_ID_AT = 8
"""Place of the client id with its length in a request's header."""


class ConnectionState:
    """The broker's state of a connection, kept in ``Connection.state``."""

    __slots__ = (
        "allowed",
        "client_id",
        "client_id_bytes",
        "generation",
        "gone",
        "principal",
        "unlimited",
        "unlimited_at",
        "unlimited_id",
        "when_gone",
    )

    def __init__(self) -> None:
        self.principal: Principal = ANONYMOUS
        self.client_id = ""
        self.client_id_bytes = b""
        """The client id of the last request. Clients send the same one each time, so it is decoded only once."""
        self.gone = False
        """Whether the connection is closed, so that no answer can be sent."""
        self.when_gone: Callable[[], None] | None = None
        """Called when the connection closes; set by a request that waits, such as a long poll."""
        self.allowed: set[tuple[str, str, str]] = set()
        """What the authorizer allowed the principal in this generation: (operation, resource type, name)."""
        self.generation = -1
        """The authorizer's generation of :attr:`allowed`."""
        self.unlimited: int | None = None
        """The quotas' generation in which Produce requests of the principal under :attr:`unlimited_id` count for no
        quota; ``None``: not known of any."""
        self.unlimited_id = b""
        """A client id as it stands in a request's header, with its length."""
        self.unlimited_at = slice(0)
        """The place of :attr:`unlimited_id` in a request."""

    def log_in(self, principal: Principal) -> None:
        """Take another principal: what the former one was allowed says nothing about it."""
        self.principal = principal
        self.allowed.clear()
        self.unlimited = None

    def authorize(
        self, authorizer: Authorizer, host: str, operation: str, resource_type: str, name: str, quiet: bool
    ) -> bool:
        """Ask the authorizer, unless it allowed the same before. A refusal is asked for each time, so the authorizer
        sees each. Quiet questions are not remembered: those on a long list would take the place of all others."""
        wanted = (operation, resource_type, name)
        if self.generation != authorizer.generation:
            self.allowed.clear()
            self.generation = authorizer.generation
        elif wanted in self.allowed:
            return True
        if quiet:
            return authorizer.authorize(self.principal, host, operation, resource_type, name, quiet=True)
        if not authorizer.authorize(self.principal, host, operation, resource_type, name):
            return False
        if len(self.allowed) >= ALLOWED_MAX:
            self.allowed.clear()
        self.allowed.add(wanted)
        return True


class Request:
    """The context of one request. Plain attributes, because one is made for each request."""

    __slots__ = (
        "_authorizer",
        "_state",
        "api_key",
        "api_version",
        "busy_ms",
        "client_id",
        "close_reason",
        "connection_id",
        "correlation_id",
        "error_code",
        "exchange",
        "is_large",
        "listener",
        "peer_host",
        "peer_port",
        "received_ms",
        "rights_generation",
        "throttle_ms",
    )

    rights_generation: int
    """As ``RequestContext.rights_generation``. Without an authorizer no right changes. A slot and no property, because
    each fetch that waits looks twice, which was 1.5 % of its instructions."""
    listener: Listener
    peer_host: str
    peer_port: int
    connection_id: int
    error_code: int
    """The answer's error code. Set only if there are observers, and only if it isn't 0."""
    busy_ms: float
    """Time that the loop worked on the request before it had to wait. Set only in a build with quotas."""

    def __init__(
        self,
        exchange: Exchange,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        received_ms: float,
        authorizer: Authorizer | None,
    ) -> None:
        connection = exchange.connection
        self.exchange = exchange
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.listener = connection.listener
        self.peer_host = connection.peer_host
        self.peer_port = connection.peer_port
        self.connection_id = connection.id
        self.received_ms = received_ms
        self.is_large = False
        """As ``RequestContext.is_large``. A request becomes large when its handler is to serve it in steps."""
        self.close_reason: str | None = None
        """Set by :meth:`close_connection`. The connection is closed instead of answering."""
        self.throttle_ms = 0.0
        """Set by :meth:`throttle`; 0 for no throttling."""
        self._state: ConnectionState = connection.state
        self._authorizer = authorizer
        if authorizer is None:
            self.rights_generation = 0

    @property
    def principal(self) -> Principal:
        """The principal of the connection. A re-authentication may change it while the request waits."""
        return self._state.principal

    def set_principal(self, principal: Principal) -> None:
        """As ``RequestContext.set_principal``."""
        self._state.log_in(principal)

    def authorize(self, operation: str, resource_type: str, name: str, quiet: bool = False) -> bool:
        """As ``RequestContext.authorize``. Without an authorizer everything is allowed."""
        # CPython 3.11 calls a function with keyword-only parameters the slow way, so ``quiet`` is none.
        if self._authorizer is None:
            return True
        return self._state.authorize(self._authorizer, self.peer_host, operation, resource_type, name, quiet)

    def authorize_any(self, operation: str, resource_type: str) -> bool:
        """As ``RequestContext.authorize_any``."""
        if self._authorizer is None:
            return True
        return self._authorizer.authorize_any(self._state.principal, self.peer_host, operation, resource_type)

    def close_connection(self, reason: str) -> None:
        """Close the connection instead of answering, once the handler has returned or completed."""
        self.close_reason = reason

    def throttle(self, duration_ms: float) -> None:
        """Throttle the client after this answer. The longest of several durations counts."""
        self.throttle_ms = max(self.throttle_ms, duration_ms)

    def let_next_start(self) -> None:
        """Let the connection's next request start before this one is answered."""
        self.exchange.let_next_start()

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """As ``RequestContext.when_gone``."""
        self._state.when_gone = callback


class AuthorizedRequest(Request):
    """The context of one request in a build with an authorizer."""

    __slots__ = ()

    @property
    def rights_generation(self) -> int:  # type: ignore[override]
        """As ``RequestContext.rights_generation``."""
        assert self._authorizer is not None
        return self._authorizer.generation


def client_id_of(frame: memoryview, state: ConnectionState) -> str:
    """Returns the client id of a request's header; "" for null.

    :raises DecodeError: the id is cut off, or not UTF-8
    """
    length = (frame[8] << 8) + frame[9]
    if length >= 0x8000:
        return ""
    data = bytes(frame[HEADER_BYTES : HEADER_BYTES + length])
    if data != state.client_id_bytes:
        if len(data) != length:
            raise DecodeError("the client id is cut off")
        try:
            state.client_id = data.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"client id: {error}") from None
        state.client_id_bytes = data
    return state.client_id


def client_id_place(frame: memoryview) -> slice:
    """Returns the place of the client id with its length in a request, where :func:`client_id_of` could read it."""
    length = (frame[8] << 8) + frame[9]
    return slice(CLIENT_ID_AT, HEADER_BYTES + (length if length < 0x8000 else 0))
