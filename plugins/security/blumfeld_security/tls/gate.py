"""Stands in front of the handler of a TLS listener: tells layers their peer's address, and the broker the principal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from blumfeld.spi.security import BrokerConnectionHandler
from blumfeld.spi.transport import Connection, ConnectionHandler, Exchange
from blumfeld_security.tls.layer import TlsLayer


class TlsHandler:
    """Passes everything on to ``inner``.

    :param broker: gets the principal of a client's certificate; ``None`` where SASL gives it
    """

    request: Callable[[Exchange, memoryview], None]
    """That of ``inner`` itself: requests make no detour."""

    def __init__(self, inner: ConnectionHandler, broker: BrokerConnectionHandler | None) -> None:
        self._inner = inner
        self._broker = broker
        self.request = inner.request

    def opened(self, connection: Connection) -> None:
        """See ``ConnectionHandler.opened``."""
        layer = connection.layer
        if isinstance(layer, TlsLayer):
            layer.peer = connection.peer_host
            if self._broker is not None:
                layer.when_completed = partial(self._name, connection, layer)
        self._inner.opened(connection)

    def _name(self, connection: Connection, layer: TlsLayer) -> None:
        if self._broker is not None and layer.principal is not None:
            self._broker.set_principal(connection, layer.principal)

    def closed(self, connection: Connection, reason: str) -> None:
        """See ``ConnectionHandler.closed``."""
        self._inner.closed(connection, reason)
