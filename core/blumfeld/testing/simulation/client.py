"""One client connection: requests go out in order, answers come back in order, as the wire has them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

from blumfeld.testing.simulation.network import Network, Wire
from blumfeld.testing.simulation.oracle import ViolationError
from blumfeld.testing.simulation.transport import Framer
from blumfeld.wire.api import response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.schema import Message

R = TypeVar("R", bound=Message)

ANSWER_S_MAX = 60.0
"""Longer than any request here may wait. The network never loses a connection silently, so it is the broker's fault."""
FRAME_BYTES_MAX = 1 << 30


class ClientConnection:
    """Implements the network's ``End``. Made by :func:`connect`."""

    def __init__(self, client_id: str, wire: Wire) -> None:
        self._client_id = client_id
        self._wire = wire
        self._framer = Framer(FRAME_BYTES_MAX)
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Message]]] = deque()
        self._correlation_id = 0
        self._lost: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._lost is None

    def send(self, request: Message, version: int) -> asyncio.Future[Message]:
        """Send; what comes back, or ``ConnectionError``."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        if self._lost is not None:
            answer.set_exception(ConnectionError(self._lost))
            return answer
        self._correlation_id += 1
        key = request.meta.key
        assert key is not None
        header = put_request_header(key, version, self._correlation_id, self._client_id)
        body = encode(request, version)
        self._waiting.append((self._correlation_id, key, version, answer))
        self._wire.send((len(header) + len(body)).to_bytes(4, "big") + header + body)
        return answer

    async def ask(self, request: Message, version: int, expected: type[R]) -> R:
        """Send and wait. :raises ConnectionError: it is lost"""
        answer = await self.wait(self.send(request, version))
        assert isinstance(answer, expected)
        return answer

    async def wait(self, answer: asyncio.Future[Message]) -> Message:
        """Wait for one answer.

        :raises ConnectionError: the connection is lost
        :raises ViolationError: it is not, and the broker never answers
        """
        try:
            return await asyncio.wait_for(asyncio.shield(answer), ANSWER_S_MAX)
        except TimeoutError:
            waiting = ", ".join(f"API {key} v{version}" for _, key, version, _ in self._waiting)
            raise ViolationError(f"{self._client_id}: no answer in {ANSWER_S_MAX} s to {waiting}") from None

    def close(self, reason: str = "closed by the client") -> None:
        """Give it up, with all that waits."""
        self._wire.close(reason)
        self.lost(reason)

    # From the network

    def data(self, data: bytes) -> None:
        """Bytes arrived."""
        self._framer.add(data)
        while (frame := self._framer.next()) is not None:
            correlation_id, key, version, answer = self._waiting.popleft()
            found, position = response_body_offset(memoryview(frame), key, version)
            assert found == correlation_id, f"answer {found} where {correlation_id} was due"
            message = decode(response_class(key), bytes(frame[position:]), version)
            if not answer.done():
                answer.set_result(message)

    def lost(self, reason: str) -> None:
        """The connection has gone: all that waits fails."""
        if self._lost is not None:
            return
        self._lost = reason
        while self._waiting:
            answer = self._waiting.popleft()[3]
            if not answer.done():
                answer.set_exception(ConnectionError(reason))
                answer.exception()  # who no longer waits for it is not warned


async def connect(network: Network, address: tuple[str, int], client_id: str) -> ClientConnection:
    """Connect. :raises ConnectionRefusedError: the broker is down"""
    made: list[ClientConnection] = []

    def end(wire: Wire) -> ClientConnection:
        made.append(ClientConnection(client_id, wire))
        return made[0]

    await network.connect(*address, end)
    return made[0]


async def connect_patiently(network: Network, address: tuple[str, int], client_id: str) -> ClientConnection:
    """Connect, as often as it takes."""
    backoff_s = 0.05
    while True:
        try:
            return await connect(network, address, client_id)
        except OSError:
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, 1.0)
