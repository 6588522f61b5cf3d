"""Unmodified clients at a secured broker of this build."""
