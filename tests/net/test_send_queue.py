"""What a send queue hands to its socket."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.net.readiness.streams import SocketSendQueue
from blumfeld.net.send_queue import JOIN_BYTES_MAX


class Taking:
    """A socket that takes everything, and keeps what it was given."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def send(self, data: Any) -> int:
        self.taken.append(data)
        return len(data)

    def sendmsg(self, parts: list[Any]) -> int:
        self.taken += parts
        return sum(map(len, parts))


@pytest.mark.parametrize("size", [100, JOIN_BYTES_MAX + 1])
def test_an_answer_in_one_piece_is_not_copied(size: int) -> None:
    sock: Any = Taking()
    piece = memoryview(bytearray(size))
    assert not SocketSendQueue(sock, None).send([piece], size, False)  # type: ignore[arg-type]
    assert sock.taken == [piece]
    assert sock.taken[0] is piece


def test_large_pieces_are_not_joined() -> None:
    sock: Any = Taking()
    pieces = [b"size", bytes(JOIN_BYTES_MAX)]
    assert not SocketSendQueue(sock, None).send(list(pieces), 4 + JOIN_BYTES_MAX, False)  # type: ignore[arg-type]
    assert all(taken is piece for taken, piece in zip(sock.taken, pieces, strict=True))
