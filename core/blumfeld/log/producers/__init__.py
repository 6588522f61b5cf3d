"""Producers of a log: idempotence, transactions, snapshots (KIP-98). Pure."""
