"""Rounds of log compaction, and the swap that makes one count."""
