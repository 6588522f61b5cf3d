"""One decision on one group while it is made; the runtime gets it as one ``Decision``.

``blumfeld_groups_kip848`` has a class of the same name. There an edit replays its records at once on a draft
of the group. A classic group is one record, so here the records are only collected.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec.structs import replace

from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.groups.shard import TypeCommand
from blumfeld.spi.groups import CoordinatorRecord, Decision, TimerOrder
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey, GroupMetadataValue

GROUP_METADATA_VERSION = 3
"""The version of GroupMetadataValue that 4.3.1 writes."""


class SessionExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member was silent for its session timeout."""

    group_id: str
    member_id: str


class JoinExpired(msgspec.Struct, frozen=True):
    """A timer's command: the join phase is over."""

    group_id: str
    generation: int


class AssignmentRefused(msgspec.Struct, frozen=True):
    """The log refused the leader's assignment for this generation."""

    group_id: str
    generation: int


class ReplacementRefused(msgspec.Struct, frozen=True):
    """The log refused to replace a static member's id by a new one: the former member stays.

    Without this the log knows only the former id, and the next coordinator would fence the new one for good.
    """

    group_id: str
    member_id: str
    former: FormerMember


class FormerMember(msgspec.Struct, frozen=True):
    """The part of a static member that a replacement changes."""

    member_id: str
    led: bool
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str


class ImportRefused(msgspec.Struct, frozen=True):
    """The log refused to turn another type's group into a classic one."""

    group_id: str


class SyncExpired(msgspec.Struct, frozen=True):
    """A timer's command: the sync phase of this generation is over."""

    group_id: str
    generation: int


class Edit:
    """The records, timers and answers of one decision, in order."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[CoordinatorRecord] = []
        self.timers: list[TimerOrder] = []
        self.answers: list[tuple[Hashable, Any]] = []
        self.if_refused: AssignmentRefused | ReplacementRefused | TypeCommand | None = None
        """The command that corrects the group in memory if the log refuses the record."""
        self.stands_without_records = False

    def write(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Write the group's new state; ``None`` ends the group."""
        key = GroupMetadataKey(group=group_id)
        self.records.append(record(key, value, GROUP_METADATA_VERSION))

    def answer(self, token: Hashable, reply: Any) -> None:
        """Answer a waiting request."""
        self.answers.append((token, reply))

    def session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Start or restart a member's session timer."""
        command = SessionExpired(group_id, member_id)
        self.timers.append(TimerOrder(("session", group_id, member_id), timeout_ms, command))

    def end_session(self, group_id: str, member_id: str) -> None:
        """Stop the session timer of a member that has left."""
        self.timers.append(TimerOrder(("session", group_id, member_id), None))

    def join_timer(self, group_id: str, generation: int, delay_ms: int) -> None:
        """Start or restart the timer of the join phase."""
        command = JoinExpired(group_id, generation)
        self.timers.append(TimerOrder(("join", group_id), delay_ms, command))

    def sync_timer(self, group_id: str, generation: int, delay_ms: int) -> None:
        """Start or restart the timer of the sync phase."""
        command = SyncExpired(group_id, generation)
        self.timers.append(TimerOrder(("sync", group_id), delay_ms, command))

    def end_join_timer(self, group_id: str) -> None:
        """Stop the timer of the join phase."""
        self.timers.append(TimerOrder(("join", group_id), None))

    def end_sync_timer(self, group_id: str) -> None:
        """Stop the timer of the sync phase."""
        self.timers.append(TimerOrder(("sync", group_id), None))

    def decision(self, reply: Any = None, token: Hashable | None = None, *, of_type: str = "") -> Decision:
        """The whole decision, with the reply to the current request or the token under which it waits.

        :param of_type: group type that the timers belong to, if another type makes the decision
        """
        timers = [replace(order, group_type=of_type) for order in self.timers] if of_type else self.timers
        return Decision(
            records=self.records,
            reply=reply,
            timers=timers,
            deferred=token,
            answers=self.answers,
            if_refused=self.if_refused,
            stands_without_records=self.stands_without_records,
        )
