"""Fetch: reads of partitions, and first timestamps of segments."""
