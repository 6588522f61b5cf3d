"""What a classic group's leader computes: eager ``range`` and ``cooperative-sticky`` for one topic. Pure.

Like their namesakes in the Java client in what they give to whom for one topic and equal subscriptions, and no
more than that: fast, so that it is the coordinator that is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice


def range_assignment(members: Sequence[str], partitions: int) -> dict[str, list[int]]:
    """Consecutive partitions for each member in the order of ids; the first get one more where it does not divide."""
    each, more = divmod(partitions, len(members))
    assignment: dict[str, list[int]] = {}
    start = 0
    for place, member in enumerate(sorted(members)):
        end = start + each + (place < more)
        assignment[member] = list(range(start, end))
        start = end
    return assignment


def sticky_assignment(owned: Mapping[str, Sequence[int]], partitions: int) -> dict[str, list[int]]:
    """Balanced, with as few partitions moved as that allows.

    :param owned: what each member says that it has; of two that claim one, the first in the order of ids
    """
    members = sorted(owned)
    each, more = divmod(partitions, len(members))
    taken: set[int] = set()
    assignment: dict[str, list[int]] = {}
    for member in members:
        mine = [one for one in owned[member] if one not in taken and one < partitions]
        quota = each + (1 if more and len(mine) > each else 0)
        more -= quota > each
        assignment[member] = sorted(mine)[:quota]
        taken.update(assignment[member])
    free = iter([partition for partition in range(partitions) if partition not in taken])
    for member in members:
        kept = assignment[member]
        kept += islice(free, max(0, each - len(kept)))
    for member, partition in zip(
        (one for one in members if len(assignment[one]) == each), free, strict=False
    ):
        assignment[member].append(partition)
    return assignment


def cooperative_assignment(owned: Mapping[str, Sequence[int]], partitions: int) -> dict[str, list[int]]:
    """The sticky assignment less what another member has yet to give up: that is given in the next rebalance
    (KIP-429).
    """
    holder = {partition: member for member, mine in owned.items() for partition in mine}
    return {
        member: [one for one in given if holder.get(one, member) == member]
        for member, given in sticky_assignment(owned, partitions).items()
    }
