"""The coordinator runtime, which hosts replayed state machines, and the groups shard. Pure: commands decide,
records change.
"""
