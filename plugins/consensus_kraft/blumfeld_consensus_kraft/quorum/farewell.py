"""A leader of the quorum leaves: it hands over to the voter that has the most records, and waits for its answer."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.runtime import Runtime, pause
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.raft.roles import Resigned
from blumfeld_consensus_kraft.raft_log import RaftLog

FAREWELL_MS = 500
"""The longest a leader that resigns waits: for the commit of its log, and then for the voters' answers."""
FAREWELL_CHECK_MS = 5


async def hand_over(runtime: Runtime, driver: RaftDriver, log: RaftLog) -> None:
    """Resign when all that the log has is committed, and return when the voters know it. Nothing is waited for longer
    than ``FAREWELL_MS``: other voters may be gone.
    """
    raft = driver.raft
    await _wait_until(runtime, lambda: log.committed_end >= log.end_offset or raft.leadership is None)
    driver.resign()
    await _wait_until(runtime, lambda: not isinstance(raft.role, Resigned) or not raft.role.unacknowledged)


async def _wait_until(runtime: Runtime, condition: Callable[[], bool]) -> None:
    waited_ms = 0
    while not condition() and waited_ms < FAREWELL_MS:
        await pause(runtime, FAREWELL_CHECK_MS)
        waited_ms += FAREWELL_CHECK_MS
