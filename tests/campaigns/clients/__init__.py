"""Unmodified clients against this build."""
