"""Opens the metadata log again after a lack of room broke a change of it off (ADR 0003).

Nobody knows what such a change has left. So the replica takes no step until the log is open again, and says what lies
there: it could else stand for election with records that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.storage import LACKS
from blumfeld_consensus_kraft.opened_metadata import open_log
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.raft_log import RaftLog

REOPEN_MS = 1_000
"""Pause between two tries."""


class LogReopener:
    """Closes and opens one log.

    :param failed: called with an error that is no lack of room: the log takes no more
    """

    def __init__(
        self,
        composition: Composition,
        raft: RaftLog,
        driver: RaftDriver,
        events: EventLog,
        failed: Callable[[OSError], None],
    ) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._raft = raft
        self._driver = driver
        self._events = events
        self._repeated = RepeatedEvents(composition.runtime)
        self._failed = failed
        self._running: Completion[None] | None = None
        self._stopped = False

    def broken_off(
        self, error: OSError, done: Callable[[], None], again: Callable[[], None] | None = None
    ) -> None:
        """A change has raised ``error``. ``done`` is called when the log is open again; then the replica goes on.

        :param again: makes the change once more, before ``done``. Without it the log stays as the change left it
        """
        if error.errno not in LACKS:
            self._failed(error)
            return
        self._driver.hold()
        self._say(error)
        self._try(done, again)

    async def stop(self) -> None:
        """Try no more. Returns when a try that runs has ended."""
        self._stopped = True
        if self._running is not None:
            await self._running

    def _say(self, error: OSError) -> None:
        event = "the metadata log lacks room and is opened again"
        self._repeated.say(self._events.warning, event, error.errno, error=str(error))

    def _try(self, done: Callable[[], None], again: Callable[[], None] | None) -> None:
        if not self._stopped:
            self._running = Completion()
            self._runtime.spawn(self._run(self._running, done, again), "open the metadata log again")

    async def _run(
        self, ended: Completion[None], done: Callable[[], None], again: Callable[[], None] | None
    ) -> None:
        try:
            await self._reopen()
            if again is not None and not self._stopped:
                again()
        except OSError as error:
            if error.errno in LACKS:
                self._say(error)
                self._runtime.call_later(REOPEN_MS, lambda: self._try(done, again))
            elif not self._stopped:
                self._failed(error)
        else:
            if not self._stopped:
                done()
                self._driver.go_on()
        ended.complete(None)

    async def _reopen(self) -> None:
        closing = self._raft.log
        with suppress(OSError):  # a directory that is bad refuses the opening
            await closing.flush()  # off the loop, so that the close has little to sync
        with suppress(OSError):
            closing.close()
        self._raft.opened_again(await open_log(self._composition))
