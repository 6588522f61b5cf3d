"""Measuring: rivals side by side in one run, medians of interleaved rounds, never a bare number."""
