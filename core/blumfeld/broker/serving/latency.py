"""Buckets of the latency histogram of each API. A module of its own, so that the kernel may import it alone."""

from __future__ import annotations

LATENCY_BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)
"""Upper bounds of the buckets, which belong to them; one more bucket holds what took longer. Few enough that one
request costs one bisection."""
