"""The cleaner's map: like a dict, until it is full."""

from __future__ import annotations

import random
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.cleaning import offset_map
from blumfeld.log.cleaning.offset_map import NOT_FOUND, SLOT_BYTES, OffsetMap


def test_it_takes_as_many_keys_as_its_load_factor_says() -> None:
    """Then nothing goes in, not even a key that it has: as Kafka, which ends the round there."""
    key_map = OffsetMap(SLOT_BYTES * 101, 0.5)
    assert key_map.capacity == 50
    keys = [b"%d" % i for i in range(60)]
    assert key_map.put_many(keys, range(60)) == 50
    assert key_map.is_full
    assert key_map.put_many(keys[:1], [99]) == 0
    assert key_map.get_many(keys) == [*range(50), *[NOT_FOUND] * 10]
    with pytest.raises(OverflowError, match="50 keys"):
        key_map.put(b"0", 99)


def test_a_full_map_says_how_far_it_came_with_keys_that_it_has() -> None:
    key_map = OffsetMap(SLOT_BYTES * 3, 0.9)
    assert key_map.put_many([b"a", b"a", b"a", b"b", b"a"], range(5)) == 4
    assert key_map.get_many([b"a", b"b"]) == [2, 3]


def test_it_never_takes_more_memory_than_it_was_given() -> None:
    for size in (0, 24, 100, 5000, 1 << 20):
        key_map = OffsetMap(size)
        for i in range(key_map.capacity):
            key_map.put(b"%d" % i, i)
        assert key_map.is_full
        assert key_map.size_bytes <= max(size, 3 * SLOT_BYTES)
        assert key_map.get_many([b"%d" % i for i in range(key_map.capacity)]) == list(range(key_map.capacity))


def test_it_grows_without_losing_a_key() -> None:
    key_map = OffsetMap(SLOT_BYTES * 20_000, slots_at_first=16)
    small = key_map.size_bytes
    chance = random.Random(3)
    expected: dict[bytes, int] = {}
    for at in range(0, 15_000, 50):
        keys = [b"%d" % chance.randrange(12_000) for _ in range(50)]
        assert key_map.put_many(keys, range(at, at + 50)) == 50
        expected.update(zip(keys, range(at, at + 50), strict=True))
    assert small < SLOT_BYTES * 100 < key_map.size_bytes
    assert len(key_map) == len(expected)
    assert key_map.get_many(list(expected)) == list(expected.values())


def test_a_hash_of_zero_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A free slot is told by its first word."""
    monkeypatch.setattr(offset_map, "_md5", lambda key: _Digest(bytes(8) + md5(key).digest()[8:]))
    key_map = OffsetMap(1000)
    key_map.put_many([b"a", b"b", b"a"], [1, 2, 3])
    assert (len(key_map), key_map.get(b"a"), key_map.get(b"b"), key_map.get(b"c")) == (2, 3, 2, NOT_FOUND)
    assert list(key_map.mark(0, 4)) == [0, 0, 1, 1]


class _Digest:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def digest(self) -> bytes:
        return self._data


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 3)), max_size=120), st.integers(0, 40))
def test_it_is_a_dict(puts: list[tuple[bytes, int]], from_offset: int) -> None:
    key_map = OffsetMap(SLOT_BYTES * 200, slots_at_first=5)
    expected: dict[bytes, int] = {}
    offset = -1
    for key, gap in puts:
        offset += gap + 1
        key_map.put(key, offset)
        expected[key] = offset
    assert len(key_map) == len(expected)
    assert key_map.get_many([*expected, b"never put"]) == [*expected.values(), NOT_FOUND]
    marks = key_map.mark(from_offset, from_offset + 100)
    assert [from_offset + i for i, mark in enumerate(marks) if mark] == sorted(
        value for value in expected.values() if from_offset <= value < from_offset + 100
    )
