"""Tiered storage (KIP-405): a storage that wraps a local one, and keeps old segments in an object store."""

from blumfeld_storage_tiered.plugin import Plugin

__all__ = ["Plugin"]
