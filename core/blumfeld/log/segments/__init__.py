"""Segments: their names, indexes and rules, and the walks that recover and verify them. Pure."""
