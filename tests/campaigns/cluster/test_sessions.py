"""A door between a node and its ZooKeeper: it closes a session, or loses the answer of a multi."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from campaigns.cluster.sessions import CLOSE, MULTI, NoSessionError, Session, SessionDoor
from campaigns.door import HOST, Way

PASSWORD = b"p" * 16
SESSION = 7
GET = 4
GREETING = struct.pack(">iqiqi", 0, 0, 3000, 0, 16) + bytes(16) + b"\0"


class Server:
    """Makes session 7 for each connection, answers each request with its xid, and remembers the types."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._listening = socket.create_server((HOST, 0))
        self.address = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            head = stream.read(4)
            if head == b"srvr":
                connection.sendall(b"Zookeeper version: 3.8.4")
                return
            stream.read(*struct.unpack(">i", head))
            send(connection, struct.pack(">iiqi", 0, 3000, SESSION, 16) + PASSWORD + b"\0")
            while len(head := stream.read(4)) == 4:
                xid, kind = struct.unpack_from(">ii", stream.read(*struct.unpack(">i", head)))
                self.seen.append(kind)
                send(connection, struct.pack(">iqi", xid, 1, 0))


def send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(struct.pack(">i", len(frame)) + frame)


def read(connection: socket.socket) -> bytes:
    """Return the next frame; nothing if the connection has ended."""
    with connection.makefile("rb") as stream:
        try:
            head = stream.read(4)
            return stream.read(*struct.unpack(">i", head)) if head else b""
        except ConnectionResetError:
            return b""


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def door(server: Server) -> Iterator[SessionDoor]:
    door = SessionDoor([server.address], HOST, 0)
    yield door
    door.close()


def greeted(door: SessionDoor) -> socket.socket:
    """Return a connection with a session."""
    connection = socket.create_connection((door.host, door.port), 5)
    send(connection, GREETING)
    assert struct.unpack_from(">iiq", read(connection))[2] == SESSION
    return connection


def test_requests_and_answers_pass_an_open_door(door: SessionDoor, server: Server) -> None:
    with greeted(door) as connection:
        for xid, kind in ((1, GET), (2, MULTI)):
            send(connection, struct.pack(">ii", xid, kind))
            assert struct.unpack_from(">i", read(connection)) == (xid,)
    assert server.seen == [GET, MULTI]
    assert door.session == Session(SESSION, PASSWORD)


def test_what_is_no_frame_passes_too(door: SessionDoor) -> None:
    with socket.create_connection((door.host, door.port), 5) as connection:
        connection.sendall(b"srvr")
        with connection.makefile("rb") as stream:
            assert stream.read() == b"Zookeeper version: 3.8.4"


def test_a_lost_multi_reaches_the_server_and_its_answer_nobody(door: SessionDoor, server: Server) -> None:
    door.lose_next_multi()
    with greeted(door) as connection:
        send(connection, struct.pack(">ii", 1, GET))
        assert struct.unpack_from(">i", read(connection)) == (1,)
        send(connection, struct.pack(">ii", 2, MULTI))
        send(connection, struct.pack(">ii", 3, GET))
        assert read(connection) == b""
    assert door.lost.is_set()
    assert server.seen == [GET, MULTI]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((door.host, door.port), 5)
    door.set(Way.OPEN)
    greeted(door).close()


def test_a_session_is_closed_by_its_id_and_password(door: SessionDoor, server: Server) -> None:
    with pytest.raises(NoSessionError, match="the node has no session"):
        door.close_session()
    with greeted(door):
        door.close_session()
    assert server.seen == [CLOSE]
