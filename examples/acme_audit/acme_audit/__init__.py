"""An observer for Blumfeld: a line of JSON for each request."""

from acme_audit.plugin import Options, Plugin

__all__ = ["Options", "Plugin"]
