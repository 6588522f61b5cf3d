"""The groups shard: groups of every type, and the offsets that they commit (KIP-848, KIP-496)."""
