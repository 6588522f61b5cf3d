"""Replication by an in-sync replica set, as Kafka's."""

from blumfeld_replication_isr.plugin import Plugin

__all__ = ["Plugin"]
