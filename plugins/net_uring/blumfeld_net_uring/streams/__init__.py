"""Streams on the ring: how they are accepted, receive, send and close within a turn."""
