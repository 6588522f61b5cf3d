"""What a power cut keeps of what was not synced: by chance, or as an adversary would have it.

A simulated disk asks once for each directory and each file: nothing that is kept of one says anything of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

import msgspec

from blumfeld.spi.runtime import Random

SECTOR_BYTES = 64
"""What a device writes whole or not at all. Smaller than any real one's, so that small batches are torn too."""


class FileFate(msgspec.Struct, frozen=True):
    """What is left of the changes of one file, which are numbered from 0 on, oldest first."""

    kept: Sequence[int]
    """Changes whose bytes are on the device."""
    size_after: int
    """The size is that after so many changes; bytes that are on the device beyond it are lost, missing ones zeros."""
    torn: int | None = None
    """A change of which only a part is on the device: from its first byte on, as far as chance wants."""
    scattered: bool = False
    """Of every change that isn't ``kept``, chance takes some sectors and leaves others."""


class PowerCut(Protocol):
    """Says what stays."""

    @property
    def random(self) -> Random:
        """For what is torn."""
        ...

    def names(self, changes: int) -> Sequence[int]:
        """Which changes of one directory's names are on the device, out of so many; ascending."""
        ...

    def file(self, changes: int) -> FileFate:
        """What is there of one file that was changed so often since it was synced."""
        ...


class Adversary(Enum):
    """Power cuts without chance."""

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
        """See :class:`PowerCut`."""
        if self in (Adversary.LOSE, Adversary.DATA):
            return ()
        if self is Adversary.NEWEST:
            return (changes - 1,)
        return (0,) if self is Adversary.OLDEST else range(changes)

    def file(self, changes: int) -> FileFate:
        """See :class:`PowerCut`."""
        if self in (Adversary.LOSE, Adversary.NAMES):
            return FileFate((), 0)
        if self is Adversary.SIZES:
            return FileFate((), changes)
        if self is Adversary.NEWEST:
            return FileFate((changes - 1,), changes)
        return FileFate((0,), 1) if self is Adversary.OLDEST else FileFate(range(changes), changes)


class Luck:
    """Of each file and directory, the oldest ``kept`` changes stay."""

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept
        self.random: Random = NoChance()

    def names(self, changes: int) -> Sequence[int]:
        """The oldest."""
        return range(min(self.kept, changes))

    def file(self, changes: int) -> FileFate:
        """The oldest."""
        kept = min(self.kept, changes)
        return FileFate(range(kept), kept)


class Chance:
    """Anything that a device may do: some prefix, torn at its end; or any changes of names, any sectors of files."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def names(self, changes: int) -> Sequence[int]:
        """A prefix, or any of them."""
        random = self.random
        if random.random() < 0.5:
            return range(random.randrange(changes + 1))
        return [at for at in range(changes) if random.random() < 0.5]

    def file(self, changes: int) -> FileFate:
        """A prefix and a part of the next change; or a size, and sectors."""
        random = self.random
        kept = random.randrange(changes + 1)
        how = random.random()
        if how < 0.4 or kept == 0:
            return FileFate(range(kept), kept)
        if how < 0.7:
            return FileFate(range(kept - 1), kept if random.random() < 0.3 else kept - 1, torn=kept - 1)
        return FileFate((), kept, scattered=True)


class NoChance:
    """``Random`` that always says the least."""

    def random(self) -> float:
        """Zero."""
        return 0.0

    def randrange(self, stop: int, /) -> int:
        """Zero."""
        return 0

    def randbytes(self, n: int, /) -> bytes:
        """Zeros."""
        return bytes(n)
