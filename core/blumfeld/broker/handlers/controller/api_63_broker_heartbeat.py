"""BrokerHeartbeat (key 63), v0-2: a broker says that it lives, and what it wants (KIP-631)."""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import controller_handler
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of BrokerHeartbeat."""
    return [controller_handler(ports, 63, 0, 2)]
