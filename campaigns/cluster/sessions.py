"""The sessions of nodes with their ZooKeeper, each through a door: a session ends at once, or in the middle of a multi.

A door reads ZooKeeper's frames: a length, and then what a client asks or a server answers. The first of each way makes
the session; each later one begins with the request's xid.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import attrs

from campaigns.door import Door, Way, pump

MULTI, CLOSE = 14, -11
"""Types of requests."""
FRAME_BYTES_MAX = 1 << 24
"""A longer frame is none: four letters (``srvr``) ask a server how it is, and the answer is text."""
LOST_S = 20.0
"""Longest wait for the multi that is to be lost."""
ASK_S = 5.0
_LENGTH = struct.Struct(">i")
_CONNECT = struct.Struct(">iqiqi")
"""Protocol, last zxid, timeout, session, length of the password."""
_CONNECTED = struct.Struct(">iiqi")
"""Protocol, timeout, session, length of the password."""
_REQUEST = struct.Struct(">ii")
"""Xid and type."""


class NoSessionError(Exception):
    """A session could not be ended as it should; the message says why."""


@attrs.frozen
class Session:
    """A session by its id and its password: a client that knows both may close it."""

    id: int
    password: bytes


@attrs.define
class _Line:
    """One connection of a node."""

    greeted: bool = False
    lost_xid: int | None = None


class SessionDoor(Door):
    """The door between a node and its ZooKeeper."""

    def __init__(self, targets: Sequence[tuple[str, int]], host: str, port: int) -> None:
        self.session: Session | None = None
        """The node's last one."""
        self.lost = threading.Event()
        """The answer of a multi has come and was swallowed."""
        self._is_armed = False
        super().__init__(targets, host, port)

    def lose_next_multi(self) -> None:
        """Carry the node's next multi to the server and nothing behind it, swallow its answer, and shut the door."""
        self.lost.clear()
        self._is_armed = True

    def close_session(self) -> None:
        """Close the node's session as another client that knows its password.

        :raises NoSessionError: no server takes it
        """
        session = self.session
        if session is None:
            raise NoSessionError("the node has no session")
        for address in self._targets:
            with suppress(OSError), socket.create_connection(address, ASK_S) as connection:
                ask = _CONNECT.pack(0, 0, 0, session.id, len(session.password)) + session.password + b"\0"
                connection.settimeout(ASK_S)
                connection.sendall(_framed(ask))
                answer = _read(connection)
                if _CONNECTED.unpack_from(answer)[2] != session.id:
                    raise NoSessionError(f"session {session.id:#x} was over already")
                connection.sendall(_framed(_REQUEST.pack(1, CLOSE)))
                _read(connection)
                return
        raise NoSessionError(f"none of {self._targets} takes session {session.id:#x}")

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        line = _Line()
        await asyncio.gather(self._requests(reader, back, line), self._answers(there, writer, line))

    async def _requests(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, line: _Line) -> None:
        greeted = False
        async for frame in _frames(source, sink):
            if line.lost_xid is not None:
                continue
            if greeted and self._is_armed:
                xid, kind = _REQUEST.unpack_from(frame)
                if kind == MULTI:
                    self._is_armed, line.lost_xid = False, xid
            greeted = True
            sink.write(_framed(frame))
            await sink.drain()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, line: _Line) -> None:
        async for frame in _frames(source, sink):
            if not line.greeted:
                line.greeted = True
                _, _, session, length = _CONNECTED.unpack_from(frame)
                if session:
                    password = frame[_CONNECTED.size : _CONNECTED.size + length]
                    self.session = Session(session, password)
            elif line.lost_xid is not None:
                if _LENGTH.unpack_from(frame)[0] == line.lost_xid:
                    self.lost.set()
                    await self._turn(Way.SHUT)
                continue
            sink.write(_framed(frame))
            await sink.drain()


async def _frames(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> AsyncIterator[bytes]:
    """Yield the frames of a stream until it ends. A stream without frames is carried as it is."""
    try:
        while True:
            head = await source.readexactly(_LENGTH.size)
            (length,) = _LENGTH.unpack(head)
            if not 0 <= length <= FRAME_BYTES_MAX:
                sink.write(head)
                await pump(source, sink)
                return
            yield await source.readexactly(length)
    except asyncio.IncompleteReadError:
        return
    finally:
        sink.close()


def _framed(frame: bytes) -> bytes:
    return _LENGTH.pack(len(frame)) + frame


def _read(connection: socket.socket) -> bytes:
    """Return the next frame.

    :raises OSError: the connection ended
    """
    with connection.makefile("rb") as stream:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            raise ConnectionResetError("the server closed the connection")
        return stream.read(_LENGTH.unpack(head)[0])
