"""AllocateProducerIds (key 67), v0: a broker takes a block of producer ids (KIP-730)."""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import controller_handler
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of AllocateProducerIds."""
    return [controller_handler(ports, 67, 0, 0)]
