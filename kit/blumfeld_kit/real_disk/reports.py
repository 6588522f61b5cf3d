"""Compares what one process reported with what the next one finds. Pure: tested without a disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blumfeld_kit.crash.promises import Broken, FoundLog, LogPromises
from blumfeld_kit.storage_driver.node import StoredBatch

NOTHING = "-"
"""Stands in place of a small file, or a high watermark, that isn't there."""
OF_A_LOG = ("found", "there", "placed", "acked", "refused", "begun", "done", "kept")
"""Words of lines that begin with the name of a log."""


class LogReports:
    """The reports about one log over all lives so far, and the promises in them. A batch's data is its digest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.promises = LogPromises(name)
        self.allowed: dict[str, list[str]] = {}
        """Possible contents of each small file, and values of the high watermark: what was surely written last, and
        what was begun after it.
        """
        self.refusals = 0
        self._found: list[StoredBatch] = []

    def take(self, word: str, values: list[str]) -> list[str]:
        """Take one line. Return the promises that were not kept."""
        if word == "found":
            self._found.append(_batch(values))
        elif word == "there":
            return self._compare(int(values[0]))
        elif word == "placed":
            self.promises.placed([_batch(values)])
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
        placed_end = self.promises.end_offset
        self.promises.refused(end)
        self.promises.written(end)
        self.refusals += refused
        if refused or placed_end <= end:
            return []
        return [f"{self.name}: a write succeeded up to {end}, and {placed_end} was placed"]

    def _kept(self, name: str, value: str) -> list[str]:
        allowed = self.allowed.get(name, [NOTHING])
        self.allowed[name] = [value]
        if value in allowed:
            return []
        return [f"{self.name}: {name} is {value!r}; allowed: {', '.join(map(repr, allowed))}"]

    def _compare(self, end: int) -> list[str]:
        found_log, self._found = FoundLog(0, end, self._found), []
        wrong = []
        try:
            self.promises.check(found_log, power_cut=False)
        except Broken as broken:
            wrong.append(str(broken))
        self.promises = LogPromises(self.name)
        self.promises.placed(found_log.batches)
        self.promises.written(end)
        return wrong


def _batch(values: Sequence[str]) -> StoredBatch:
    return StoredBatch(int(values[0]), int(values[1]), 0, values[2].encode())


class Reports:
    """The reports about all logs of one directory, over the lives of the processes that used it."""

    def __init__(self) -> None:
        self.logs: dict[str, LogReports] = {}
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
                log = self.logs.setdefault(values[0], LogReports(values[0]))
                wrong += [f"after {how}: {broken}" for broken in log.take(word, values[1:])]
        return wrong
