"""Segments: file names, indexes, rules, and the walks that recover and verify them. Pure."""
