"""Segments on disk: their files and indexes, the positions of batches, and how many files may be open."""
