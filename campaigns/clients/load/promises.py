"""Promises to groups, against the words of a broker and the records that their members consumed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

Place = tuple[str, int]
"""Topic and partition."""


class Epochs(msgspec.Struct, frozen=True):
    """A KIP-848 group, as ConsumerGroupDescribe shows it."""

    state: str
    group_epoch: int
    members: Mapping[str, int]
    """Member id → member epoch."""


class GroupPromises:
    """Promises to groups. ``wrong`` has a sentence for each that was broken."""

    def __init__(self) -> None:
        self.commits = 0
        """Offsets whose commit was answered with success."""
        self.went_back = 0
        self.skipped = 0
        self.doubled = 0
        """Records that a group got more than once: nobody promised that it doesn't."""
        self.wrong: list[str] = []
        self._promised: dict[tuple[str, Place], int] = {}

    def commit(self, group: str, place: Place, offset: int) -> None:
        """A commit was answered with success: the group will never find less."""
        self.commits += 1
        key = group, place
        self._promised[key] = max(self._promised.get(key, 0), offset)

    def promised(self, group: str) -> dict[Place, int]:
        """Return the highest offsets that were promised to a group."""
        return {place: offset for (name, place), offset in self._promised.items() if name == group}

    def check_committed(
        self,
        group: str,
        promised: Mapping[Place, int],
        committed: Mapping[Place, int],
        ends: Mapping[Place, int] | None = None,
    ) -> None:
        """Check what OffsetFetch says: no less than was promised before, and no more than the log has.

        :param ends: the ends of the logs, asked after ``committed``
        """
        for place, least in sorted(promised.items()):
            offset = committed.get(place, -1)
            if offset < least:
                self.went_back += 1
                self.wrong.append(f"{group}: {place[0]}-{place[1]} went back from {least} to {offset}")
            if ends is not None and offset > ends[place]:
                self.wrong.append(
                    f"{group}: {place[0]}-{place[1]} has committed {offset}, the log ends at {ends[place]}"
                )

    def check_epochs(self, group: str, before: Epochs, after: Epochs) -> None:
        """Check a stable group that nobody joined or left: the same members, in no earlier epochs."""
        if after.group_epoch < before.group_epoch:
            self.wrong.append(f"{group}: epoch went back from {before.group_epoch} to {after.group_epoch}")
        for member, epoch in sorted(before.members.items()):
            new_epoch = after.members.get(member)
            if new_epoch is None:
                self.wrong.append(f"{group}: member {member} is not there any more")
            elif new_epoch < epoch:
                self.wrong.append(f"{group}: member {member} went back from epoch {epoch} to {new_epoch}")
        for member in sorted(set(after.members) - set(before.members)):
            self.wrong.append(f"{group}: member {member} was not there before")

    def check_consumed(
        self, group: str, runs: Mapping[Place, Iterable[tuple[int, int, int]]], ends: Mapping[Place, int]
    ) -> None:
        """Check that every record up to the ends was consumed by somebody; each run is (first, last, count)."""
        for place, end in sorted(ends.items()):
            next_offset = 0
            for first, last, count in sorted(runs.get(place, ())):
                if first > next_offset:
                    self._skip(group, place, next_offset, first)
                if count != last - first + 1:
                    self._skip(group, place, first, last + 1)
                self.doubled += max(0, min(next_offset, last + 1) - first)
                next_offset = max(next_offset, last + 1)
            if next_offset < end:
                self._skip(group, place, next_offset, end)

    def _skip(self, group: str, place: Place, first: int, end: int) -> None:
        self.skipped += end - first
        self.wrong.append(f"{group}: {place[0]}-{place[1]} was not consumed from {first} to {end - 1}")


def longest_unowned_ms(changes: Sequence[tuple[int, bool]], end_ms: int) -> int:
    """Return the longest time that a partition was without an owner, after it had its first and until ``end_ms``.

    :param changes: (time, whether a member got it or gave it up) of one partition; all of the time if there are none
    """
    ordered = sorted((at_ms, not owned) for at_ms, owned in changes)
    owners, without_since, longest = 0, ordered[0][0] if ordered else 0, 0
    for at_ms, given_up in [*ordered, (end_ms, False)]:
        if owners == 0:
            longest = max(longest, at_ms - without_since)
        owners += -1 if given_up else 1
        if owners == 0:
            without_since = at_ms
    return longest
