"""BrokerRegistration (key 62), v0-4: a broker's process joins the cluster (KIP-631)."""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import controller_handler
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of BrokerRegistration."""
    return [controller_handler(ports, 62, 0, 4)]
