"""net_uring sends: silently if it can, and nothing is lost when the socket takes only a part."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.transport import Exchange, Limits
from blumfeld.testing.transport_contract.kit import Client, Handler, Net, eventually, framed
from blumfeld_net_uring.loop import new_loop
from blumfeld_net_uring.probe import probe
from blumfeld_net_uring.sending import RING_SEND_BYTES_MAX, UringSendQueue
from blumfeld_net_uring.transport import UringTransport
from tests.plugins.net_asyncio_tools import NoLog

pytestmark = pytest.mark.skipif(not probe().silent_send, reason="this kernel has no silent sends")

ANSWER = bytes(range(250)) * 240
"""As much as the ring sends at once."""


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    net = Net(lambda runtime: UringTransport(runtime, NoLog()), new_loop, tmp_path)
    net.start()
    yield net
    net.finish()
    assert net.defects == []


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """(result, silent) of the completions of sends that were looked at."""
    completed = UringSendQueue.completed
    seen: list[tuple[int, bool]] = []

    def spy(self: UringSendQueue, result: int) -> None:
        seen.append((result, self.silent is not None))
        completed(self, result)

    monkeypatch.setattr(UringSendQueue, "completed", spy)
    return seen


def slow_client(net: Net, handler: Handler) -> Client:
    """One that doesn't read for a while. What the kernel takes meanwhile is some megabytes."""
    return net.connect(net.listen(handler, Limits(unsent_bytes_max=1 << 30)))


def test_what_is_taken_at_once_gives_no_completion(net: Net, told: list[tuple[int, bool]]) -> None:
    _, client = net.serve()
    for _ in range(20):
        client.send(b"x")
        assert client.frame() == b"x"
    assert told == []


def test_a_part_is_told_and_the_rest_follows(net: Net, told: list[tuple[int, bool]]) -> None:
    assert len(ANSWER) + 4 <= RING_SEND_BYTES_MAX

    def answer(exchange: Exchange, frame: memoryview) -> None:
        exchange.answer([bytes(frame) + ANSWER])

    handler = Handler(answer)
    client = slow_client(net, handler)
    sent = 0
    while not told:  # until the socket is full: each request has a turn of its own
        client.send(b"%03d" % sent)
        sent += 1
        assert handler.has_started(sent)
    assert told[0][1]
    assert told[0][0] < len(ANSWER)
    for nth in range(sent):
        assert client.frame() == b"%03d" % nth + ANSWER


def test_closing_waits_for_what_was_sent_silently(net: Net, told: list[tuple[int, bool]]) -> None:
    """It counts as sent until a completion says otherwise; the connection must not be closed on that word."""

    def answer_and_close(exchange: Exchange, frame: memoryview) -> None:
        exchange.connection._socket.setsockopt(  # type: ignore[attr-defined]
            socket.SOL_SOCKET, socket.SO_SNDBUF, 1
        )
        exchange.answer([ANSWER])
        exchange.connection.close("enough")

    handler = Handler(answer_and_close)
    port = net.listen(handler)
    with socket.socket() as client:
        client.settimeout(5.0)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        client.connect(("127.0.0.1", port))
        client.sendall(framed(b"x"))
        assert eventually(lambda: len(told) > 0)
        assert told[0][1]
        assert told[0][0] < len(ANSWER)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        received = b"".join(iter(lambda: client.recv(1 << 20), b""))
    assert received == framed(ANSWER)
    assert handler.has_lost(1)


def test_a_reset_is_told_by_the_send(net: Net) -> None:
    handler, client = net.serve(lambda exchange, frame: None)
    client.send(b"x", b"y")
    assert handler.has_started(1)
    client.reset()
    net.answer(handler.exchanges[0], b"nobody")
    assert handler.has_lost(1)
    assert eventually(lambda: not net.transport._table.connections)  # type: ignore[attr-defined]
