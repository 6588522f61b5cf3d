"""Coordination: coordinators that follow the leadership of an internal topic's partitions."""
