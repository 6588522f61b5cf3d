"""Crash points: a storage dies before every file operation of a script, and its restart is checked."""
