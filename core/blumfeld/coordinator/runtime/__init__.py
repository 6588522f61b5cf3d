"""The coordinator runtime: loads and serves one shard for each partition of an internal topic."""
