"""``nodes = N``: several nodes from one manifest, a process each, kept alive and stopped in order."""
