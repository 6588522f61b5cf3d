"""The client over ``Transport.dial``: the transport cuts frames and writes sizes, a ``Completion`` has each answer."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.client.connection import ClientConnection, Waiting
from blumfeld.spi.completion import Completion
from blumfeld.spi.transport import DialedConnection, Limits, Transport
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message


class DialedClient:
    """One connection, which may not be open yet: requests wait for it. Implements ``FrameReceiver``.

    :param gone: called once, when no request can be sent any more
    """

    def __init__(self, client_id: str, about: str, gone: Callable[[DialedClient], None]) -> None:
        self._state = ClientConnection(client_id)
        self._about = about
        self._gone = gone
        self._connection: DialedConnection | None = None
        self._unsent: list[tuple[Message, int, Completion[Message]]] = []
        self._lost = False

    async def dial(self, transport: Transport, host: str, port: int) -> None:
        """Connect, then send what waits. Nothing is raised: what waits fails with ``ConnectionError``."""
        try:
            connection = await transport.dial(host, port, self, Limits())
        except OSError as error:
            self.lost(str(error))
            return
        self._connection = connection
        if self._lost:  # closed while it was dialled
            connection.close()
            return
        unsent, self._unsent = self._unsent, []
        for request, version, answer in unsent:
            self.send(request, version, answer)

    def send(self, request: Message, version: int, answer: Completion[Message]) -> None:
        """Send a request, now or when the connection is open. ``answer`` completes with its answer or fails with
        ``ConnectionError``, unless the caller has completed it before: a late answer is dropped.
        """
        if self._lost:
            _fail(answer, ConnectionError(f"{self._about}: the connection is lost"))
        elif self._connection is None:
            self._unsent.append((request, version, answer))
        else:
            self._connection.send(self._state.parts(request, version, answer))  # type: ignore[arg-type]

    def frame(self, frame: memoryview) -> None:
        """As ``FrameReceiver.frame``. A frame that breaks the protocol closes the connection."""
        if self._lost:
            return
        try:
            # Copied: the frame's memory is the transport's own again after this call, and records are views into it.
            answer = self._state.take(bytes(frame))
        except DecodeError as error:
            self._fail_all(f"unreadable answer: {error}")
            self.close()
            return
        waiting: Completion[Message] = answer.request.token
        if not waiting.done:
            waiting.complete(answer.message)

    def lost(self, reason: str) -> None:
        """As ``FrameReceiver.lost``: what waits fails."""
        self._fail_all(reason)

    def close(self) -> None:
        """Hang up; what waits fails. Harmless twice."""
        self._fail_all("closed")
        if self._connection is not None:
            self._connection.close()

    def _fail_all(self, reason: str) -> None:
        if self._lost:
            return
        self._lost = True
        self._gone(self)
        waiting: list[Waiting] = self._state.end()
        unsent, self._unsent = self._unsent, []
        for answer in [*(each.token for each in waiting), *(answer for _, _, answer in unsent)]:
            _fail(answer, ConnectionError(f"{self._about}: {reason}"))


def _fail(answer: Completion[Message], error: Exception) -> None:
    if not answer.done:
        answer.fail(error)
