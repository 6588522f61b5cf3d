"""Coordinators: the runtime, which hosts replayed state machines on an internal topic, and the groups shard.

Pure. Commands decide, records change (docs/design.md, rule 3).
"""
