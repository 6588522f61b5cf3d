"""Verdicts for people."""
