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
    found = OffsetMap(SLOT_BYTES * 101, 0.5)
    assert found.capacity == 50
    keys = [b"%d" % i for i in range(60)]
    assert found.put_many(keys, range(60)) == 50
    assert found.is_full
    assert found.put_many(keys[:1], [99]) == 0
    assert found.get_many(keys) == [*range(50), *[NOT_FOUND] * 10]
    with pytest.raises(OverflowError, match="50 keys"):
        found.put(b"0", 99)


def test_a_full_map_says_how_far_it_came_with_keys_that_it_has() -> None:
    found = OffsetMap(SLOT_BYTES * 3, 0.9)
    assert found.put_many([b"a", b"a", b"a", b"b", b"a"], range(5)) == 4
    assert found.get_many([b"a", b"b"]) == [2, 3]


def test_it_never_takes_more_memory_than_it_was_given() -> None:
    for size in (0, 24, 100, 5000, 1 << 20):
        found = OffsetMap(size)
        for i in range(found.capacity):
            found.put(b"%d" % i, i)
        assert found.is_full
        assert found.size_bytes <= max(size, 3 * SLOT_BYTES)
        assert found.get_many([b"%d" % i for i in range(found.capacity)]) == list(range(found.capacity))


def test_it_grows_without_losing_a_key() -> None:
    found = OffsetMap(SLOT_BYTES * 20_000, slots_at_first=16)
    small = found.size_bytes
    chance = random.Random(3)
    expected: dict[bytes, int] = {}
    for at in range(0, 15_000, 50):
        keys = [b"%d" % chance.randrange(12_000) for _ in range(50)]
        assert found.put_many(keys, range(at, at + 50)) == 50
        expected.update(zip(keys, range(at, at + 50), strict=True))
    assert small < SLOT_BYTES * 100 < found.size_bytes
    assert len(found) == len(expected)
    assert found.get_many(list(expected)) == list(expected.values())


def test_a_hash_of_zero_is_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A free slot is told by its first word."""
    monkeypatch.setattr(offset_map, "_md5", lambda key: _Digest(bytes(8) + md5(key).digest()[8:]))
    found = OffsetMap(1000)
    found.put_many([b"a", b"b", b"a"], [1, 2, 3])
    assert (len(found), found.get(b"a"), found.get(b"b"), found.get(b"c")) == (2, 3, 2, NOT_FOUND)
    assert list(found.mark(0, 4)) == [0, 0, 1, 1]


class _Digest:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def digest(self) -> bytes:
        return self._data


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 3)), max_size=120), st.integers(0, 40))
def test_it_is_a_dict(puts: list[tuple[bytes, int]], from_offset: int) -> None:
    found = OffsetMap(SLOT_BYTES * 200, slots_at_first=5)
    expected: dict[bytes, int] = {}
    offset = -1
    for key, gap in puts:
        offset += gap + 1
        found.put(key, offset)
        expected[key] = offset
    assert len(found) == len(expected)
    assert found.get_many([*expected, b"never put"]) == [*expected.values(), NOT_FOUND]
    marks = found.mark(from_offset, from_offset + 100)
    assert [from_offset + i for i, mark in enumerate(marks) if mark] == sorted(
        value for value in expected.values() if from_offset <= value < from_offset + 100
    )
