"""Tiered storage on real nodes: killed under load, a disk that fills, years that are read back."""
