"""Crashes: of storage before every file operation of a script, and of a real broker under load."""
