"""This node's login at other nodes by TLS alone: by its certificate."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.security import Dialled
from blumfeld.spi.transport import ByteLayer
from blumfeld_security.tls.node_tls import NodeTls


class TlsPeer:
    """Implements ``PeerSecurity`` for listeners of the protocol SSL."""

    def __init__(self, tls: NodeTls, listener: str) -> None:
        self._tls = tls
        self._listener = listener

    def byte_layer(self, host: str) -> Callable[[], ByteLayer] | None:
        """See ``PeerSecurity.byte_layer``."""
        return self._tls.peer_layer(self._listener, host)

    async def authenticate(self, connection: Dialled) -> float | None:
        """Nothing follows the handshake."""
        return None
