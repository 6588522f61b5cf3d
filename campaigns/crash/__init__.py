"""Crashes of a storage at every file operation, and ``kill -9`` of a broker under load."""
