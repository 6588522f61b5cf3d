"""Decoders of the feeds of trading venues, one module a venue."""
