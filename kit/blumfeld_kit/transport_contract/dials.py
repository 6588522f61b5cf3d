"""Connections that the node opens, and the byte layer that any connection may have."""

from __future__ import annotations

import errno
import random
import threading

import pytest

from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import Exchange, Limits
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    CountedRegion,
    CountingLayer,
    Handler,
    Net,
    Receiver,
    SlowLayer,
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
    """The part of the contract about byte layers, which TLS uses."""

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

    def test_a_layer_is_attached_before_its_first_bytes_and_detached_at_the_end(self, net: Net) -> None:
        layers: list[XorLayer] = []

        def made() -> XorLayer:
            layers.append(XorLayer())
            return layers[-1]

        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=made))
        assert eventually(lambda: len(handler.opened_connections) == 1)
        connection = handler.opened_connections[0]
        assert connection.layer is layers[0]
        assert (layers[0].attached, layers[0].detached) == (1, 0)
        client.socket.sendall(b"hello" + xor(framed(b"a")))
        assert client.receive(10) == b"hello" + xor(framed(b"a"))
        client.reset()
        assert handler.has_lost(1)
        assert (layers[0].attached, layers[0].detached) == (1, 1)
        net.call(layers[0].resume)  # it does nothing
        assert handler.frames == [b"a"]

    def test_a_connection_without_a_layer_has_none(self, net: Net) -> None:
        handler, client = net.serve()
        client.send(b"a")
        assert client.frame() == b"a"
        assert handler.opened_connections[0].layer is None

    def test_nothing_is_read_while_a_layer_works_elsewhere(self, net: Net) -> None:
        layer = SlowLayer()
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"he")
        assert eventually(lambda: layer.calls == [b"he"])
        client.socket.sendall(b"llo" + xor(framed(b"a", b"b")))
        assert client.is_quiet()
        assert layer.calls == [b"he"]
        net.call(layer.finish)
        assert client.receive(5 + 10) == b"hello" + xor(framed(b"a", b"b"))
        assert layer.calls[1] == b""
        assert handler.frames == [b"a", b"b"]

    def test_bytes_of_a_resumed_layer_start_requests_and_are_sent(self, net: Net) -> None:
        layer = SlowLayer()
        client = net.connect(net.listen(Handler(), byte_layer=lambda: layer))
        for nth in range(3):
            client.socket.sendall((b"" if nth else b"hello") + xor(framed(b"%d" % nth)))
            assert eventually(lambda: layer.waiting)
            net.call(lambda: layer.finish(stay_slow=True))
            expected = (b"" if nth else b"hello") + xor(framed(b"%d" % nth))
            assert client.receive(len(expected)) == expected

    def test_requests_are_served_although_the_peer_ended_while_the_layer_worked(self, net: Net) -> None:
        """A producer with acks=0 sends, and is gone."""
        layer = SlowLayer()
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"hello" + xor(framed(b"a")))
        client.socket.shutdown(1)
        assert eventually(lambda: layer.waiting)
        assert client.is_quiet()
        net.call(layer.finish)
        expected = b"hello" + xor(framed(b"a")) + b"bye"
        assert client.receive(len(expected)) == expected
        assert client.is_closed()
        assert handler.frames == [b"a"]

    def test_a_muted_connection_starts_nothing_that_a_resumed_layer_brings(self, net: Net) -> None:
        layer = SlowLayer()
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"hello" + xor(framed(b"a")))
        assert eventually(lambda: layer.waiting)

        def mute_and_finish() -> None:
            handler.opened_connections[0].mute(net.runtime.monotonic_ms() + 80)
            layer.finish()

        net.call(mute_and_finish)
        assert client.receive(5) == b"hello"  # the layer's own bytes are sent
        assert client.is_quiet()
        assert handler.frames == []
        assert client.receive(5) == xor(framed(b"a"))

    def test_a_closing_connection_takes_nothing_from_a_resumed_layer(self, net: Net) -> None:
        layer = SlowLayer()
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"hello" + xor(framed(b"a")))
        assert eventually(lambda: layer.waiting)

        def close_and_finish() -> None:
            handler.opened_connections[0].close("the test says so")
            layer.finish()

        net.call(close_and_finish)
        assert client.receive(8) == b"hellobye"
        assert client.is_closed()
        assert handler.has_lost(1)
        assert handler.frames == []

    def test_a_resumed_layer_that_is_broken_closes_the_connection(self, net: Net) -> None:
        layer = SlowLayer()
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"GET / HTTP/1.1")
        assert eventually(lambda: layer.waiting)
        net.call(layer.finish)
        assert client.receive(3) == b"bye"
        assert client.is_closed()
        assert handler.has_lost(1)
        assert "no greeting" in handler.closed_reasons[0][1]

    def test_a_large_frame_passes_a_slow_layer(self, net: Net) -> None:
        layer = SlowLayer()
        layer.slow = False
        handler = Handler()
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        body = random.Random(2).randbytes(300_000)
        client.socket.sendall(b"hello" + xor(framed(body)[:250_000]))
        assert client.receive(5) == b"hello"

        def turn_slow() -> None:
            layer.slow = True

        net.call(turn_slow)
        client.socket.sendall(xor(framed(body)[250_000:]))
        assert eventually(lambda: layer.waiting)

        def mute_and_finish() -> None:
            handler.opened_connections[0].mute(net.runtime.monotonic_ms() + 80)
            layer.finish()

        net.call(mute_and_finish)
        assert client.is_quiet()
        assert handler.frames == []
        assert client.receive(300_004) == xor(framed(body))

    def test_a_layer_is_handed_large_answers_in_pieces(self, net: Net) -> None:
        """Encryption is work on the loop."""
        layer = CountingLayer()
        data = random.Random(3).randbytes(3_000_000)
        handler = Handler(lambda exchange, frame: exchange.answer([data, b"x", net.region(data)]))
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"hello" + xor(framed(b"a")))
        expected = b"hello" + xor(framed(data + b"x" + data))
        assert client.receive(len(expected)) == expected
        assert max(layer.pieces) <= 1 << 18

    def test_small_parts_reach_the_layer_together(self, net: Net) -> None:
        """Each call makes a record, and a record costs 22 bytes and a system call."""
        layer = CountingLayer()
        handler = Handler(lambda exchange, frame: exchange.answer([b"a", net.region(b"bcd"), b"e"]))
        client = net.connect(net.listen(handler, byte_layer=lambda: layer))
        client.socket.sendall(b"hello" + xor(framed(b"x")))
        assert client.receive(14) == b"hello" + xor(framed(b"abcde"))
        assert layer.pieces == [9]

    @pytest.mark.parametrize("fault", ["shorter than its region", "unreadable"])
    def test_a_bad_file_behind_a_layer_ends_the_connection(self, net: Net, fault: str) -> None:
        """Its region is released once, and no part of the answer is sent."""
        region = net.region(b"short")
        assert isinstance(region, CountedRegion)
        if fault == "unreadable":

            def pread(offset: int = 0, size: int | None = None) -> bytes:
                raise OSError(errno.EIO, "bad disk")

            region.pread = pread  # type: ignore[method-assign]
        region.size_bytes = 1_000
        handler = Handler(lambda exchange, frame: exchange.answer([b"a", region]))
        client = net.connect(net.listen(handler, byte_layer=XorLayer))
        client.socket.sendall(b"hello" + xor(framed(b"x")))
        assert handler.has_lost(1)
        assert client.receive(5) == b"hello"
        with pytest.raises(EOFError):
            client.receive(1)

    def test_a_layer_whose_own_bytes_nobody_takes_is_not_read(self, net: Net) -> None:
        """A peer may make a layer answer, for instance by key updates, and never read the answers."""

        class Chatty(XorLayer):
            taken = 0

            def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
                self.taken += len(data)
                return b"", bytes(len(data) * 64)

        layer = Chatty()
        limits = Limits(unsent_bytes_max=1 << 20)
        client = net.connect(net.listen(Handler(), limits, byte_layer=lambda: layer))
        client.socket.setblocking(False)
        until = net.runtime.monotonic_ms() + 2_000
        quiet = 0
        while net.runtime.monotonic_ms() < until and quiet < 20:
            try:
                client.socket.send(bytes(65_536))
                quiet = 0
            except BlockingIOError:
                quiet += 1
                client.is_quiet(0.005)
        assert 0 < layer.taken <= 2_000_000

    def test_a_connection_takes_another_limit_of_its_frames(self, net: Net) -> None:
        """Frames before authentication are small."""
        handler = Handler()
        client = net.connect(net.listen(handler))
        assert eventually(lambda: len(handler.opened_connections) == 1)
        connection = handler.opened_connections[0]
        net.call(lambda: connection.limit_frames(10))
        client.send(b"a" * 10)
        assert client.frame() == b"a" * 10
        net.call(lambda: connection.limit_frames(1_000_000))
        client.send(b"b" * 200_000)
        assert client.frame() == b"b" * 200_000
        net.call(lambda: connection.limit_frames(10))
        client.send(b"c" * 11)
        assert client.is_closed()
        assert handler.has_lost(1)
        assert "11 bytes" in handler.closed_reasons[0][1]

    def test_tls_to_a_listener_without_it_is_refused_in_words(self, net: Net) -> None:
        """The first bytes would pass for a frame of 369 MB."""
        handler, client = net.serve()
        client.socket.sendall(bytes.fromhex("1603010200010001fc0303") + bytes(500))
        assert client.is_closed()
        assert handler.has_lost(1)
        assert handler.closed_reasons[0][1] == "TLS came to a listener that speaks PLAINTEXT"
