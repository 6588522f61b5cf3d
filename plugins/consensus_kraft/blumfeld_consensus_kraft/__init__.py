"""Consensus by Kafka's own raft log: ``__cluster_metadata``, one voter for now."""

from blumfeld_consensus_kraft.plugin import Plugin

__all__ = ["Plugin"]
