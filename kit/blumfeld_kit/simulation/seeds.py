"""Seeds as a person names them."""

from __future__ import annotations


def seeds_of(text: str) -> list[int]:
    """Parse ``3``, ``0-19`` or ``1,5,7-9``. :raises ValueError: it is none of these"""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        seeds += range(int(low), int(high if dash else low) + 1)
    return seeds
