"""Quotas of clients: how much each may take."""

from blumfeld_quotas.plugin import Plugin

__all__ = ["Plugin"]
