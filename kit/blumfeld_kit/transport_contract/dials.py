"""Connections that the node opens, and the byte layer that any connection may have."""

from __future__ import annotations

import random
import threading

import pytest

from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import Exchange, Limits
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    Handler,
    Net,
    Receiver,
    XorLayer,
    echo,
    eventually,
    framed,
    xor,
)


class DialContract(TransportFixtures):
    """The part of the contract about connections that the node opens."""

    def test_frames_go_both_ways(self, net: Net) -> None:
        handler, receiver = Handler(), Receiver()
        port = net.listen(handler)
        dialled = net.run(net.transport.dial("127.0.0.1", port, receiver, Limits()))
        data = bytes(range(256)) * 10_000

        def send_three() -> None:
            dialled.send([b"one"])
            dialled.send([b"t", net.region(data), b"o"])
            dialled.send([])

        def send_and_close() -> None:
            dialled.send([b"last"])
            dialled.close()

        net.call(send_three)
        assert eventually(lambda: len(receiver.frames) == 3)
        assert receiver.frames == [b"one", b"t" + data + b"o", b""]
        net.call(send_and_close)
        assert eventually(lambda: len(receiver.lost_reasons) == 1)
        assert handler.has_lost(1)
        assert handler.frames[-1] == b"last"

    def test_a_received_frame_stays_unchanged_until_the_end_of_the_turn(self, net: Net) -> None:
        """A follower writes it to its log without a copy, at the end of the turn."""
        kept: list[tuple[memoryview, bytes]] = []
        spoiled: list[bytes] = []

        def check() -> None:
            spoiled.extend(copy for view, copy in kept if bytes(view) != copy)
            kept.clear()

        class Keeper(Receiver):
            def frame(self, frame: memoryview) -> None:
                assert not frame.readonly
                frame[:1] = b"!"
                if not kept:
                    net.runtime.at_end_of_turn(Phase.WRITE, check)
                kept.append((frame, bytes(frame)))
                super().frame(frame)

        receivers = [Keeper() for _ in range(4)]
        port = net.listen(Handler(echo))
        dialled = [
            net.run(net.transport.dial("127.0.0.1", port, receiver, Limits())) for receiver in receivers
        ]
        for size in (10, 3_000, 100_000):

            def send(size: int = size) -> None:
                for nth, connection in enumerate(dialled):
                    for _ in range(3):
                        connection.send([bytes([65 + nth]) * size])

            net.call(send)
        assert eventually(lambda: all(len(receiver.frames) == 9 for receiver in receivers))
        assert spoiled == []

    def test_a_lost_connection_is_told_once_and_only_releases(self, net: Net) -> None:
        handler, receiver = Handler(), Receiver()
        port = net.listen(handler)
        dialled = net.run(net.transport.dial("localhost", port, receiver, Limits()))
        assert eventually(lambda: len(handler.opened_connections) == 1)
        net.call(lambda: handler.opened_connections[0].abort("the test says so"))
        assert eventually(lambda: len(receiver.lost_reasons) == 1)
        net.call(lambda: dialled.send([net.region(b"nobody")]))
        net.call(dialled.close)
        assert len(receiver.lost_reasons) == 1

    def test_nobody_there_raises(self, net: Net) -> None:
        port = net.listen(Handler())
        net.run(net.transport.stop(0))
        with pytest.raises((OSError, RuntimeError)):
            net.run(net.transport.dial("127.0.0.1", port, Receiver(), Limits()))


class ByteLayerContract(TransportFixtures):
    """The part of the contract about byte layers, which TLS will use."""

    def test_everything_passes_through_the_layer(self, net: Net) -> None:
        data = random.Random(1).randbytes(700_000)

        def answer(exchange: Exchange, frame: memoryview) -> None:
            assert not frame.readonly
            exchange.answer([bytes(frame), net.region(data), net.region(b""), b"end"])

        handler = Handler(answer)
        client = net.connect(net.listen(handler, byte_layer=XorLayer))
        client.socket.sendall(b"hel")
        client.socket.sendall(b"lo" + xor(framed(b"a")))
        assert client.receive(5) == b"hello"
        sent = [b"a", b"b" * 200_000, b"", b"c"]
        sender = threading.Thread(target=lambda: client.socket.sendall(xor(framed(*sent[1:]))))
        sender.start()
        for body in sent:
            expected = framed(body + data + b"end")
            assert client.receive(len(expected)) == xor(expected)
        sender.join()
        client.socket.shutdown(1)
        assert client.receive(3) == b"bye"
        assert client.is_closed()

    def test_a_broken_layer_closes_the_connection(self, net: Net) -> None:
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=XorLayer))
        client.socket.sendall(b"GET / HTTP/1.1")
        with pytest.raises(EOFError):
            client.receive(10)
        assert handler.has_lost(1)

    def test_both_ends_may_have_one(self, net: Net) -> None:
        class Greeter(XorLayer):
            def __init__(self) -> None:
                super().__init__()
                self._first = True

            def to_send(self, plain: bytes | memoryview) -> bytes:
                first, self._first = self._first, False
                return (self.GREETING if first else b"") + super().to_send(plain)

            def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
                return super().received(data)[0], b""

        receiver = Receiver()
        port = net.listen(Handler(echo), byte_layer=XorLayer)
        dialled = net.run(net.transport.dial("127.0.0.1", port, receiver, Limits(), Greeter))
        net.call(lambda: dialled.send([b"x"]))
        net.call(lambda: dialled.send([b"x" * 50_000]))
        assert eventually(lambda: receiver.frames == [b"x", b"x" * 50_000])
