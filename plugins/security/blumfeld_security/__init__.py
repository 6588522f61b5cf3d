"""Security: who may enter, and what they may do."""

from blumfeld_security.plugin import Plugin

__all__ = ["Plugin"]
