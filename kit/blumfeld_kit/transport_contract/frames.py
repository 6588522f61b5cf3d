"""Frames in, answers out: how frames are cut, and how long they last."""

from __future__ import annotations

import random
import threading
import tracemalloc
from contextlib import nullcontext

import pytest

from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import Exchange, Limits
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import Client, Handler, Net, eventually, framed

SIZE_IN_ONE_TURN_MAX = 3_000
"""Three frames of this size fit into every socket's buffers, though nothing reads them yet."""


class FrameContract(TransportFixtures):
    """The part of the contract about frames and answers."""

    def test_a_frame_is_answered(self, net: Net) -> None:
        handler, client = net.serve()
        client.send(b"one")
        assert client.frame() == b"one"
        assert handler.frames == [b"one"]

    def test_an_empty_frame_is_a_frame(self, net: Net) -> None:
        _, client = net.serve()
        client.send(b"", b"x", b"")
        assert [client.frame() for _ in range(3)] == [b"", b"x", b""]

    def test_many_frames_in_one_segment_are_answered_in_order(self, net: Net) -> None:
        _, client = net.serve()
        bodies = [b"%d" % n * (n % 40) for n in range(500)]
        client.send(*bodies)
        assert [client.frame() for _ in bodies] == bodies

    def test_frames_may_come_byte_by_byte(self, net: Net) -> None:
        handler, client = net.serve()
        for byte in framed(b"abc", b"", b"defgh"):
            client.socket.sendall(bytes([byte]))
        assert [client.frame() for _ in range(3)] == [b"abc", b"", b"defgh"]
        assert handler.frames == [b"abc", b"", b"defgh"]

    def test_frames_may_be_cut_anywhere(self, net: Net) -> None:
        """A frame may arrive in pieces of any size, from several clients at once."""
        chance = random.Random(7)
        port = net.listen(Handler())

        def talk(seed: int) -> None:
            own = random.Random(seed)
            bodies = [own.randbytes(own.choice((0, 3, 100, 5_000, 20_000, 300_000))) for _ in range(12)]
            client, data, at = Client(port), framed(*bodies), 0

            def check_answers() -> None:
                wrong.extend(body for body in bodies if client.frame() != body)

            try:
                checker = threading.Thread(target=check_answers)
                checker.start()
                while at < len(data):
                    size = own.choice((1, 2, 3, 4, 5, 1_000, 50_000, 200_000))
                    client.socket.sendall(data[at : at + size])
                    at += size
                checker.join()
            finally:
                client.socket.close()

        wrong: list[bytes] = []
        threads = [threading.Thread(target=talk, args=(chance.randrange(1 << 30),)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_a_frame_at_the_limit_passes(self, net: Net) -> None:
        _, client = net.serve(limits=Limits(frame_bytes_max=100_000))
        client.send(b"x" * 100_000)
        assert client.frame() == b"x" * 100_000

    @pytest.mark.parametrize("size", [b"\0\0\0\x65", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff"])
    def test_a_frame_that_is_too_large_or_negative_closes_the_connection(self, net: Net, size: bytes) -> None:
        handler, client = net.serve(limits=Limits(frame_bytes_max=100))
        client.send(b"fine")
        assert client.frame() == b"fine"
        client.socket.sendall(size)
        assert client.is_closed()
        assert handler.has_lost(1)
        assert handler.frames == [b"fine"]

    def test_memory_is_taken_as_bytes_arrive_not_as_announced(self, net: Net) -> None:
        handler, client = net.serve()
        client.send(b"warm")
        client.frame()
        tracemalloc.start()
        try:
            for _ in range(3):
                other = net.connect(client.socket.getpeername()[1])
                other.socket.sendall((100 << 20).to_bytes(4, "big") + bytes(100_000))
            assert eventually(lambda: len(handler.opened_connections) == 4)
            for _ in range(10):  # several turns of the loop, in which the other clients are read
                client.send(b"next")
                assert client.frame() == b"next"
            assert other.is_quiet()
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()

    def test_a_frame_is_writable_and_stays_unchanged_until_the_end_of_the_turn(self, net: Net) -> None:
        kept: list[tuple[memoryview, bytes]] = []
        spoiled: list[bytes] = []

        def check() -> None:
            spoiled.extend(copy for view, copy in kept if bytes(view) != copy)
            kept.clear()

        def keep(exchange: Exchange, frame: memoryview) -> None:
            assert not frame.readonly
            frame[:1] = b"!"
            if not kept:
                net.runtime.at_end_of_turn(Phase.WRITE, check)
            kept.append((frame, bytes(frame)))
            exchange.answer([bytes(frame[:1])])

        handler = Handler(keep)
        port = net.listen(handler)
        clients = [net.connect(port) for _ in range(8)]
        # After the first round each connection is accepted: in the second, all frames arrive in one turn.
        for size in (10, 10, 3_000, 100_000):
            with net.held() if size <= SIZE_IN_ONE_TURN_MAX else nullcontext():
                for nth, client in enumerate(clients):
                    client.send(*[bytes([65 + nth]) * size] * 3)
            for client in clients:
                assert [client.frame() for _ in range(3)] == [b"!"] * 3
        assert spoiled == []
        assert len(handler.frames) == 96

    def test_the_handler_hears_of_a_connection_before_and_after(self, net: Net) -> None:
        handler, client = net.serve()
        client.send(b"x")
        client.frame()
        (connection,) = handler.opened_connections
        assert (connection.peer_host, connection.peer_port) == client.socket.getsockname()
        assert connection.listener.name == "PLAINTEXT"
        assert connection.state is None
        assert handler.exchanges[0].connection is connection
        client.socket.close()
        assert eventually(lambda: [c for c, _ in handler.closed_reasons] == [connection])

    def test_each_listener_has_its_own_handler(self, net: Net) -> None:
        first, second = Handler(), Handler()
        ports = net.listen(first, name="ONE"), net.listen(second, name="TWO")
        for port, body in zip(ports, (b"1", b"2"), strict=True):
            client = net.connect(port)
            client.send(body)
            assert client.frame() == body
        assert (first.frames, second.frames) == ([b"1"], [b"2"])
        assert second.opened_connections[0].listener.name == "TWO"
        assert len({c.id for h in (first, second) for c in h.opened_connections}) == 2
