"""The partition of an internal topic for a key (Kafka's ``GroupCoordinatorService.partitionFor``)."""

from __future__ import annotations

from struct import unpack


def java_string_hash(text: str) -> int:
    """Returns Java's ``String.hashCode``: 31·h + unit over the UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in unpack(f">{len(data) // 2}H", data):
        value = 31 * value + unit & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """Returns the partition of a group or a transactional id. Every broker must compute the same, Kafka's too."""
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count
