"""Leader epochs as values: what a replica tells of the history of its log (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from typing import NamedTuple


class EpochEntry(NamedTuple):
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to OffsetForLeaderEpoch. (-1, -1) means unknown: the asker truncates nothing."""

    epoch: int
    end_offset: int
