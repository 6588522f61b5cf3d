"""A TCP proxy between one client and a real ZooKeeper: it cuts, resets, and loses answers."""

from __future__ import annotations

import asyncio
import contextlib
import socket


class Proxy:
    """Forwards every connection of one client on the running loop."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._open = asyncio.Event()
        self._open.set()
        self._lose_answer = False
        self._connections: set[asyncio.Task[None]] = set()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._server = asyncio.ensure_future(asyncio.start_server(self._serve, sock=listening))

    async def stop(self) -> None:
        """End every connection."""
        (await self._server).close()
        connections = list(self._connections)
        self.disconnect()
        await asyncio.gather(*connections, return_exceptions=True)

    def cut(self) -> None:
        """Forward nothing until :meth:`heal`."""
        self._open.clear()

    def heal(self) -> None:
        """Forward again, first what waits."""
        self._open.set()

    def disconnect(self) -> None:
        """Reset every connection."""
        for connection in self._connections:
            connection.cancel()

    def lose_answer(self) -> None:
        """Reset the connection in place of the next answer to a request."""
        self._lose_answer = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        server_writer: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            server_reader, server_writer = await asyncio.open_connection(*self._target)
            ends = [
                asyncio.ensure_future(self._forward(reader, server_writer)),
                asyncio.ensure_future(self._forward_answers(server_reader, writer)),
            ]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the connection ends, whoever ended it
        finally:
            self._connections.discard(connection)
            for open_writer in (writer, server_writer):
                if open_writer is not None:
                    open_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._open.wait()
                writer.write(data)
                await writer.drain()

    async def _forward_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            greeted = False
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                await self._open.wait()
                xid = int.from_bytes(frame[:4], "big", signed=True)
                # The first frame of a connection is the session's; answers to pings and events have xids below 0.
                if greeted and xid > 0 and self._lose_answer:
                    self._lose_answer = False
                    return
                greeted = True
                writer.write(size + frame)
                await writer.drain()
