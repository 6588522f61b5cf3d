"""Segments as objects: their names, the manifest that makes a segment whole, its upload, and reading it back."""
