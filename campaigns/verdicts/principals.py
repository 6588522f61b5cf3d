"""The security plug-in with one thing more, for this campaign alone: everybody at one listener is one user, who has the
listener's name. So the verdicts are those of the real authorizer, and no way of logging in stands between.
"""

from __future__ import annotations

from typing import Any

from blumfeld.spi.context import Principal
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.security import BrokerConnectionHandler
from blumfeld.spi.transport import Connection, ConnectionHandler, Exchange, Listener
from blumfeld_security import Plugin as SecurityPlugin
from blumfeld_security.node_security import NodeSecurity
from campaigns.verdicts.acl_sets import PRINCIPALS

ADMIN = "admin"
CONTROLLER_PREFIX = "C_"
"""A listener for controllers is called so, and then as the user."""


class _LoggedIn:
    """``ConnectionHandler`` whose connections have a principal from the start."""

    def __init__(self, broker: BrokerConnectionHandler, user: str) -> None:
        self._broker = broker
        self._principal = Principal(user)

    def opened(self, connection: Connection) -> None:
        self._broker.opened(connection)
        self._broker.set_principal(connection, self._principal)

    def request(self, exchange: Exchange, frame: memoryview) -> None:
        self._broker.request(exchange, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        self._broker.closed(connection, reason)


class _Security(NodeSecurity):
    def connection_handler(self, listener: Listener, broker: BrokerConnectionHandler) -> ConnectionHandler:
        user = listener.name.removeprefix(CONTROLLER_PREFIX).lower()
        return _LoggedIn(broker, user) if user in (*PRINCIPALS, ADMIN) else broker


class Plugin(SecurityPlugin):
    """The plug-in ``security_by_listener``."""

    @hookimpl
    def blumfeld_make_security(self, composition: Composition) -> Any:
        """The node's security."""
        self._security = _Security(composition)
        return self._security
