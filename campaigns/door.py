"""A door before a server, which is open, shut or mute."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

from blumfeld.testing.process import free_port

HOST = "127.0.0.1"
BYTES = 1 << 16
OPEN_S = 2.0
"""Time that a target has to take a connection."""


class Way(Enum):
    """How a door meets a client."""

    OPEN = "open"
    SHUT = "refuses connections"
    MUTE = "takes connections, and says nothing"


class Door:
    """A port that leads to a server. It runs in a thread."""

    def __init__(self, targets: Sequence[tuple[str, int]], host: str = HOST, port: int = 0) -> None:
        """:param targets: servers that do the same; each connection leads to one that takes it
        :param port: to listen on; a free one if none is given"""
        self.host, self.port = host, port or free_port()
        self._targets = tuple(targets)
        self._way = Way.OPEN
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="door", daemon=True)
        self._thread.start()
        self._run(self._listen())

    def set(self, way: Way) -> None:
        """Meet clients so from now on. Connections that are open end."""
        self._run(self._turn(way))

    def close(self) -> None:
        """End the thread."""
        self.set(Way.SHUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)

    async def _turn(self, way: Way) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        self._way = way
        if way is not Way.SHUT:
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self._way is Way.MUTE:
                while await reader.read(BYTES):
                    pass
                return
            with suppress(OSError):
                there, back = await self._open_target()
                self._writers.add(back)
                await self._carry(reader, writer, there, back)
                self._writers.discard(back)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _open_target(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a target; raise OSError if none takes the connection."""
        for host, port in random.sample(self._targets, len(self._targets)):
            with suppress(OSError, TimeoutError):
                return await asyncio.wait_for(asyncio.open_connection(host, port), OPEN_S)
        raise ConnectionRefusedError(f"none of {self._targets} takes a connection")

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        """Carry bytes both ways until either side ends."""
        await asyncio.gather(pump(reader, back), pump(there, writer))


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry bytes one way."""
    try:
        while data := await source.read(BYTES):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()
