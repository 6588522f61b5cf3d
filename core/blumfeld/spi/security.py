"""The security role: the gate in front of the broker, byte layers, mechanisms and an authorizer
(docs/adr/0048-security.md). Until a plug-in fills it, everyone is ANONYMOUS and may do everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal
from blumfeld.spi.transport import ByteLayer, Connection, ConnectionHandler, Listener
from blumfeld.wire.schema import Message


class Authorizer(Protocol):
    """Decides on one operation. Called by every handler; must not block."""

    generation: int
    """Another number whenever an answer may have changed. An allowed verdict is remembered for a connection while this
    stays; a refusal is asked for each time."""

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: str,
        resource_type: str,
        name: str,
        *,
        quiet: bool = False,
    ) -> bool:
        """Whether the principal, from this address, may do it. Names of operations and resource types are Kafka's:
        ``"Read"``, ``"ClusterAction"``; ``"Topic"``, ``"TransactionalId"``.

        :param quiet: the client didn't ask for this resource: a list is filtered, rights are shown, or another right
            will do. The verdict is the same, and an audit leaves it out
        """
        ...

    def authorize_any(self, principal: Principal, host: str, operation: str, resource_type: str) -> bool:
        """Whether the principal may do it on at least one resource of this type, whatever its name (KIP-679: an
        idempotent producer needs Write on any topic)."""
        ...


class Stepped(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one step of a SASL exchange."""

    reply: bytes
    """The challenge, or the last message."""
    principal: Principal | None = None
    """The principal, once the exchange is over."""
    lifetime_ms: float | None = None
    """The longest time that the login is good for: a token's. ``None`` for no limit of its own."""
    refused: str | None = None
    """Why the login has failed already, for the log, where a mechanism lets the client read a message first. It is
    counted now: not every client sends the step that is then refused."""


class Authenticator(Protocol):
    """One SASL exchange on one connection, without I/O on it (KIP-43, KIP-152)."""

    def step(self, token: bytes) -> Stepped | Completion[Stepped]:
        """Take the client's token. A completion is for what takes time, such as the hash of a password: it runs off the
        loop meanwhile, and no second step comes before it is done.

        :raises BrokerError: SASL_AUTHENTICATION_FAILED, at once or from the completion; its message is sent to the
            client, so it must not tell a wrong password from an unknown user
        """
        ...


MakeAuthenticator: TypeAlias = Callable[[Listener, str], Authenticator]
"""(listener, the peer's address) → the authenticator of one exchange."""
Mechanisms: TypeAlias = Mapping[str, MakeAuthenticator]
"""SASL mechanisms by name, in capitals: ``PLAIN``."""


class BrokerConnectionHandler(ConnectionHandler, Protocol):
    """The broker's own handler of connections: it serves every request."""

    def set_principal(self, connection: Connection, principal: Principal) -> None:
        """Set the principal of a connection that :meth:`opened` was told of, for instance from a TLS certificate. Its
        requests have it from now on, also those that wait."""
        ...


class Dialled(Protocol):
    """A connection that this node has just dialled, before it serves requests."""

    def send(self, request: Message, version: int, answer: Completion[Message]) -> None:
        """Send a request. ``answer`` completes with its response, or fails with ``OSError``."""
        ...


class PeerSecurity(Protocol):
    """This node's proof of identity to the listener of other nodes."""

    def byte_layer(self, host: str) -> Callable[[], ByteLayer] | None:
        """Returns what makes the TLS layer of a connection to this host; ``None`` for none.

        :param host: the name that the other node's certificate must have
        """
        ...

    async def authenticate(self, connection: Dialled) -> float | None:
        """Authenticate on a connection that was just dialled, before versions are negotiated: SASL's requests.

        :return: the ms after which the other node ends the connection unless it is authenticated anew (KIP-368);
            ``None`` for no limit. The channel opens another connection before
        :raises OSError: the other node refuses
        """
        ...


class Security(Protocol):
    """Made by ``blumfeld_make_security``: once for a node, before storage and consensus, which dial other nodes."""

    authorizer: Authorizer | None
    """``None``: everything is allowed, unless ``[security] authorizer`` names one."""

    async def start(self) -> None:
        """Called before the first listener opens, when all parts are made. The image may be empty yet.

        :raises OSError: the node doesn't start
        """
        ...

    async def stop(self) -> None:
        """Called once the listeners are closed. Legal without :meth:`start`."""
        ...

    def reconfigure(self, config: BrokerConfig) -> None:
        """Take keys that were changed at run time, such as a listener's certificate. Must not block or raise: a value
        that can't be used leaves what holds, with a line in the log."""
        ...

    def byte_layer(self, listener: Listener) -> Callable[[], ByteLayer] | None:
        """The TLS layer of a listener, or ``None``."""
        ...

    def connection_handler(self, listener: Listener, broker: BrokerConnectionHandler) -> ConnectionHandler:
        """The handler of this listener's connections: ``broker`` itself, or one that stands in front of it. It may keep
        requests back until a connection is authenticated, and passes on ``opened``, ``closed`` and every request that
        may be served."""
        ...

    def peer(self, listener: str) -> PeerSecurity | None:
        """This node's login at the listener of this name of other nodes; ``None`` where it is PLAINTEXT."""
        ...
