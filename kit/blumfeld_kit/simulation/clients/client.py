"""One client connection of the simulation: the client on a loop, over the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from blumfeld.client.asyncio_connection import AsyncioConnection
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.network.network import End, Wire

R = TypeVar("R", bound=Message)

ANSWER_S_MAX = 60.0
"""Longer than any request here may take once nothing stands between the client and the broker."""
PATIENCE_S = 20.0
"""Time after which a client looks whether an answer can still come. It gives the connection up, as a client does after
its request timeout, if trouble stands between it and the broker now, or if the broker's end of the connection is gone:
a power cut is silent. Trouble that is over excuses nothing: the bytes have arrived since, so the broker owes an answer.
"""
FRAME_BYTES_MAX = 1 << 30


class Reach(Protocol):
    """The network as one client machine reaches it: a ``Network``, or its view from an address."""

    loop: asyncio.AbstractEventLoop

    async def connect(self, host: str, port: int, end: Callable[[Wire], End]) -> Wire:
        """Connect from this machine. :raises OSError: refused, or no answer"""
        ...


class ClientConnection:
    """Implements the network's ``End``. Made by :func:`connect`."""

    def __init__(self, client_id: str, wire: Wire, network: Reach) -> None:
        self._client_id = client_id
        self._network = network
        self._wire = wire
        self._client = _Strict(client_id, wire.send, frame_bytes_max=FRAME_BYTES_MAX)

    @property
    def peer_host(self) -> str:
        """The address of the other machine."""
        return self._wire.peer.site.name

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._client.is_open

    def send(self, request: Message, version: int) -> asyncio.Future[Message]:
        """Send a request. The future gets its answer, or ``ConnectionError``."""
        return self._client.send(request, version)

    async def ask(self, request: Message, version: int, expected: type[R]) -> R:
        """Send a request and wait for its answer. :raises ConnectionError: the connection is lost"""
        answer = await self.wait(self.send(request, version))
        assert isinstance(answer, expected)
        return answer

    async def wait(self, answer: asyncio.Future[Message]) -> Message:
        """Wait for one answer.

        :raises ConnectionError: the connection is lost, or no answer can come now
        :raises ViolationError: an answer could come all the time, and the broker never answers
        """
        wire, loop = self._wire, self._network.loop
        began_s = owed_since_s = loop.time()
        while loop.time() - owed_since_s < ANSWER_S_MAX:
            done, _ = await asyncio.wait((answer,), timeout=PATIENCE_S)
            if done:
                return answer.result()
            calm_since_s = wire.calm_since_s
            if calm_since_s is not None:
                owed_since_s = max(began_s, calm_since_s)
            if calm_since_s is None or wire.peer_is_gone:
                self._wire.reset("no answer within the client's request timeout")
                self.close()
                raise ConnectionError("no answer within the request timeout")
        waiting = ", ".join(f"API {each.api_key} v{each.version}" for each in self._client.state.end())
        raise ViolationError(f"{self._client_id}: no answer in {ANSWER_S_MAX} s to {waiting}")

    def close(self, reason: str = "closed by the client") -> None:
        """Close the connection. Every waiting request fails."""
        self._wire.close(reason)
        self._client.close(reason)

    # From the network

    def data(self, data: bytes) -> None:
        """Take bytes that arrived."""
        self._client.data_received(data)

    def lost(self, reason: str) -> None:
        """Fail every waiting request: the connection is lost."""
        self._client.close(reason)


class _Strict(AsyncioConnection):
    """A client that reports a malformed answer as a bug of the broker."""

    def broke_protocol(self, error: DecodeError) -> None:
        raise ViolationError(f"a broken answer: {error}") from error


async def connect(network: Reach, address: tuple[str, int], client_id: str) -> ClientConnection:
    """Connect. :raises OSError: the broker is down, or can't be reached"""
    made: list[ClientConnection] = []

    def end(wire: Wire) -> ClientConnection:
        made.append(ClientConnection(client_id, wire, network))
        return made[0]

    await network.connect(*address, end)
    return made[0]
