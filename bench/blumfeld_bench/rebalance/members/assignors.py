"""The assignments of a classic group's leader: eager ``range`` and ``cooperative-sticky``, for one topic. Pure.

For one topic and equal subscriptions they give the same result as the Java client's assignors of these names. They
are fast, so that the coordinator is measured and not the leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice


def range_assignment(members: Sequence[str], partitions: int) -> dict[str, list[int]]:
    """Assign consecutive partitions to each member in the order of ids; the first members get one more where it
    does not divide.
    """
    each, more = divmod(partitions, len(members))
    assignment: dict[str, list[int]] = {}
    start = 0
    for place, member in enumerate(sorted(members)):
        end = start + each + (place < more)
        assignment[member] = list(range(start, end))
        start = end
    return assignment


def sticky_assignment(owned: Mapping[str, Sequence[int]], partitions: int) -> dict[str, list[int]]:
    """Assign evenly, and move as few partitions as that allows.

    :param owned: the partitions that each member claims; of two members that claim one, the first in the order of ids
        keeps it
    """
    members = sorted(owned)
    each, more = divmod(partitions, len(members))
    taken: set[int] = set()
    assignment: dict[str, list[int]] = {}
    for member in members:
        mine = [candidate for candidate in owned[member] if candidate not in taken and candidate < partitions]
        quota = each + (1 if more and len(mine) > each else 0)
        more -= quota > each
        assignment[member] = sorted(mine)[:quota]
        taken.update(assignment[member])
    free = iter([partition for partition in range(partitions) if partition not in taken])
    for member in members:
        kept = assignment[member]
        kept += islice(free, max(0, each - len(kept)))
    for member, partition in zip(
        (candidate for candidate in members if len(assignment[candidate]) == each), free, strict=False
    ):
        assignment[member].append(partition)
    return assignment


def cooperative_assignment(owned: Mapping[str, Sequence[int]], partitions: int) -> dict[str, list[int]]:
    """Return the sticky assignment without the partitions that another member must give up first; the next rebalance
    assigns those (KIP-429).
    """
    holder = {partition: member for member, mine in owned.items() for partition in mine}
    return {
        member: [candidate for candidate in given if holder.get(candidate, member) == member]
        for member, given in sticky_assignment(owned, partitions).items()
    }
