"""Transactions: the plug-in ``transactions`` (KIP-98, KIP-890)."""

from blumfeld_transactions.plugin import Plugin

__all__ = ["Plugin"]
