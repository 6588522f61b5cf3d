"""Which partition of an internal topic a key lives in (Kafka's ``GroupCoordinatorService``)."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """``String.hashCode``: 31·h + unit over UTF-16 code units, in 32 signed bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(data), 2):
        value = (31 * value + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of a group or a transactional id: every broker and client computes the same."""
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
