"""The changes that survive a power cut without a sync: chosen by chance, or by an adversary.

A simulated disk asks once for each directory and each file. The answers are independent of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from blumfeld.spi.runtime import Random

SECTOR_BYTES = 64
"""Size of the unit that a device writes wholly or not at all. It is smaller than on real devices, so that small batches
are torn too.
"""


class FileFate(msgspec.Struct, frozen=True):
    """The part of one file's changes that survives. Changes are numbered from 0, the oldest first."""

    kept: Sequence[int]
    """Numbers of changes whose bytes are on the device."""
    size_after: int
    """The size survives as it was after so many changes. Bytes beyond it are lost, and missing bytes are zeros."""
    torn: int | None = None
    """Number of a change whose first bytes only are on the device. Chance says how many."""
    scattered: bool = False
    """Chance keeps some sectors of every change that isn't ``kept``."""


class PowerCut(Protocol):
    """Chooses the changes that survive a power cut."""

    @property
    def random(self) -> Random:
        """The source of chance for torn and scattered changes."""
        ...

    def names(self, changes: int) -> Sequence[int]:
        """Return which of a directory's ``changes`` are on the device, ascending."""
        ...

    def file(self, changes: int) -> FileFate:
        """Return what survives of a file with so many changes since its last sync."""
        ...


class Adversary(Enum):
    """Power cuts without chance. Each keeps the worst subset of one kind."""

    LOSE = "nothing unsynced"
    KEEP = "everything"
    NAMES = "names, not bytes: files that were made are empty"
    SIZES = "names and sizes, not bytes: zeros"
    DATA = "bytes, not names"
    NEWEST = "of each file and directory the newest change"
    OLDEST = "of each file and directory the oldest change"

    @property
    def random(self) -> Random:
        """Nothing is torn."""
        return NoChance()

    def names(self, changes: int) -> Sequence[int]:
        if self in (Adversary.LOSE, Adversary.DATA):
            return ()
        if self is Adversary.NEWEST:
            return (changes - 1,)
        return (0,) if self is Adversary.OLDEST else range(changes)

    def file(self, changes: int) -> FileFate:
        if self in (Adversary.LOSE, Adversary.NAMES):
            return FileFate((), 0)
        if self is Adversary.SIZES:
            return FileFate((), changes)
        if self is Adversary.NEWEST:
            return FileFate((changes - 1,), changes)
        return FileFate((0,), 1) if self is Adversary.OLDEST else FileFate(range(changes), changes)


class Luck:
    """Keeps the oldest ``kept`` changes of each file and directory."""

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept
        self.random: Random = NoChance()

    def names(self, changes: int) -> Sequence[int]:
        """Return the oldest changes."""
        return range(min(self.kept, changes))

    def file(self, changes: int) -> FileFate:
        """Return the oldest changes."""
        kept = min(self.kept, changes)
        return FileFate(range(kept), kept)


class Chance:
    """Keeps anything that a device may keep: a prefix, torn at its end, or any set of names and sectors."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def names(self, changes: int) -> Sequence[int]:
        """Return a prefix of the changes, or any of them."""
        random = self.random
        if random.random() < 0.5:
            return range(random.randrange(changes + 1))
        return [at for at in range(changes) if random.random() < 0.5]

    def file(self, changes: int) -> FileFate:
        """Return a prefix and a part of the next change, or a size with some sectors."""
        random = self.random
        kept = random.randrange(changes + 1)
        how = random.random()
        if how < 0.4 or kept == 0:
            return FileFate(range(kept), kept)
        if how < 0.7:
            return FileFate(range(kept - 1), kept if random.random() < 0.3 else kept - 1, torn=kept - 1)
        return FileFate((), kept, scattered=True)


class NoChance:
    """``Random`` that always returns the smallest value."""

    def random(self) -> float:
        """Zero."""
        return 0.0

    def randrange(self, stop: int, /) -> int:
        """Zero."""
        return 0

    def randbytes(self, n: int, /) -> bytes:
        """Zeros."""
        return bytes(n)
