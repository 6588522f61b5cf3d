"""The word that a misspelled one was meant to be, for the hints of error messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

LONG_WORD_CHARS = 6
"""A word of this length may have two slips; a shorter one has one."""


def likely_meant(text: str, words: Iterable[str]) -> list[str]:
    """Returns the words that differ from ``text`` by slips of the keyboard only, the closest first.

    A slip is a letter too many, one missing, a wrong one, or two that changed places. Other words are left out although
    they resemble it: ``storage_rocks`` is no slip for ``storage_local``.
    """
    slips_max = 2 if len(text) >= LONG_WORD_CHARS else 1
    letters = Counter(text)
    # A table of Kafka's has 300 keys, and a request may name many that aren't there: letters are counted first, which
    # is fifty times as cheap as an alignment.
    near = (word for word in words if abs(len(word) - len(text)) <= slips_max)
    counted = [(_slips(text, word), word) for word in near if _differ(letters, Counter(word)) <= slips_max]
    return [word for slips, word in sorted(counted, key=lambda pair: pair[0]) if slips <= slips_max]


def _differ(letters: Counter[str], other: Counter[str]) -> int:
    """Returns the letters that one word has and the other has not: no more than the slips between them."""
    return max((letters - other).total(), (other - letters).total())


def _slips(text: str, meant: str) -> int:
    """Returns the slips between two words: their optimal string alignment distance."""
    before: list[int] = []
    row = list(range(len(meant) + 1))
    for i, letter in enumerate(text, start=1):
        before, above, row = row, before, [i]
        for j, wanted in enumerate(meant, start=1):
            slips = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and text[i - 2] == wanted and letter == meant[j - 2]:
                slips = min(slips, above[j - 2] + 1)
            row.append(slips)
    return row[-1]
