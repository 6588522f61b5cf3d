"""The timers of members, and the commands that they come back with."""

from __future__ import annotations

import msgspec

from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import Member, MemberState


class SessionExpired(msgspec.Struct, frozen=True):
    """A timer's command: nothing was heard of a member for its session timeout."""

    group_id: str
    member_id: str


class RebalanceExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member had its time to give up partitions."""

    group_id: str
    member_id: str
    epoch: int
    """The member's epoch when it was told. A later epoch means that it gave them up."""


def session_key(group_id: str, member_id: str) -> tuple[str, ...]:
    """The key of the timer that runs while a member is silent."""
    return ("session", group_id, member_id)


def rebalance_key(group_id: str, member_id: str) -> tuple[str, ...]:
    """The key of the timer that runs while a member gives up partitions."""
    return ("rebalance", group_id, member_id)


def start_session(edit: Edit, member_id: str, timeout_ms: int) -> None:
    """(Re)start it."""
    command = SessionExpired(edit.group_id, member_id)
    edit.timer(session_key(edit.group_id, member_id), timeout_ms, command)


def start_rebalance(edit: Edit, member: Member) -> None:
    """(Re)start it; a member that has nothing to give up has none."""
    key = rebalance_key(edit.group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        command = RebalanceExpired(edit.group_id, member.member_id, member.epoch)
        edit.timer(key, member.rebalance_timeout_ms, command)
    else:
        edit.timer(key, None)


def stop_all(edit: Edit, member_id: str) -> None:
    """A member has gone."""
    edit.timer(session_key(edit.group_id, member_id), None)
    edit.timer(rebalance_key(edit.group_id, member_id), None)
