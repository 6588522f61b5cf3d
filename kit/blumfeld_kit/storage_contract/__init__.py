"""The contract of a storage, as tests: subclass :class:`StorageContract` and give it your storage.

``contract`` has the class and an example. Each other module is one part of the contract, except ``kit`` (what a
subclass overrides), ``cleaner_passes`` and ``random_operations`` (tools of the parts).
"""

from blumfeld_kit.storage_contract.contract import StorageContract
from blumfeld_kit.storage_contract.tiering import TieringContract

__all__ = ["StorageContract", "TieringContract"]
