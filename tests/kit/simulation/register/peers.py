"""Questions to other nodes over the transport: one JSON document a frame, with a number that the answer repeats."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from blumfeld.spi.transport import DialedConnection, Limits, Transport

ANSWER_S_MAX = 1.0

Message = dict[str, Any]


class Peer:
    """One other node. Implements ``FrameReceiver``; a lost connection is dialled again with the next question."""

    def __init__(self, transport: Transport, host: str, port: int) -> None:
        self._transport = transport
        self._address = host, port
        self._connection: DialedConnection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._asked = 0

    async def ask(self, question: Message) -> Message | None:
        """Return the answer, or ``None`` if there is none in time."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await self._ask(question)
        except (OSError, TimeoutError):
            return None

    async def _ask(self, question: Message) -> Message:
        while self._connection is None:
            if self._dialling is None:
                self._dialling = asyncio.create_task(self._dial())
                # Those that ask may have given up by then: an error that nobody fetches counts as escaped.
                self._dialling.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.shield(self._dialling)
        self._asked += 1
        number = self._asked
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._connection.send([msgspec.json.encode({**question, "number": number})])
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def _dial(self) -> None:
        try:
            self._connection = await self._transport.dial(*self._address, self, Limits())
        finally:
            self._dialling = None

    def frame(self, frame: memoryview) -> None:
        """Take an answer."""
        message = msgspec.json.decode(bytes(frame))
        waiting = self._waiting.get(message["number"])
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def lost(self, reason: str) -> None:
        """Fail what waits."""
        self._connection = None
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(ConnectionError(reason))
