"""A storage plug-in for Blumfeld that lasts: one file a partition."""

from acme_storage_flat.plugin import Options, Plugin

__all__ = ["Options", "Plugin"]
