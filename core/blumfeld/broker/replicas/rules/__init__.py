"""Checks of batches before they are placed: those of producers, and those that a leader sent."""
