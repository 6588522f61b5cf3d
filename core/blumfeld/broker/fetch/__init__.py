"""Fetch: sessions (KIP-227), reads of partitions, and first timestamps of segments."""
