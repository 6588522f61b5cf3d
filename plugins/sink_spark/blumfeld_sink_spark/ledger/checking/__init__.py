"""Checks of an archive: its records, its files, every row, and the topic that it came from."""
