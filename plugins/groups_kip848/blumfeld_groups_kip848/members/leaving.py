"""Members that go: they leave, or they are fenced because nothing was heard of them, or they kept what they were to
give up.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from blumfeld_groups_kip848.classic import downgrade
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import LEFT_FOR_A_WHILE, Member
from blumfeld_groups_kip848.members.timers import stop_all
from blumfeld_groups_kip848.steps import GroupSteps
from blumfeld_groups_kip848.targets import subscriptions


def leave_for_a_while(edit: Edit, member: Member) -> None:
    """A static member goes and may come back: until its session ends, what it has is kept for it."""
    edit.put_assignment(attrs.evolve(member, epoch=LEFT_FOR_A_WHILE, revoking={}))


def fence(edit: Edit, member_ids: Collection[str], steps: GroupSteps) -> None:
    """End these memberships; what they held is free. The group becomes a classic one where none but classic members
    stay and it may; else its epoch goes up, and a target follows with
    the next heartbeat. Nothing may be written after it.
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
    subscriptions.resolve(edit, steps.image(), settings.regex_refresh_interval_ms)
    # A member that is restarted comes back in a moment: a target without it would be the last for an interval.
    bump_epoch(edit, steps)


def bump_epoch(edit: Edit, steps: GroupSteps) -> None:
    """Raise the group's epoch, because its members or their subscriptions have changed."""
    metadata_hash = subscriptions.metadata_hash(edit.group, steps.image(), steps.hashes)
    edit.put_epoch(edit.group.epoch + 1, metadata_hash)
