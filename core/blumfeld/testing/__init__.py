"""For tests: a real broker in this process, contract kits for plug-ins, and the simulation.

Importing this costs nothing; each name is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blumfeld.testing.assignor_contract import AssignorContract
    from blumfeld.testing.brokers.embedded import DefectError, EmbeddedBroker
    from blumfeld.testing.groups.contract import GroupProtocolContract
    from blumfeld.testing.observer_contract import ObserverContract
    from blumfeld.testing.storage_contract import StorageContract
    from blumfeld.testing.transport_contract import TransportContract

__all__ = [
    "AssignorContract",
    "DefectError",
    "EmbeddedBroker",
    "GroupProtocolContract",
    "ObserverContract",
    "StorageContract",
    "TransportContract",
]

_HOMES = {
    "AssignorContract": "blumfeld.testing.assignor_contract",
    "DefectError": "blumfeld.testing.brokers.embedded",
    "EmbeddedBroker": "blumfeld.testing.brokers.embedded",
    "GroupProtocolContract": "blumfeld.testing.groups.contract",
    "ObserverContract": "blumfeld.testing.observer_contract",
    "StorageContract": "blumfeld.testing.storage_contract",
    "TransportContract": "blumfeld.testing.transport_contract",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
