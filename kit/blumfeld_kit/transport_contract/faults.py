"""Clients that die, and a process without free descriptors: nothing leaks, and other clients are served."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from blumfeld.spi.transport import Limits
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    PATIENCE_S,
    Client,
    Handler,
    Net,
    echo,
    eventually,
    framed,
    hold_and_let_next_start,
)

LARGE = bytes(range(256)) * 4_000
PIECES = [b"\0", framed(b"small")[:-1], framed(LARGE)[:7], framed(LARGE)[:300_000], framed(b"x", LARGE)[:-1]]


def open_fds() -> set[str]:
    """Return the descriptors of this process."""
    return set(os.listdir("/proc/self/fd"))


def count_open_fds() -> int:
    """Return how many descriptors this process has, without those of garbage: the collector may close these at any
    time, and a test that counts again would miss them.
    """
    gc.collect()
    return len(open_fds())


@contextlib.contextmanager
def few_descriptors() -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Lower the limit of descriptors, and yield a context that uses up the rest. The limit stands before a transport
    listens, because a kernel may look at it when an accept is requested.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in open_fds())
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2 * highest, 256), hard))
    try:
        yield no_descriptors
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Use up every descriptor while the block lasts, so that nothing more can be opened."""
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(2))
        yield
    finally:
        for fd in taken:
            os.close(fd)


class FaultContract(TransportFixtures):
    """The part of the contract about faults. Where the system shows descriptors, the tests count that each one is
    closed.
    """

    @pytest.fixture(autouse=True)
    def _descriptors_are_told(self) -> None:
        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("this system doesn't tell the descriptors of a process")

    @pytest.mark.parametrize("sent", PIECES, ids=lambda sent: f"{len(sent)} bytes")
    def test_a_client_killed_within_a_frame_leaves_nothing(self, net: Net, sent: bytes) -> None:
        handler, other = net.serve()
        other.send(b"open")
        assert other.frame() == b"open"
        before = count_open_fds()
        client = net.connect(other.socket.getpeername()[1])
        client.socket.sendall(sent)
        other.send(b"y")
        assert other.frame() == b"y"
        client.reset()
        assert handler.has_lost(1)
        assert eventually(lambda: len(open_fds()) == before)
        other.send(LARGE)
        assert other.frame() == LARGE

    @pytest.mark.parametrize("sent", PIECES, ids=lambda sent: f"{len(sent)} bytes")
    def test_a_client_that_ends_within_a_frame_is_closed(self, net: Net, sent: bytes) -> None:
        handler, client = net.serve()
        assert eventually(lambda: len(handler.opened_connections) == 1)
        before = count_open_fds()
        client.socket.sendall(sent)
        client.socket.shutdown(1)
        if sent.startswith(framed(b"x")):
            assert client.frame() == b"x"
        assert client.is_closed()
        assert handler.has_lost(1)
        assert eventually(lambda: len(open_fds()) == before - 1)

    @pytest.mark.parametrize("of_file", [False, True], ids=["memory", "file"])
    def test_a_reset_while_answers_are_sent_leaves_nothing(self, net: Net, of_file: bool) -> None:
        handler, client = net.serve(hold_and_let_next_start, Limits(unsent_bytes_max=1 << 30))
        client.send(b"1", b"2", b"3")
        assert handler.has_started(3)
        data = bytes(8 << 20)
        before = count_open_fds()
        for exchange in handler.exchanges:
            net.answer(exchange, b"head", net.region(data) if of_file else data, b"tail")
        client.receive(100_000)
        client.reset()
        assert handler.has_lost(1)
        files = len(net.regions)
        assert eventually(lambda: len(open_fds()) == before - 2 + files)

    def test_an_abort_in_the_middle_of_everything_leaves_nothing(self, net: Net) -> None:
        """Nothing is left of clients that die in one turn, each with a large frame half received and a large answer
        half sent.
        """
        handler = Handler(hold_and_let_next_start)
        port = net.listen(handler, Limits(unsent_bytes_max=1 << 30))
        before = count_open_fds()
        clients = [Client(port) for _ in range(10)]
        for client in clients:
            client.send(b"x")
        assert handler.has_started(10)
        for client, exchange in zip(clients, handler.exchanges, strict=True):
            net.answer(exchange, bytes(8 << 20))
            client.socket.sendall(framed(LARGE)[:400_000])

        def abort() -> None:
            for connection in handler.opened_connections:
                connection.abort("the test says so")

        net.call(abort)
        assert handler.has_lost(10)
        for client in clients:
            client.socket.close()
        assert eventually(lambda: len(open_fds()) == before)

    def test_without_descriptors_others_are_served_and_who_waits_comes_later(self, net: Net) -> None:
        with few_descriptors() as none_left, socket.socket() as waiting:
            handler, client = net.serve(echo)
            client.send(b"before")
            assert client.frame() == b"before"
            waiting.settimeout(PATIENCE_S)
            with none_left():
                waiting.connect(client.socket.getpeername())
                for _ in range(3):
                    client.send(b"during")
                    assert client.frame() == b"during"
                assert client.is_quiet()
                assert len(handler.opened_connections) == 1
            waiting.sendall(framed(b"after"))
            assert waiting.recv(100) == framed(b"after")
        assert handler.has_lost(1)
        client.send(b"after")
        assert client.frame() == b"after"
