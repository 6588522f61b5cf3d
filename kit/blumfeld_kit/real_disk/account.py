"""Compares what one process reported with what the next one finds. Pure: tested without a disk."""

from __future__ import annotations

from collections.abc import Iterable

Batch = tuple[int, int, str]
"""Base offset, next offset, digest of the bytes."""

NOTHING = "-"
"""Stands in place of a small file, or a high watermark, that isn't there."""
OF_A_LOG = ("found", "there", "placed", "acked", "refused", "begun", "done", "kept")
"""Words of lines that begin with the name of a log."""


class LogAccount:
    """The batches that one log was given over all lives so far, and the promises about them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acked: list[Batch] = []
        self.in_flight: list[Batch] = []
        """Batches placed when the process died, neither acknowledged nor refused. Any first part of them may be
        there.
        """
        self.allowed: dict[str, list[str]] = {}
        """Possible contents of each small file, and values of the high watermark: what was surely written last, and
        what was begun after it.
        """
        self.refusals = 0
        self._found: list[Batch] = []

    def take(self, word: str, values: list[str]) -> list[str]:
        """Take one line. Return the promises that were not kept."""
        if word == "found":
            self._found.append((int(values[0]), int(values[1]), values[2]))
        elif word == "there":
            return self._compare(int(values[0]))
        elif word == "placed":
            self.in_flight.append((int(values[0]), int(values[1]), values[2]))
        elif word in ("acked", "refused"):
            return self._end_of_write(int(values[0]), refused=word == "refused")
        elif word == "begun":
            self.allowed.setdefault(values[0], [NOTHING]).append(values[1])
        elif word == "done":
            self.allowed[values[0]] = [values[1]]
        elif word == "kept":
            return self._kept(*values)
        return []

    def _end_of_write(self, end: int, *, refused: bool) -> list[str]:
        lost = [batch for batch in self.in_flight if batch[1] > end]
        placed_end = self.in_flight[-1][1] if self.in_flight else end
        self.acked += [batch for batch in self.in_flight if batch[1] <= end]
        self.refusals += refused
        self.in_flight = []
        return [f"a write succeeded up to {end}, and {placed_end} was placed"] if lost and not refused else []

    def _kept(self, name: str, value: str) -> list[str]:
        allowed = self.allowed.get(name, [NOTHING])
        self.allowed[name] = [value]
        if value in allowed:
            return []
        return [f"{name} is {value!r}; allowed: {', '.join(map(repr, allowed))}"]

    def _compare(self, end: int) -> list[str]:
        wrong = []
        found, self._found = self._found, []
        acked = len(self.acked)
        if found[:acked] != self.acked:
            missing = [batch for batch in self.acked if batch not in found]
            wrong.append(
                f"{len(missing)} of {acked} batches that were acknowledged are not there"
                if missing
                else "the batches are there in another order"
            )
        elif found[acked:] != self.in_flight[: len(found) - acked]:
            wrong.append(f"{len(found) - acked} batches are there that were refused, or never written")
        if found and found[-1][1] != end:
            wrong.append(f"the last batch ends at {found[-1][1]}, the log at {end}")
        self.acked, self.in_flight = found, []
        return wrong


class Account:
    """The accounts of all logs of one directory, over the lives of the processes that used it."""

    def __init__(self) -> None:
        self.logs: dict[str, LogAccount] = {}
        self.deleted: set[str] = set()
        self.deaths = 0

    @property
    def refusals(self) -> int:
        """Number of writes that were refused."""
        return sum(log.refusals for log in self.logs.values())

    def take(self, lines: Iterable[str], how: str) -> list[str]:
        """Take the lines of one life. Return the promises that were not kept, in words.

        :param how: how the life before ended, for the message
        """
        wrong: list[str] = []
        for line in lines:
            word, *values = line.split(maxsplit=4)
            if word == "broken":
                wrong.append(f"after {how}: {line.partition(' ')[2]}")
            elif word == "deleted":
                self.deleted.add(values[0])
            elif word == "partition":
                if values[0] in self.deleted:
                    wrong.append(f"after {how}: the log of {values[0]} is back, though it was deleted")
            elif word in OF_A_LOG:
                log = self.logs.setdefault(values[0], LogAccount(values[0]))
                wrong += [f"after {how}: {log.name}: {broken}" for broken in log.take(word, values[1:])]
        return wrong
