"""Which offset a key last stood at: the cleaner's map, of fixed memory however long the keys are (Kafka's
``SkimpyOffsetMap``).

Open addressing over one ``bytearray``, 24 bytes a slot as in Kafka: the two halves of the key's MD5 as 64-bit
words, and the offset. The slot is the first word modulo a prime, the step to the next try comes of the
second: with 90 % of the slots taken a key that is not there costs 10 looks, where a walk from slot to slot
costs 50. The three words of a slot stand beside each other, which costs one miss of the CPU's cache where
three arrays cost three; words are compared as numbers, which is cheaper in CPython than to cut 16 bytes out
for each look.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from hashlib import md5 as _openssl_md5
from math import isqrt

try:  # the interpreter's own MD5 takes half of what OpenSSL's takes for a short key
    from _md5 import md5 as _md5  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover - a build of the interpreter without it
    _md5 = partial(_openssl_md5, usedforsecurity=False)

SLOT_BYTES = 24
NOT_FOUND = -1
_SLOTS_AT_FIRST = 1 << 15
_GROWTH = 8
_GROW_AT = 0.7
"""Full enough to grow; the last size is filled up to the load factor."""
_SCAN_SLOTS = 1 << 12
_words = struct.Struct("<QQ").unpack


class OffsetMap:
    """Keys by their 16-byte hash, each with an offset. Two keys of one hash are one key, as in Kafka.

    It begins small and grows eightfold, so that a short log doesn't pay for walking over an empty table; only
    while it does is an eighth more than ``map_bytes`` in use.

    :param map_bytes: the most that the table takes
    :param load_factor: what part of it may be filled: more is slower
    :param slots_at_first: of the table before it grows
    """

    __slots__ = ("_capacity", "_growths", "_keys", "_limit", "_slots", "_slots_max", "_table")

    def __init__(
        self, map_bytes: int, load_factor: float = 0.9, slots_at_first: int = _SLOTS_AT_FIRST
    ) -> None:
        self._slots_max = _prime_at_most(max(map_bytes // SLOT_BYTES, 3))
        self._capacity = max(1, int(self._slots_max * load_factor))
        self._growths = 0
        while self._slots_max // _GROWTH ** (self._growths + 1) >= max(slots_at_first, 3):
            self._growths += 1
        self._new_table()

    def __len__(self) -> int:
        """The number of keys."""
        return self._keys

    @property
    def capacity(self) -> int:
        """The most keys that it takes."""
        return self._capacity

    @property
    def is_full(self) -> bool:
        """Whether it takes no key more."""
        return self._keys >= self._capacity

    @property
    def slots(self) -> int:
        """Of the table as it is now."""
        return self._slots

    @property
    def size_bytes(self) -> int:
        """Of the table as it is now."""
        return self._slots * SLOT_BYTES

    def put(self, key: bytes, offset: int) -> None:
        """The key stands at ``offset`` now.

        :raises OverflowError: the map is full, even if it has the key
        """
        if self.put_many((key,), (offset,)) == 0:
            raise OverflowError(f"the map is full with {self._keys} keys")

    def get(self, key: bytes) -> int:
        """The key's offset, or -1."""
        return self.get_many((key,))[0]

    def put_many(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Put keys in their order, a later one over an earlier.

        :return: how many are put: fewer than all only if the map is full then
        """
        if self._keys + len(keys) <= self._limit:
            self._put_some(keys, offsets)
            return len(keys)
        put = 0
        while put < len(keys) and not self.is_full:
            if self._keys + len(keys) - put > self._limit and self._growths:
                self._grow()
                continue
            # All of them may be new.
            some = put + max(self._limit - self._keys, 0)
            self._put_some(keys[put:some], offsets[put:some])
            put = min(some, len(keys))
        return put

    def get_many(self, keys: Sequence[bytes]) -> list[int]:
        """Each key's offset, or -1."""
        table, slots, md5, words = self._table, self._slots, _md5, _words
        found = []
        for key in keys:
            low, high = words(md5(key).digest())
            if not low:
                low = 1  # 0 is a free slot
            at = low % slots * 3
            word = table[at]
            while word:
                if word == low and table[at + 1] == high:
                    found.append(table[at + 2])
                    break
                at = (at // 3 + 1 + high % (slots - 1)) % slots * 3
                word = table[at]
            else:
                found.append(NOT_FOUND)
        return found

    def mark(self, from_offset: int, to_offset: int) -> bytearray:
        """One byte for each offset of [``from_offset``, ``to_offset``): 1 where a key's last offset is.

        Cost: a walk over the table.
        """
        marks = bytearray(to_offset - from_offset)
        table = self._table
        for start in range(0, self._slots * 3, _SCAN_SLOTS * 3):
            some = table[start : start + _SCAN_SLOTS * 3]
            for word, offset in zip(some[::3].tolist(), some[2::3].tolist(), strict=True):
                if word and from_offset <= offset < to_offset:
                    marks[offset - from_offset] = 1
        return marks

    def _put_some(self, keys: Sequence[bytes], offsets: Sequence[int]) -> None:
        table, slots, md5, words = self._table, self._slots, _md5, _words
        new = 0
        for key, offset in zip(keys, offsets, strict=True):
            low, high = words(md5(key).digest())
            if not low:
                low = 1  # 0 is a free slot
            at = low % slots * 3
            word = table[at]
            while word:
                if word == low and table[at + 1] == high:
                    break
                at = (at // 3 + 1 + high % (slots - 1)) % slots * 3
                word = table[at]
            else:
                table[at] = low
                table[at + 1] = high
                new += 1
            table[at + 2] = offset
        self._keys += new

    def _new_table(self) -> None:
        self._keys = 0
        if self._growths:
            self._slots = _prime_at_most(self._slots_max // _GROWTH**self._growths)
            self._limit = int(self._slots * _GROW_AT)
        else:
            self._slots, self._limit = self._slots_max, self._capacity
        self._table = memoryview(bytearray(self._slots * SLOT_BYTES)).cast("Q")

    def _grow(self) -> None:
        old, old_slots, keys = self._table, self._slots, self._keys
        self._growths -= 1
        self._new_table()
        table, slots = self._table, self._slots
        for start in range(0, old_slots * 3, _SCAN_SLOTS * 3):
            some = old[start : start + _SCAN_SLOTS * 3]
            for low, high, offset in zip(
                some[::3].tolist(), some[1::3].tolist(), some[2::3].tolist(), strict=True
            ):
                if low:  # all keys differ: any free slot is right
                    at = low % slots * 3
                    while table[at]:
                        at = (at // 3 + 1 + high % (slots - 1)) % slots * 3
                    table[at], table[at + 1], table[at + 2] = low, high, offset
        self._keys = keys


def _prime_at_most(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number
