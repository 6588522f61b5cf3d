"""Drives a storage as a node does, on virtual time: the tool of the storage contract and of the crash points."""

from blumfeld_kit.storage_driver.node import Log, Node, make_batch

__all__ = ["Log", "Node", "make_batch"]
