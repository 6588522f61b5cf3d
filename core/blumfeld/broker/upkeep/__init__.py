"""Upkeep: retention, checkpoints, and the log cleaner's passes."""
