"""The limit on the memory of all connections together: it holds, and every connection makes progress."""

from __future__ import annotations

import contextlib
import socket
import threading
import tracemalloc

from blumfeld.spi.transport import Exchange, Limits
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    PATIENCE_S,
    Client,
    Handler,
    Net,
    eventually,
    framed,
)

MIB = 1 << 20
NEVER_MS = 600_000
STALL_MS = 150


def length(exchange: Exchange, frame: memoryview) -> None:
    """Answer with the length of the frame."""
    exchange.answer((b"%d" % len(frame),))


def send_what_is_taken(client: Client, data: bytes) -> int:
    """Send until the peer takes nothing for a while. Return the bytes that it took."""
    client.socket.settimeout(0.3)
    sent = 0
    try:
        while sent < len(data):
            sent += client.socket.send(memoryview(data)[sent : sent + MIB])
    except OSError:  # a time-out is an OSError too
        pass
    client.socket.settimeout(PATIENCE_S)
    return sent


class MemoryContract(TransportFixtures):
    """The part of the contract about ``Limits.request_memory_bytes_max`` and ``answer_memory_bytes_max``."""

    def test_unfinished_frames_are_bounded_together(self, net: Net) -> None:
        """At the limit only the oldest unfinished frame is read on. The bytes of the others stay in the kernel."""
        handler = Handler(length)
        limits = Limits(request_memory_bytes_max=4 * MIB, memory_stall_ms=NEVER_MS)
        port = net.listen(handler, limits)
        small = net.connect(port)
        small.send(b"warm")
        small.frame()
        data = framed(bytes(16 * MIB))[: 15 * MIB]
        tracemalloc.start()
        try:
            clients = [net.connect(port) for _ in range(6)]
            for client in clients:
                send_what_is_taken(client, data)
            small.send(b"small frames are served all the same")
            assert small.frame() == b"36"
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < (4 + 2 * 16 + 8) * MIB, (
            "the bound, one frame with the copy of its growth, and what arrived"
        )

    def test_every_frame_completes_under_a_bound_that_holds_none(self, net: Net) -> None:
        """Frames whose beginnings fill the memory complete one after the other, the oldest first: they don't wait for
        each other for ever.
        """
        handler = Handler(length)
        limits = Limits(request_memory_bytes_max=100_000, memory_stall_ms=NEVER_MS)
        port = net.listen(handler, limits)
        clients = [net.connect(port) for _ in range(5)]
        data = framed(bytes(3 * MIB))
        for client in clients:  # every frame begins before the first one ends
            client.socket.sendall(data[:70_000])
        assert eventually(lambda: len(handler.opened_connections) == 5)
        answers: list[bytes] = []

        def talk(client: Client) -> None:
            with contextlib.suppress(OSError, EOFError):  # an error shows as a missing answer below
                client.socket.sendall(data[70_000:])
                answers.append(client.frame())
                client.send(bytes(2 * MIB))
                answers.append(client.frame())

        threads = [threading.Thread(target=talk, args=(client,)) for client in reversed(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert sorted(answers) == [b"2097152"] * 5 + [b"3145728"] * 5

    def test_a_frame_that_stands_still_gives_way_to_those_that_wait(self, net: Net) -> None:
        """A client that announces a large frame and then sends nothing loses its connection, so that others get their
        turn.
        """
        handler = Handler(length)
        limits = Limits(request_memory_bytes_max=MIB, memory_stall_ms=STALL_MS)
        port = net.listen(handler, limits)
        stalled = [net.connect(port) for _ in range(3)]
        for client in stalled:
            client.socket.sendall(framed(bytes(8 * MIB))[:MIB])
        assert eventually(lambda: len(handler.opened_connections) == 3)
        served = net.connect(port)
        served.send(bytes(4 * MIB))
        assert served.frame() == b"4194304"
        # No connection waits any more, so one of the stalled ones may stay.
        assert eventually(lambda: len(handler.closed_reasons) >= 1)
        assert all("memory" in reason for _, reason in handler.closed_reasons)

    def test_a_frame_that_stands_still_stays_while_nobody_waits(self, net: Net) -> None:
        handler = Handler(length)
        limits = Limits(request_memory_bytes_max=MIB, memory_stall_ms=20)
        port = net.listen(handler, limits)
        client = net.connect(port)
        data = framed(bytes(8 * MIB))
        client.socket.sendall(data[:MIB])
        assert client.is_quiet(0.2)
        client.socket.sendall(data[MIB:])
        assert client.frame() == b"8388608"

    def test_a_connection_that_waits_for_memory_may_go(self, net: Net) -> None:
        """A connection that waits for memory may be lost. Its place in the queue is given up."""
        handler = Handler(length)
        limits = Limits(request_memory_bytes_max=100_000, memory_stall_ms=NEVER_MS)
        port = net.listen(handler, limits)
        clients = [net.connect(port) for _ in range(4)]
        data = framed(bytes(3 * MIB))
        for client in clients:
            client.socket.sendall(data[:200_000])
        assert eventually(lambda: len(handler.opened_connections) == 4)

        def abort() -> None:
            for connection in handler.opened_connections[:3]:
                connection.abort("the test says so")

        net.call(abort)
        assert handler.has_lost(3)
        survivor = {connection.peer_port for connection in handler.opened_connections[3:]}
        last = next(c for c in clients if c.socket.getsockname()[1] in survivor)
        last.socket.sendall(data[200_000:])
        assert last.frame() == b"3145728"

    def test_slow_readers_of_large_answers_are_bounded_together(self, net: Net) -> None:
        """When all connections together hold too many unsent bytes, those that take nothing are closed. Others are
        served.
        """

        def large(exchange: Exchange, frame: memoryview) -> None:
            exchange.answer((bytes(12 * MIB) if bytes(frame) == b"large" else b"small",))

        handler = Handler(large)
        limits = Limits(answer_memory_bytes_max=10 * MIB, memory_stall_ms=STALL_MS)
        port = net.listen(handler, limits)
        slow = [net.connect(port) for _ in range(4)]
        for client in slow:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            client.send(b"large")
        assert eventually(lambda: len(handler.closed_reasons) >= 2)
        assert all("memory" in reason for _, reason in handler.closed_reasons)
        prompt = net.connect(port)
        prompt.send(b"x")
        assert prompt.frame() == b"small"

    def test_a_slow_reader_that_reads_is_not_closed(self, net: Net) -> None:
        """A slow reader that does read keeps its connection. It is read from again once it has taken its answers."""
        handler = Handler(lambda exchange, frame: exchange.answer((bytes(12 * MIB),)))
        limits = Limits(answer_memory_bytes_max=MIB, memory_stall_ms=5_000)
        client = net.connect(net.listen(handler, limits))
        client.send(b"1", b"2", b"3")
        for _ in range(3):
            assert len(client.frame()) == 12 * MIB
        assert handler.closed_reasons == []

    def test_file_regions_hold_no_memory(self, net: Net) -> None:
        """File regions count as no memory: a consumer that lags is not a slow reader in this sense."""
        regions = [net.region(bytes(12 * MIB)) for _ in range(3)]
        handler = Handler(lambda exchange, frame: exchange.answer((b"head", regions[frame[0]])))
        port = net.listen(handler, Limits(answer_memory_bytes_max=MIB, memory_stall_ms=20))
        clients = [net.connect(port) for _ in regions]
        for nth, client in enumerate(clients):
            client.send(bytes([nth]))
        assert handler.has_started(3)
        threading.Event().wait(0.2)
        for client in clients:
            assert len(client.frame()) == 12 * MIB + 4
        assert handler.closed_reasons == []
