"""AssignReplicasToDirs (key 73), v0: a broker says in which directories its replicas lie (KIP-858)."""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import controller_handler
from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of AssignReplicasToDirs."""
    return [controller_handler(ports, 73, 0, 0)]
