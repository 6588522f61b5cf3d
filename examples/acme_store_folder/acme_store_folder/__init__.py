"""An object store for Blumfeld's tiered storage: files in a folder."""

from acme_store_folder.plugin import Options, Plugin

__all__ = ["Options", "Plugin"]
