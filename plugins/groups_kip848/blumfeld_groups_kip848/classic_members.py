"""Classic members of a KIP-848 group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup as the broker answers them when
it is the broker that assigns (formats.md §20).

A member's epoch is its generation. It learns by Heartbeat that it has to join again, says by its subscription what
it owns, and gets by SyncGroup what it may have by then. Nothing waits: each request is answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from blumfeld.spi.context import RequestContext
from blumfeld.spi.groups import Decision

if TYPE_CHECKING:
    from blumfeld_groups_kip848.shard import ConsumerGroups


class JoinExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member that was told to join again has not, for its rebalance timeout."""

    group_id: str
    member_id: str


class SyncExpired(msgspec.Struct, frozen=True):
    """A timer's command: a member that has joined has not asked what it got, for its rebalance timeout."""

    group_id: str
    member_id: str


COMMANDS = (JoinExpired, SyncExpired)
"""Those that a shard hands to :meth:`ClassicMembers.command`, beside the four requests."""


class ClassicMembers:
    """The guest APIs of the shard's groups."""

    def __init__(self, shard: ConsumerGroups) -> None:
        """``shard`` has the groups, the settings and the way to join, reconcile and fence (A's functions)."""
        self._shard = shard

    def command(self, request: Any, context: RequestContext | None, now_ms: int) -> Decision:
        """Decide on JoinGroup v0–9, SyncGroup v0–5, Heartbeat v0–4, LeaveGroup v0–5 for a group that the shard has, or
        on one of ``COMMANDS``.

        A JoinGroup to a group without members is the classic type's: it replaces the group silently.

        :raises BrokerError: the request's error
        """
        raise NotImplementedError
