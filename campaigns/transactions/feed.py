"""The capture as an input topic: every line is a record, and the records lie on the partitions in turn."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path

from campaigns.clients.load.producers import FINISH_S, Librdkafka
from campaigns.transactions.oracle import Pair
from campaigns.waits import await_true

HURRY_PER_S = 1e6


def read_lines(capture: Path, count: int) -> list[bytes]:
    """Return the first lines of a capture without their line ends; all of them if ``count`` is 0."""
    with gzip.open(capture) as lines:
        return [line.rstrip(b"\n") for line in itertools.islice(lines, count or None)]


def placed(lines: Sequence[bytes], partitions: int) -> list[list[Pair]]:
    """Return the records of each partition. A record's key is the number of its line, from 0 on."""
    pairs: list[list[Pair]] = [[] for _ in range(partitions)]
    for number, line in enumerate(lines):
        pairs[number % partitions].append((b"%d" % number, line))
    return pairs


class Feed(Librdkafka):
    """Writes the records into the input topic, and notes what is wrong with that.

    It keeps to a rate until :meth:`complete`, so that there is something to copy while faults go on. The rate falls
    with what is left of the feed, so that the feed doesn't end before the faults do, however long they take.
    """

    def __init__(
        self, bootstrap: str, topic: str, lines: Sequence[bytes], partitions: int, rate_per_s: float
    ) -> None:
        super().__init__(bootstrap, topic, partitions, rate_per_s)
        self.wrong: list[str] = []
        self._lines = lines
        self._hurries = False

    @property
    def is_exhausted(self) -> bool:
        """Whether every record was handed to the producer."""
        return sum(self.sent) == len(self._lines)

    @property
    def rate_per_s(self) -> float:
        """Records a second, as of now."""
        if self.is_exhausted:
            return 0.0
        return HURRY_PER_S if self._hurries else self._rate_per_s * (1 - sum(self.sent) / len(self._lines))

    def record(self, nth: int, number: int) -> tuple[bytes | None, bytes]:
        """Return the line with this number; its key is the number."""
        return b"%d" % nth, self._lines[nth]

    def complete(self) -> None:
        """Send the rest as fast as it goes, and wait until every record is acknowledged."""
        self._hurries = True
        if not await_true(lambda: self.is_exhausted or not self.is_alive, FINISH_S):
            self.wrong.append("the feed does not come to an end")
        self.finish()

    def acknowledged(self, partition: int, number: int, offset: int) -> None:
        """Do nothing: the input is read at the end."""

    def refused(self, error: str) -> None:
        """A record was given up, which must not be."""
        self.wrong.append(f"a record of the feed was not taken: {error}")

    def failed(self, error: str) -> None:
        """The producer failed."""
        self.wrong.append(f"the feed failed: {error}")
