"""Consensus of a cluster that keeps its metadata in a ZooKeeper."""

from blumfeld_consensus_zk_compat.plugin import Plugin

__all__ = ["Plugin"]
