"""Log storage in a directory laid out as Kafka's, byte for byte: segments, sparse indexes, checkpoints, recovery."""

from blumfeld_storage_local.plugin import Plugin

__all__ = ["Plugin"]
