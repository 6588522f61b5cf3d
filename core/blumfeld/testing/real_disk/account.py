"""Compares what one process reported with what the next one finds. Pure: tested without a disk."""

from __future__ import annotations

from collections.abc import Iterable

Batch = tuple[int, int, str]
"""Base offset, next offset, digest of the bytes."""


class Account:
    """The batches that a log was given over all lives so far, and the promises about them."""

    def __init__(self) -> None:
        self.acked: list[Batch] = []
        self.in_flight: list[Batch] = []
        """Batches placed when the process died, neither acknowledged nor refused. Any first part of them may be
        there.
        """
        self.notes = ["-"]
        """Possible contents of the small file: the last one that was surely written, and those after it."""
        self.refusals = self.deaths = 0
        self._found: list[Batch] = []

    def take(self, lines: Iterable[str], how: str) -> list[str]:
        """Take the lines of one life. Return the promises that were not kept, in words.

        :param how: how the life before ended, for the message
        """
        wrong: list[str] = []
        for line in lines:
            word, *values = line.split(maxsplit=3)
            if word == "found":
                self._found.append((int(values[0]), int(values[1]), values[2]))
            elif word == "there":
                wrong += self._compare(int(values[0]), values[1], how)
            elif word == "placed":
                self.in_flight.append((int(values[0]), int(values[1]), values[2]))
            elif word in ("acked", "refused"):
                end = int(values[0])
                self.acked += [batch for batch in self.in_flight if batch[1] <= end]
                lost = [batch for batch in self.in_flight if batch[1] > end]
                self.refusals += word == "refused"
                if word == "acked" and lost:
                    wrong.append(f"a write succeeded up to {end}, and {lost[-1][1]} was placed")
                self.in_flight = []
            elif word == "noting":
                self.notes.append(values[0])
            elif word == "noted":
                self.notes = [values[0]]
            elif word == "broken":
                wrong.append(f"after {how}: {' '.join(values)}")
        return wrong

    def _compare(self, end: int, note: str, how: str) -> list[str]:
        wrong = []
        found, self._found = self._found, []
        acked = len(self.acked)
        if found[:acked] != self.acked:
            missing = [batch for batch in self.acked if batch not in found]
            wrong.append(
                f"after {how}: {len(missing)} of {acked} batches that were acknowledged are not there"
                if missing
                else f"after {how}: the batches are there in another order"
            )
        elif found[acked:] != self.in_flight[: len(found) - acked]:
            wrong.append(
                f"after {how}: {len(found) - acked} batches are there that were refused, or never written"
            )
        if found and found[-1][1] != end:
            wrong.append(f"after {how}: the last batch ends at {found[-1][1]}, the log at {end}")
        if note not in self.notes:
            wrong.append(f"after {how}: a small file holds {note!r}; allowed: {', '.join(self.notes)}")
        self.acked, self.in_flight, self.notes = found, [], [note]
        return wrong
