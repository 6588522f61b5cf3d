"""Track each partition's owner over time, and compute the pauses. Pure: the caller passes times.

The package's docstring defines the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

NOBODY = -1


class Change(NamedTuple):
    """A member got partitions, or gave them up."""

    at_ns: int
    member: int
    gained: bool
    partitions: tuple[int, ...]


@attrs.frozen
class Pauses:
    """The pauses of one rebalance, in ns."""

    members: dict[int, int]
    """For each member that was there before and after: the time in which it owned less than before and less than
    after.
    """
    moved: dict[int, int]
    """For each partition with another owner than before: the time without an owner."""
    unowned: int
    """Time without an owner, summed over all partitions."""


class Ownership:
    """The owners of one topic's partitions, as its members see it."""

    def __init__(self, partitions: int) -> None:
        self.unowned = partitions
        self.contested = 0
        """Number of times a member was given a partition that another one still owned; 0 with a correct coordinator."""
        self.changed_ns = 0
        self.changes: list[Change] = []
        """Changes since :meth:`begin`."""
        self._owner = [NOBODY] * partitions
        self._owned: dict[int, set[int]] = {}

    def begin(self) -> dict[int, frozenset[int]]:
        """Forget the changes so far; return each member's partitions now."""
        self.changes = []
        return self.owners()

    def owners(self) -> dict[int, frozenset[int]]:
        """Return each member's partitions; a member without any may be missing."""
        return {member: frozenset(owned) for member, owned in self._owned.items()}

    def owned(self, member: int) -> set[int]:
        """Return a member's partitions, as a set that the caller must not change."""
        return self._owned.get(member, set())

    def change(self, at_ns: int, member: int, wanted: Iterable[int]) -> bool:
        """Set a member's partitions from now on; removals come before additions. Return whether it gave up any."""
        wanted = set(wanted)
        owned = self._owned.setdefault(member, set())
        revoked, added = sorted(owned - wanted), sorted(wanted - owned)
        if revoked:
            self._revoke(at_ns, member, revoked)
        if added:
            self._add(at_ns, member, added)
        return bool(revoked)

    def balanced(self, members: Iterable[int]) -> bool:
        """Whether every partition has an owner among these members, and none has two more than another."""
        sizes = [len(self._owned.get(member, ())) for member in members]
        return (
            bool(sizes)
            and not self.unowned
            and sum(sizes) == len(self._owner)
            and max(sizes) - min(sizes) <= 1
        )

    def _revoke(self, at_ns: int, member: int, partitions: Sequence[int]) -> None:
        for partition in partitions:
            if self._owner[partition] == member:
                self._owner[partition] = NOBODY
                self.unowned += 1
        self._owned[member].difference_update(partitions)
        self._note(Change(at_ns, member, False, tuple(partitions)))

    def _add(self, at_ns: int, member: int, partitions: Sequence[int]) -> None:
        for partition in partitions:
            if self._owner[partition] == NOBODY:
                self.unowned -= 1
            else:
                self.contested += 1
            self._owner[partition] = member
        self._owned[member].update(partitions)
        self._note(Change(at_ns, member, True, tuple(partitions)))

    def _note(self, change: Change) -> None:
        self.changes.append(change)
        self.changed_ns = change.at_ns


def pauses(
    before: Mapping[int, frozenset[int]],
    changes: Sequence[Change],
    after: Mapping[int, frozenset[int]],
    until_ns: int,
) -> Pauses:
    """Compute the pauses of the changes from ``before`` to ``after``, up to ``until_ns``.

    :param changes: in order of time
    """
    floor = {member: min(len(before[member]), len(after[member])) for member in sorted(before.keys() & after)}
    count = {member: len(before[member]) for member in floor}
    members = dict.fromkeys(floor, 0)
    since: dict[int, int] = {}
    gone: dict[int, int] = {}
    unowned: dict[int, int] = {}
    for at_ns, member, gained, partitions in changes:
        for partition in partitions:
            if not gained:
                gone[partition] = at_ns
            elif partition in gone:
                unowned[partition] = unowned.get(partition, 0) + at_ns - gone.pop(partition)
        if member in floor:
            count[member] += len(partitions) if gained else -len(partitions)
            if count[member] < floor[member]:
                since.setdefault(member, at_ns)
            elif member in since:
                members[member] += at_ns - since.pop(member)
    for partition, at_ns in gone.items():
        unowned[partition] = unowned.get(partition, 0) + max(0, until_ns - at_ns)
    moved = {partition: unowned.get(partition, 0) for partition in sorted(_moved(before, after))}
    return Pauses(members, moved, sum(unowned.values()))


def _moved(before: Mapping[int, frozenset[int]], after: Mapping[int, frozenset[int]]) -> set[int]:
    """Return the partitions whose owner changed."""
    owner = {partition: member for member, owned in before.items() for partition in owned}
    return {
        partition
        for member, owned in after.items()
        for partition in owned
        if partition in owner and owner[partition] != member
    }
