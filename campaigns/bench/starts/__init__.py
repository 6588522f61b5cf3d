"""Starts of a node: empty, after a kill, with many groups."""
