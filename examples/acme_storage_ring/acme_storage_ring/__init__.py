"""A tick cache as a storage plug-in for Blumfeld: the newest bytes of each partition, in memory."""

from acme_storage_ring.plugin import Options, Plugin

__all__ = ["Options", "Plugin"]
