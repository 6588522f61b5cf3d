"""Replicas: the partitions that this node hosts, their state, and the rules for what they append."""
