"""The security role: authenticators, byte layers and an authorizer. Until a plug-in fills it, everyone is
ANONYMOUS and may do everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from blumfeld.spi.context import Principal
from blumfeld.spi.transport import ByteLayer, Connection, ConnectionHandler, Listener


class Authorizer(Protocol):
    """Decides on one operation. Called by every handler; must not block."""

    def authorize(
        self, principal: Principal, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        """Whether the principal, from this address, may do it."""
        ...


class Authenticator(Protocol):
    """One SASL exchange on one connection, without I/O (KIP-43, KIP-152)."""

    def step(self, token: bytes) -> tuple[bytes, Principal | None]:
        """Take the client's token: (challenge or last message, the principal once it is known).

        :raises BrokerError: SASL_AUTHENTICATION_FAILED
        """
        ...


class BrokerConnectionHandler(ConnectionHandler, Protocol):
    """The broker's own handler of connections: it serves every request."""

    def set_principal(self, connection: Connection, principal: Principal) -> None:
        """Set the principal of a connection that :meth:`opened` was told of, for instance from a TLS certificate. Its
        requests have it from now on, also those that wait."""
        ...


class Security(Protocol):
    """Made by ``blumfeld_make_security``."""

    authorizer: Authorizer

    def byte_layer(self, listener: Listener) -> Callable[[], ByteLayer] | None:
        """The TLS layer of a listener, or ``None``."""
        ...

    def connection_handler(self, listener: Listener, broker: BrokerConnectionHandler) -> ConnectionHandler:
        """The handler of this listener's connections: ``broker`` itself, or one that stands in front of it. It may keep
        requests back until a connection is authenticated, and passes on ``opened``, ``closed`` and every request that
        may be served."""
        ...

    def mechanisms(self, listener: Listener) -> dict[str, Callable[[], Authenticator]]:
        """SASL mechanisms by name; empty on a PLAINTEXT listener."""
        ...
