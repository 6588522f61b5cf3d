"""The partition of an internal topic for a key (Kafka's ``GroupCoordinatorService.partitionFor``), and its leader."""

from __future__ import annotations

from functools import cache
from operator import mul
from struct import unpack

from blumfeld.spi.cluster import ClusterImage

LONG_UNITS = 64
"""A longer text is hashed by a sum of products, which takes half the time."""
UNITS_MAX = 32_767
"""Units of the longest string of the protocol."""


@cache
def _powers() -> tuple[int, ...]:
    """Returns the powers of 31, the greatest first. Made for the first long text, so that no start pays for it."""
    powers = [1]
    for _ in range(UNITS_MAX):
        powers.append(powers[-1] * 31 & 0xFFFFFFFF)
    return tuple(reversed(powers))


def java_string_hash(text: str) -> int:
    """Returns Java's ``String.hashCode``: 31·h + unit over the UTF-16 code units, as a signed 32-bit number."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = unpack(f">{len(data) // 2}H", data)
    value = 0
    if LONG_UNITS < len(units) <= UNITS_MAX:
        value = sum(map(mul, units, _powers()[-len(units) :])) & 0xFFFFFFFF
    else:
        for unit in units:
            value = 31 * value + unit & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partition_count: int) -> int:
    """Returns the partition of a group or a transactional id. Every broker must compute the same, Kafka's too."""
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partition_count


def leader_for_key(image: ClusterImage, topic: str, key: str) -> int:
    """Returns the id of the broker whose coordinator has this key; -1 if no broker leads the partition, or the topic
    isn't there."""
    known = image.topics.get(topic)
    return -1 if known is None else known.partitions[partition_for(key, len(known.partitions))].leader
