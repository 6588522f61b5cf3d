"""Logs on their way to another directory (KIP-113)."""
