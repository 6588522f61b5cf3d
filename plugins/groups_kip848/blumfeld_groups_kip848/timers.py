"""Timers of members, and the commands that they trigger."""

from __future__ import annotations

import msgspec

from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import Member, MemberState


class SessionExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member was silent for its session timeout."""

    group_id: str
    member_id: str


class RebalanceExpired(msgspec.Struct, frozen=True):
    """A timer's command: the time in which a member must give up partitions is over."""

    group_id: str
    member_id: str
    epoch: int
    """The member's epoch when the timer started. If it has a newer one, it has given the partitions up."""


def session_key(group_id: str, member_id: str) -> tuple[str, ...]:
    """Key of a member's session timer."""
    return ("session", group_id, member_id)


def rebalance_key(group_id: str, member_id: str) -> tuple[str, ...]:
    """Key of the timer that runs while a member has partitions to give up."""
    return ("rebalance", group_id, member_id)


def start_session(edit: Edit, member_id: str, timeout_ms: int) -> None:
    """Start or restart a member's session timer."""
    command = SessionExpired(edit.group_id, member_id)
    edit.timer(session_key(edit.group_id, member_id), timeout_ms, command)


def start_rebalance(edit: Edit, member: Member) -> None:
    """Start or restart the rebalance timer of a member with partitions to give up; cancel it for any other
    member.
    """
    key = rebalance_key(edit.group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        command = RebalanceExpired(edit.group_id, member.member_id, member.epoch)
        edit.timer(key, member.rebalance_timeout_ms, command)
    else:
        edit.timer(key, None)


def stop_all(edit: Edit, member_id: str) -> None:
    """Cancel all timers of a member that has left."""
    edit.timer(session_key(edit.group_id, member_id), None)
    edit.timer(rebalance_key(edit.group_id, member_id), None)
