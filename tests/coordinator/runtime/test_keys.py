"""The partition of a key: numbers that Java's ``String.hashCode`` gave."""

from __future__ import annotations

from struct import unpack

import pytest

from blumfeld.coordinator.runtime.coordinator import LONG_UNITS, UNITS_MAX, java_string_hash, partition_for

JAVA = {
    "": (0, 0, 0),
    "a": (97, 47, 6),
    "group": (98629247, 47, 3),
    "orders-consumer-42": (-1742707507, 7, 2),
    "grüße": (98768023, 23, 4),
    "日本": (835047, 47, 3),
    "🐘-herd": (1923275521, 21, 6),
    "a𝄞b": (57834039, 39, 4),
    "console-consumer-12345": (158455506, 6, 6),
    "31bycoq0": (-(2**31), 0, 0),
}
"""Key → (hashCode, partition of 50, partition of 7). The elephant and the clef are two UTF-16 units each; the last
has no absolute value in 32 bits, and counts as 0.
"""


@pytest.mark.parametrize("length", [LONG_UNITS, LONG_UNITS + 1, UNITS_MAX, UNITS_MAX + 1])
def test_a_long_key_hashes_by_the_same_rule(length: int) -> None:
    key = ("grüße 🐘" * length)[: length - 1] + "z"
    units = unpack(f">{len(key.encode('utf-16-be')) // 2}H", key.encode("utf-16-be"))
    value = 0
    for unit in units:
        value = (31 * value + unit) % (1 << 32)
    assert java_string_hash(key) % (1 << 32) == value


@pytest.mark.parametrize("key", JAVA)
def test_a_key_hashes_as_in_java(key: str) -> None:
    """Every broker and client must agree, or they ask the wrong one."""
    assert (java_string_hash(key), partition_for(key, 50), partition_for(key, 7)) == JAVA[key]
