"""Virtual group members on one event loop, and the partitions that each one owns."""
