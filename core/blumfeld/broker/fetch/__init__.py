"""Fetch: sessions (KIP-227), reads of partitions, and look-ups of timestamps."""
