"""The sessions of a node, one after the other: when one is over, the next is begun, for as long as the node runs."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, pause
from blumfeld.spi.zookeeper import SessionState, ZooKeeper, ZooKeeperError

RETRY_MS = 1_000
"""Pause before the next session is tried again."""


class Sessions:
    """Opened → closed.

    :param make: makes a session that isn't connected
    :param begun: is called with each later session once it is connected
    :param ended: is called when one is over
    """

    def __init__(
        self,
        *,
        make: Callable[[], ZooKeeper],
        runtime: Runtime,
        events: EventLog,
        connection_timeout_ms: float,
        begun: Callable[[ZooKeeper], None],
        ended: Callable[[], None],
    ) -> None:
        self._make = make
        self._runtime = runtime
        self._events = events
        self._timeout_ms = connection_timeout_ms
        self._begun = begun
        self._ended = ended
        self._present: ZooKeeper | None = None
        self._suspended = False
        self._closed = False

    @property
    def present(self) -> ZooKeeper:
        """The session now; it may be over."""
        assert self._present is not None
        return self._present

    async def open(self) -> ZooKeeper:
        """Begin the first session.

        :raises TimeoutError: no server answered in time
        :raises ZooKeeperError: the servers refused it
        """
        session = await self._connected()
        self._events.info("ZooKeeper session begun", session=f"{session.session_id:#x}")
        return session

    async def close(self) -> None:
        """End the session: the node's ephemeral nodes go. Legal without :meth:`open`, and twice."""
        self._closed = True
        if self._present is not None:
            await self._present.close()

    async def _connected(self) -> ZooKeeper:
        session = self._present = self._make()
        session.on_state(lambda state: self._state_changed(session, state))
        await session.connect(self._timeout_ms)
        return session

    def _state_changed(self, session: ZooKeeper, state: SessionState) -> None:
        if session is not self._present or self._closed:
            return
        if state is SessionState.SUSPENDED:
            self._suspended = True
            self._events.warning("no ZooKeeper server is reached; produce and fetch go on")
        elif state is SessionState.CONNECTED and self._suspended:
            self._suspended = False
            self._events.info("ZooKeeper is reached again", session=f"{session.session_id:#x}")
        elif state is SessionState.EXPIRED:
            self._suspended = False
            self._events.warning("the ZooKeeper session is over; another one is begun")
            self._ended()
            self._runtime.spawn(self._begin_again(), "begin a ZooKeeper session")

    async def _begin_again(self) -> None:
        while not self._closed:
            try:
                session = await self._connected()
            except (OSError, ZooKeeperError) as error:  # TimeoutError is an OSError
                self._events.warning("no ZooKeeper session; tried again", error=str(error))
                if self._present is not None:
                    await self._present.close()
                await pause(self._runtime, RETRY_MS)
                continue
            if self._closed:
                await session.close()
            else:
                self._events.info("ZooKeeper session begun", session=f"{session.session_id:#x}")
                self._begun(session)
            return
