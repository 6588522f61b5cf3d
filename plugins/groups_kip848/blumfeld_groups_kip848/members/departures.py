"""Departures: a member leaves, its session times out, or it does not give up partitions in time."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from blumfeld_groups_kip848.conversion import downgrade
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import LEFT_FOR_A_WHILE, Member
from blumfeld_groups_kip848.steps import GroupSteps
from blumfeld_groups_kip848.targets import subscriptions
from blumfeld_groups_kip848.timers import stop_all


def leave_for_a_while(edit: Edit, member: Member) -> None:
    """Mark a static member as temporarily gone. Its partitions stay reserved until its session times out."""
    edit.put_assignment(attrs.evolve(member, epoch=LEFT_FOR_A_WHILE, revoking={}))


def fence(edit: Edit, member_ids: Collection[str], steps: GroupSteps) -> None:
    """End these memberships and free their partitions.

    If only classic members stay and the policy allows it, the group becomes a classic one. Otherwise its
    epoch goes up, and the next heartbeat brings a new target. The caller may write nothing after this call.
    """
    settings = steps.settings
    for member_id in member_ids:
        stop_all(edit, member_id)
    classic = steps.surroundings.shard_of("classic")
    if classic is not None and downgrade.may_convert(
        edit.group, member_ids, settings.migration_policy, settings.classic_size_max
    ):
        steps.stop_timers(edit)
        downgrade.convert(edit, classic, steps.image(), member_ids)
        return
    for member_id in member_ids:
        edit.remove_member(member_id)
    subscriptions.forget_unused(edit)
    # A restarted member returns in a moment. A target computed without it now would stay for a whole
    # assignment interval.
    steps.bump_epoch(edit)
