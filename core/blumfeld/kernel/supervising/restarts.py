"""Rules for the processes of a cluster: when one serves, when it is started again, how it is stopped. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

CLEAN_STOP, NOT_STARTED, BAD_MANIFEST = 0, 1, 2
"""Exit statuses of ``blumfeld run``."""
READY = b" ready on "
"""Stands in the line by which a node says that it serves."""
STOP_S_MAX = 30.0
"""Time that a node has after SIGTERM. A stop takes ``broker.session.timeout.ms`` (9 s) where no controller answers, and
5 s for open requests. SIGKILL follows, which costs a recovery."""
BACKOFF_MS = 250
BACKOFF_MS_MAX = 30_000
SETTLED_MS = 60_000
"""A node that served for this long has no failures behind it any more."""


class StartAgain(msgspec.Struct, frozen=True):
    """The node is started again after a pause."""

    after_ms: int


class GiveUp(msgspec.Struct, frozen=True):
    """The node can't run: the other nodes are stopped, and the supervisor ends with this status."""

    status: int


class Restarts:
    """The decisions about one node. All times are monotonic, in ms."""

    def __init__(self) -> None:
        self._failures = 0
        self._ready_at_ms: int | None = None
        self._was_ready = False

    def ready(self, now_ms: int) -> None:
        """The node serves."""
        self._ready_at_ms = now_ms
        self._was_ready = True

    def ended(self, now_ms: int, status: int) -> StartAgain | GiveUp:
        """Decide about a node that ended although no stop was asked for.

        * A manifest that can't be run stays so: give up.
        * A node that has never served since the supervisor started: give up. The reason is mostly a mistake, such as a
          port that is taken, and a person is there to see it.
        * A node that was stopped by a signal from outside is started at once. So a rolling restart is SIGTERM to one
          node after the other.
        * Any other end is a crash: start again, after a pause that doubles with each crash in a row.

        :param status: as of a shell: 128 + number of a signal
        """
        served_ms = 0 if self._ready_at_ms is None else now_ms - self._ready_at_ms
        self._ready_at_ms = None
        if status == BAD_MANIFEST:
            return GiveUp(BAD_MANIFEST)
        if not self._was_ready:
            return GiveUp(NOT_STARTED)
        if status == CLEAN_STOP:
            return StartAgain(0)
        if served_ms >= SETTLED_MS:
            self._failures = 0
        pause_ms = min(BACKOFF_MS * 2**self._failures, BACKOFF_MS_MAX)
        self._failures = min(self._failures + 1, 16)  # a bound for the power above
        return StartAgain(pause_ms)


def stop_order(
    node_ids: Sequence[int], controller_ids: Sequence[int], leader_id: int | None
) -> list[list[int]]:
    """Returns groups of nodes: a group is stopped when all before it have ended.

    Brokers come first, one by one, so that each can hand its partitions to nodes that stay. Then come voters, one by
    one, and the quorum's leader with the last group: while it serves, each node before it is told that its partitions
    have moved. The last group is the smallest majority of the voters. It is stopped as one, because a voter that is
    left alone can commit nothing, and would wait for its session's end.

    :param leader_id: the leader of the quorum; ``None`` if it isn't known
    """
    voters = sorted(
        (node_id for node_id in node_ids if node_id in controller_ids),
        key=lambda node_id: node_id == leader_id,
    )
    majority = len(controller_ids) // 2 + 1
    alone, together = voters[: max(0, len(voters) - majority)], voters[-majority:]
    groups = [[node_id] for node_id in node_ids if node_id not in controller_ids]
    groups += [[node_id] for node_id in alone]
    return groups + ([together] if together else [])
