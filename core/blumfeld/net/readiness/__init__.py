"""A driver on readiness: a loop says which socket can be read or written."""
