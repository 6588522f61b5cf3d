"""The contract kit of a ZooKeeper session: subclass :class:`ZooKeeperContract`."""

from __future__ import annotations

from blumfeld_kit.zookeeper_contract.contract import ZooKeeperContract

__all__ = ["ZooKeeperContract"]
