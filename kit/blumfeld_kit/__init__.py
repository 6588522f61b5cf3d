"""The laboratory: contract kits for plug-ins, fakes, crash and real-disk runs, and the simulation.

Importing this costs nothing; each name is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blumfeld_kit.assignor_contract import AssignorContract
    from blumfeld_kit.authenticator_contract import AuthenticatorContract
    from blumfeld_kit.authorizer_contract import AuthorizerContract
    from blumfeld_kit.consensus_contract import ConsensusContract
    from blumfeld_kit.groups.contract import GroupProtocolContract
    from blumfeld_kit.object_store_contract import ObjectStoreContract
    from blumfeld_kit.observer_contract import ObserverContract
    from blumfeld_kit.quotas_contract import QuotasContract
    from blumfeld_kit.storage_contract import StorageContract, TieringContract
    from blumfeld_kit.transport_contract import TransportContract

__all__ = [
    "AssignorContract",
    "AuthenticatorContract",
    "AuthorizerContract",
    "ConsensusContract",
    "GroupProtocolContract",
    "ObjectStoreContract",
    "ObserverContract",
    "QuotasContract",
    "StorageContract",
    "TieringContract",
    "TransportContract",
]

_HOMES = {
    "AssignorContract": "blumfeld_kit.assignor_contract",
    "AuthenticatorContract": "blumfeld_kit.authenticator_contract",
    "AuthorizerContract": "blumfeld_kit.authorizer_contract",
    "ConsensusContract": "blumfeld_kit.consensus_contract",
    "GroupProtocolContract": "blumfeld_kit.groups.contract",
    "ObjectStoreContract": "blumfeld_kit.object_store_contract",
    "ObserverContract": "blumfeld_kit.observer_contract",
    "QuotasContract": "blumfeld_kit.quotas_contract",
    "StorageContract": "blumfeld_kit.storage_contract",
    "TieringContract": "blumfeld_kit.storage_contract",
    "TransportContract": "blumfeld_kit.transport_contract",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)
