"""Who owns which partition, when that changed, and what pauses that made. Pure: times are given to it.

The definitions stand in the package's docstring.
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
    """What one rebalance did to readers, in ns."""

    members: dict[int, int]
    """Of each member that was there before and after: how long it had less than before and less than after."""
    moved: dict[int, int]
    """Of each partition with another owner than before: how long it had none."""
    unowned: int
    """Over all partitions together: how long they had no owner."""


class Ownership:
    """The owners of one topic's partitions, as its members see it."""

    def __init__(self, partitions: int) -> None:
        self.unowned = partitions
        self.contested = 0
        """How often a member was given what another one still owned: never, if the coordinator is right."""
        self.changed_ns = 0
        self.changes: list[Change] = []
        """Since :meth:`begin`."""
        self._owner = [NOBODY] * partitions
        self._owned: dict[int, set[int]] = {}

    def begin(self) -> dict[int, frozenset[int]]:
        """Forget the changes so far: who owns what now."""
        self.changes = []
        return self.owners()

    def owners(self) -> dict[int, frozenset[int]]:
        """Who owns what now; a member without partitions may be missing."""
        return {member: frozenset(owned) for member, owned in self._owned.items()}

    def owned(self, member: int) -> set[int]:
        """What a member owns; not to be changed."""
        return self._owned.get(member, set())

    def change(self, at_ns: int, member: int, wanted: Iterable[int]) -> bool:
        """From now on the member owns just these. What it gives up it gives up first; whether it gave up any."""
        wanted = set(wanted)
        owned = self._owned.setdefault(member, set())
        revoked, added = sorted(owned - wanted), sorted(wanted - owned)
        if revoked:
            self._revoke(at_ns, member, revoked)
        if added:
            self._add(at_ns, member, added)
        return bool(revoked)

    def balanced(self, members: Iterable[int]) -> bool:
        """Every partition has an owner among these, and none has two more than another."""
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
    """What the changes from ``before`` to ``after`` did to readers, up to ``until_ns``.

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
    """Partitions whose owner is another one than before."""
    owner = {partition: member for member, owned in before.items() for partition in owned}
    return {
        partition
        for member, owned in after.items()
        for partition in owned
        if partition in owner and owner[partition] != member
    }
