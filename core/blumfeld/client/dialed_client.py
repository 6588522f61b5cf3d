"""The client over ``Transport.dial``: the transport cuts frames and writes sizes, a ``Completion`` has each answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from blumfeld.client.connection import ClientConnection, Waiting
from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import RawAnswer
from blumfeld.spi.transport import ByteLayer, DialedConnection, Limits, Transport
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message


class Raw:
    """Stands for a request whose answer is wanted as bytes."""

    __slots__ = ("answer",)

    def __init__(self, answer: Completion[RawAnswer]) -> None:
        self.answer = answer

    def take(self, answer: RawAnswer) -> None:
        """Complete, unless the caller has given up."""
        if not self.answer.done:
            self.answer.complete(answer)


Token: TypeAlias = "Completion[Message] | Raw"
"""The completion of a request that waits."""


class DialedClient:
    """One connection, which may not be open yet: requests wait for it. Implements ``FrameReceiver``.

    :param gone: called once, when no request can be sent any more
    """

    def __init__(self, client_id: str, about: str, gone: Callable[[DialedClient], None]) -> None:
        self._state = ClientConnection(client_id)
        self._about = about
        self._gone = gone
        self._connection: DialedConnection | None = None
        self._unsent: list[tuple[Message, int, Token]] = []
        self._lost = False
        self.lost_reason = ""
        """The reason why no request can be sent any more."""
        self.lost_kind: type[ConnectionError] = ConnectionError
        """``ConnectionRefusedError`` where no process listens at the address: the other node's process has ended."""

    async def dial(
        self,
        transport: Transport,
        host: str,
        port: int,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> None:
        """Connect, then send what waits. Nothing is raised: what waits fails with ``ConnectionError``."""
        try:
            # The channel closes an idle connection, and knows better when it is.
            connection = await transport.dial(host, port, self, Limits(idle_ms_max=-1), byte_layer)
        except OSError as error:
            if isinstance(error, ConnectionRefusedError):
                self.lost_kind = ConnectionRefusedError
            self.lost(str(error))
            return
        self._connection = connection
        if self._lost:  # closed while it was dialled
            connection.close()
            return
        unsent, self._unsent = self._unsent, []
        for request, version, token in unsent:
            self._send(request, version, token)

    def send(self, request: Message, version: int, answer: Completion[Message]) -> None:
        """Send a request, now or when the connection is open. ``answer`` completes with its answer or fails with
        ``ConnectionError``, unless the caller has completed it before: a late answer is dropped.

        :raises EncodeError: the request has no form in this version
        """
        self._send(request, version, answer)

    def send_raw(self, request: Message, version: int, answer: Completion[RawAnswer]) -> None:
        """Send as :meth:`send`; ``answer`` completes with bytes that live as long as the frame does."""
        self._send(request, version, Raw(answer))

    @property
    def waiting(self) -> int:
        """Number of requests that were sent, or wait for the connection, and have no answer."""
        return self._state.waiting + len(self._unsent)

    def _send(self, request: Message, version: int, token: Token) -> None:
        if self._lost:
            _fail(_completion(token), ConnectionError(f"{self._about}: the connection is lost"))
        elif self._connection is None:
            self._unsent.append((request, version, token))
        else:
            self._connection.send(self._state.parts(request, version, token))  # type: ignore[arg-type]

    def frame(self, frame: memoryview) -> None:
        """As ``FrameReceiver.frame``. A frame that breaks the protocol closes the connection."""
        if self._lost:
            return
        oldest = self._state.oldest
        try:
            if oldest is not None and type(oldest.token) is Raw:
                body, _ = self._state.take_raw(frame)
                oldest.token.take(RawAnswer(body, oldest.version))
                return
            # Copied: records in a message are views, and a message may be kept for longer than the frame lives.
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
        self.lost_reason = reason
        self._gone(self)
        waiting: list[Waiting] = self._state.end()
        unsent, self._unsent = self._unsent, []
        for token in [*(each.token for each in waiting), *(token for _, _, token in unsent)]:
            _fail(_completion(token), self.lost_kind(f"{self._about}: {reason}"))


def _completion(token: Token) -> Completion[Any]:
    return token.answer if isinstance(token, Raw) else token


def _fail(answer: Completion[Any], error: Exception) -> None:
    if not answer.done:
        answer.fail(error)
