"""ControllerRegistration (key 70), v0: a controller says where it is and what it can do (KIP-919)."""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import controller_handler
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of ControllerRegistration."""
    return [controller_handler(ports, 70, 0, 0)]
