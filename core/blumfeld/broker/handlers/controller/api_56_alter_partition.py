"""AlterPartition (key 56), v2-3: leaders ask for other in-sync replicas (KIP-497, KIP-903)."""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import controller_handler
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of AlterPartition."""
    return [controller_handler(ports, 56, 2, 3)]
