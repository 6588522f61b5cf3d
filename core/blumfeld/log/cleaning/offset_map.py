"""The cleaner's map from key to last offset, of fixed size however long the keys are (Kafka's
``SkimpyOffsetMap``).

It is an open-addressing table in one ``bytearray`` with 24 bytes a slot, as in Kafka: the two halves of the
key's MD5 as 64-bit words, and the offset.

* The first word modulo a prime gives the slot; the second gives the step to the next one. With 90 % of the
  slots taken, an absent key costs 10 probes; linear probing costs 50.
* The three words of a slot are adjacent: one cache miss, where three arrays cost three.
* Words are compared as numbers. CPython does that faster than it cuts out 16 bytes for each probe.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from hashlib import md5 as _openssl_md5
from math import isqrt

try:  # for a short key the interpreter's own MD5 takes half the time of OpenSSL's
    from _md5 import md5 as _md5  # type: ignore[import-not-found]
except ImportError:  # pragma: no cover - a build of the interpreter without it
    _md5 = partial(_openssl_md5, usedforsecurity=False)

SLOT_BYTES = 24
NOT_FOUND = -1
_SLOTS_AT_FIRST = 1 << 15
_GROWTH = 8
_GROW_AT = 0.7
"""Fill ratio at which the table grows. The last size is filled up to the load factor."""
_SCAN_SLOTS = 1 << 12
_words = struct.Struct("<QQ").unpack


class OffsetMap:
    """Maps the 16-byte hash of a key to an offset. Two keys with one hash are one key, as in Kafka.

    The table begins small and grows eightfold, so that a short log need not walk an empty table. While it
    grows it uses an eighth more than ``map_bytes``.

    :param map_bytes: maximum size of the table
    :param load_factor: maximum fill ratio; a higher one is slower
    :param slots_at_first: initial number of slots
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
        """Maximum number of keys."""
        return self._capacity

    @property
    def is_full(self) -> bool:
        """Whether no further key fits."""
        return self._keys >= self._capacity

    @property
    def slots(self) -> int:
        """Present number of slots."""
        return self._slots

    @property
    def size_bytes(self) -> int:
        """Present size of the table, in bytes."""
        return self._slots * SLOT_BYTES

    def put(self, key: bytes, offset: int) -> None:
        """Set the key's offset.

        :raises OverflowError: the map is full, even if it has the key
        """
        if self.put_many((key,), (offset,)) == 0:
            raise OverflowError(f"the map is full with {self._keys} keys")

    def get(self, key: bytes) -> int:
        """Returns the key's offset, or -1."""
        return self.get_many((key,))[0]

    def put_many(self, keys: Sequence[bytes], offsets: Sequence[int]) -> int:
        """Set the offsets of several keys in order; a later one overwrites an earlier one of the same key.

        :return: the number of keys set: fewer than all only if the map is full then
        """
        if self._keys + len(keys) <= self._limit:
            self._put_some(keys, offsets)
            return len(keys)
        put = 0
        while put < len(keys) and not self.is_full:
            if self._keys + len(keys) - put > self._limit and self._growths:
                self._grow()
                continue
            # Take only as many as fit even if every key is new.
            some = put + max(self._limit - self._keys, 0)
            self._put_some(keys[put:some], offsets[put:some])
            put = min(some, len(keys))
        return put

    def get_many(self, keys: Sequence[bytes]) -> list[int]:
        """Returns each key's offset, or -1."""
        table, slots, md5, words = self._table, self._slots, _md5, _words
        offsets = []
        for key in keys:
            low, high = words(md5(key).digest())
            if not low:
                low = 1  # 0 is a free slot
            at = low % slots * 3
            word = table[at]
            while word:
                if word == low and table[at + 1] == high:
                    offsets.append(table[at + 2])
                    break
                at = (at // 3 + 1 + high % (slots - 1)) % slots * 3
                word = table[at]
            else:
                offsets.append(NOT_FOUND)
        return offsets

    def mark(self, from_offset: int, to_offset: int) -> bytearray:
        """Returns one byte for each offset of [``from_offset``, ``to_offset``): 1 if it is some key's last
        offset.

        Cost: a walk over the whole table.
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
                if low:  # all keys differ, so any free slot is right
                    at = low % slots * 3
                    while table[at]:
                        at = (at // 3 + 1 + high % (slots - 1)) % slots * 3
                    table[at], table[at + 1], table[at + 2] = low, high, offset
        self._keys = keys


def _prime_at_most(number: int) -> int:
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number -= 1
    return number
