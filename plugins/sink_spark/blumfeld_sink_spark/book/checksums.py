"""The checksum that a venue sends of its book, computed from a rebuilt one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from zlib import crc32

import attrs

CHECKED = ("kraken",)
"""Venues whose checksum is in ``flags`` of their levels, and is computed here."""
LEVELS = 10
"""The best levels of each side that a checksum covers."""
_PLACES_MAX = 12
_TRIES = 16
"""Messages at which decimal places are looked for. A book that fits none of them is wrong, or has another formula."""

Level = tuple[int, int]
"""Price and size, as integers of one scale."""


@attrs.define
class Checksum:
    """Kraken's: the CRC-32 of the digits of the ten best asks, then bids, without points and leading zeros.

    Each number has all the decimal places of the pair, zeros too. No row says how many those are, so they are found at
    the first checksum that fits.
    """

    scale: int
    """Decimal places of the integers."""
    places: tuple[int, int] | None = None
    """Decimal places of prices and sizes; None until they are found."""
    tries: int = 0

    def of(self, asks: Sequence[Level], bids: Sequence[Level], given: int) -> int:
        """Returns the checksum of a book.

        :param asks: the best ten, or as many as there are; ``bids`` likewise
        :param given: the venue's own, by which the decimal places are found
        """
        levels = [*asks, *bids]
        checksum = None if self.places is None else self._sum(levels, *self.places)
        if checksum is not None:
            return checksum
        self.places = None
        least = self._least(level[0] for level in levels), self._least(level[1] for level in levels)
        if self.tries < _TRIES:
            self.tries += 1
            self.places = self._fitting(levels, *least, given)
        return self._sum(levels, *(self.places or least)) or 0

    def _fitting(self, levels: Sequence[Level], price: int, size: int, given: int) -> tuple[int, int] | None:
        return next(
            (
                (prices, sizes)
                for prices in range(price, _PLACES_MAX + 1)
                for sizes in range(size, _PLACES_MAX + 1)
                if self._sum(levels, prices, sizes) == given
            ),
            None,
        )

    def _least(self, numbers: Iterable[int]) -> int:
        """Returns the decimal places that these numbers need."""
        digits = gcd(10**self.scale, *numbers)
        return next(places for places in range(self.scale + 1) if digits % 10 ** (self.scale - places) == 0)

    def _sum(self, levels: Sequence[Level], prices: int, sizes: int) -> int | None:
        """Returns the checksum by these decimal places; None where a number needs more."""
        of_price, of_size = 10 ** (self.scale - prices), 10 ** (self.scale - sizes)
        text = []
        for price, size in levels:
            (price, more), (size, rest) = divmod(price, of_price), divmod(size, of_size)
            if more or rest:
                return None
            text.append(f"{price}{size}")
        return crc32("".join(text).encode())
