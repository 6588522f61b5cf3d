"""The contract kit of an object store: subclass :class:`ObjectStoreContract`."""

from __future__ import annotations

from blumfeld_kit.object_store_contract.contract import ObjectStoreContract

__all__ = ["ObjectStoreContract"]
