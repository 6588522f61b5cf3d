"""The security of one node: implements ``spi.security.Security`` from the rooms of this plug-in."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.hooks import Composition, CompositionRefused
from blumfeld.spi.security import Authorizer, BrokerConnectionHandler, PeerSecurity
from blumfeld.spi.transport import ByteLayer, ConnectionHandler, Listener
from blumfeld_security.tls.node_tls import NodeTls
from blumfeld_security.tls.peer import TlsPeer


class NodeSecurity:
    """Made with the node, started before its first listener opens.

    :raises CompositionRefused: a listener has a protocol that isn't served
    """

    def __init__(self, composition: Composition) -> None:
        self.authorizer: Authorizer | None = None
        for nth, listener in enumerate(composition.listeners):
            if listener.security_protocol not in ("PLAINTEXT", "SSL"):
                found = f"{listener.name}, whose protocol is {listener.security_protocol}"
                raise CompositionRefused(f"network.listeners[{nth}].name", found, "PLAINTEXT, SSL")
        self.tls = NodeTls(
            composition.runtime,
            composition.log("tls"),
            composition.config,
            composition.listeners,
            composition.options.tls,
        )

    async def start(self) -> None:
        """As ``Security.start``."""
        await self.tls.start()

    async def stop(self) -> None:
        """As ``Security.stop``."""
        await self.tls.stop()

    def byte_layer(self, listener: Listener) -> Callable[[], ByteLayer] | None:
        """As ``Security.byte_layer``."""
        return self.tls.byte_layer(listener)

    def connection_handler(self, listener: Listener, broker: BrokerConnectionHandler) -> ConnectionHandler:
        """As ``Security.connection_handler``."""
        return self.tls.handler(listener, broker, broker)

    def peer(self, listener: str) -> PeerSecurity | None:
        """As ``Security.peer``."""
        return TlsPeer(self.tls, listener) if self.tls.protocol(listener) == "SSL" else None
