"""TLS on real sockets, on both transports: data, half handshakes, bursts, and clients that end at once."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blumfeld.net.readiness.streams import GREETINGS_MAX
from blumfeld.spi.runtime import Phase, Runtime
from blumfeld.spi.transport import Exchange, Limits, LoopFactory
from blumfeld_kit.transport_contract.kit import (
    PATIENCE_S,
    Handler,
    MakeTransport,
    Net,
    Receiver,
    echo,
    eventually,
    framed,
)
from blumfeld_net_asyncio.readiness import new_loop
from blumfeld_net_asyncio.transport import AsyncioTransport
from blumfeld_net_uring.io_uring.loop import new_loop as new_uring_loop
from blumfeld_net_uring.io_uring.probe import probe
from blumfeld_net_uring.transport import UringTransport
from blumfeld_security.tls.contexts import client_context as peer_context
from blumfeld_security.tls.handshakes import Handshakes
from blumfeld_security.tls.layer import TlsLayer
from blumfeld_security.tls.settings import settings_of
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog
from tests.plugins.security.tls.authority import client_context
from tests.plugins.security.tls.ends import Stranger
from tests.plugins.security.tls.test_layer import config, context

DRIVERS: dict[str, tuple[MakeTransport, LoopFactory]] = {
    "asyncio": (lambda runtime: AsyncioTransport(runtime, NoLog(), 131_072, 64), new_loop),
    "plain loop": (lambda runtime: AsyncioTransport(runtime, NoLog(), 1_024, 1), asyncio.new_event_loop),
    "uring": (lambda runtime: UringTransport(runtime, NoLog()), new_uring_loop),
}


class Served:
    """A TLS listener on a transport, and its clients."""

    def __init__(self, net: Net, folder: Path) -> None:
        self.net = net
        self.handler = Handler(echo)
        self.handshakes = net.call(lambda: Handshakes(net.runtime, time_ms_max=1_000))
        self.served = context()
        self.client = client_context(folder)
        self.port = net.listen(self.handler, Limits(idle_ms_max=-1), self.layer)
        self.sockets: list[socket.socket] = []

    def layer(self) -> TlsLayer:
        """The layer of a new connection."""
        return TlsLayer(self.served, self.handshakes)

    def plain(self) -> socket.socket:
        """A connection before its handshake."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        self.sockets.append(made)
        return made

    def connect(self) -> ssl.SSLSocket:
        """A connection after its handshake."""
        made = self.client.wrap_socket(self.plain(), server_hostname="localhost")
        self.sockets.append(made)
        return made


@pytest.fixture(params=list(DRIVERS))
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    if request.param == "uring" and not probe().available:
        pytest.skip(str(probe().why_not))
    net = Net(*DRIVERS[request.param], tmp_path)
    net.start()
    made = Served(net, tmp_path)
    try:
        yield made
    finally:
        net.finish()
        for sock in made.sockets:
            sock.close()
    assert net.defects == []
    assert [region.releases for region in net.regions] == [1] * len(net.regions)


def received(sock: socket.socket, size: int) -> bytes:
    """That many bytes."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += piece
    return data


def test_frames_of_any_size_pass(served: Served) -> None:
    sock = served.connect()
    for size in (0, 10, 20_000, 1_500_000):
        sent = framed(bytes(range(256)) * (size // 256) + bytes(size % 256))
        sock.sendall(sent)  # in this thread: a TLS socket of Python's isn't for two at once
        assert received(sock, len(sent)) == sent


def test_file_regions_are_encrypted(served: Served) -> None:
    data = bytes(range(256)) * 4_000
    served.handler.on_request = lambda exchange, _: exchange.answer([b"a", served.net.region(data), b"z"])
    sock = served.connect()
    sock.sendall(framed(b"read"))
    expected = framed(b"a" + data + b"z")
    assert received(sock, len(expected)) == expected


def test_many_clients_at_once(served: Served) -> None:
    def talk() -> None:
        sock = served.connect()
        for nth in range(3):
            sock.sendall(framed(b"%d" % nth))
            assert received(sock, 5) == framed(b"%d" % nth)
        done.append(1)

    done: list[int] = []
    threads = [threading.Thread(target=talk) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 30
    assert served.handshakes.completed == 30


class CountedLayer(TlsLayer):
    """Notes each read of a connection before its handshake has ended, and the end of each turn with one."""

    __slots__ = ("runtime", "seen")

    runtime: Runtime
    seen: list[str]

    def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        """See ``ByteLayer.received``."""
        if len(data) and not self.completed:
            if not self.seen or self.seen[-1] != "hello":
                self.runtime.at_end_of_turn(Phase.ANSWER, lambda: self.seen.append("end"))
            self.seen.append("hello")
        return super().received(data)


def test_a_turn_takes_few_of_many_handshakes_that_begin_at_once(
    served: Served,
) -> None:
    """Each costs the loop little, but a thousand of them would hold up all other requests. A connection whose
    handshake is over doesn't wait behind them."""
    seen: list[str] = []
    handshakes = served.net.call(lambda: Handshakes(served.net.runtime, time_ms_max=60_000))

    def layer() -> TlsLayer:
        made = CountedLayer(served.served, handshakes)
        made.runtime, made.seen = served.net.runtime, seen
        return made

    served.port = served.net.listen(served.handler, Limits(idle_ms_max=-1), layer)
    talking = served.connect()
    talking.sendall(framed(b"first"))
    assert received(talking, 9) == framed(b"first")
    strangers = [served.plain() for _ in range(3 * GREETINGS_MAX)]
    assert on_the_loop(served, lambda: len(served.handler.opened_connections) == len(strangers) + 1)

    def answered(exchange: Exchange, frame: memoryview) -> None:
        seen.append("request")
        echo(exchange, frame)

    served.handler.on_request = answered
    seen.clear()
    hello = Stranger(served.client).step()
    with served.net.held():
        for stranger in strangers:
            stranger.sendall(hello)
        talking.sendall(framed(b"again"))
    assert received(talking, 9) == framed(b"again")
    assert on_the_loop(served, lambda: seen.count("hello") == len(strangers))
    turns = " ".join(seen).replace("request ", "").split("end")
    assert max(turn.count("hello") for turn in turns) == GREETINGS_MAX
    if isinstance(
        served.net.transport, AsyncioTransport
    ):  # a ring reports sockets in the order of their bytes
        assert seen.index("request") < seen.index("end")


def test_a_client_that_sends_and_is_gone_is_served(served: Served) -> None:
    """A producer with acks=0, whose request comes with the end of the handshake."""
    sock = served.connect()
    sock.sendall(framed(b"last"))
    sock.close()
    assert eventually(lambda: served.handler.frames == [b"last"])


def test_half_a_handshake_is_closed_in_time_and_harms_nobody(served: Served) -> None:
    silent, half = served.plain(), served.plain()
    half.sendall(bytes.fromhex("160301020001"))
    plain = served.plain()
    plain.sendall(framed(b"plain text"))
    assert plain.recv(10) == b""
    sock = served.connect()
    sock.sendall(framed(b"x"))
    assert received(sock, 5) == framed(b"x")
    assert silent.recv(10) == half.recv(10) == b""
    assert served.handler.has_lost(3)
    sock.sendall(framed(b"y"))
    assert received(sock, 5) == framed(b"y")


def test_a_node_dials_over_tls(served: Served) -> None:
    net = served.net
    settings = settings_of(config(), "SSL", with_sasl=False, dials=True)
    dialling = peer_context(net.runtime.files, settings).context
    receiver = Receiver()

    def layer() -> TlsLayer:
        return TlsLayer(dialling, served.handshakes, host="localhost")

    dialled = net.run(net.transport.dial("127.0.0.1", served.port, receiver, Limits(), layer))
    net.call(lambda: dialled.send([b"first"]))
    net.call(lambda: dialled.send([b"x" * 300_000]))
    assert eventually(lambda: receiver.frames == [b"first", b"x" * 300_000])
    net.call(dialled.close)
    assert eventually(lambda: len(receiver.lost_reasons) == 1)


def on_the_loop(served: Served, condition: Callable[[], bool]) -> bool:
    """Whether it comes true, looked at from the loop."""
    return eventually(lambda: served.net.call(condition))


def test_nothing_is_left_of_clients_that_are_gone(served: Served) -> None:
    for nth in range(20):
        sock = served.plain()
        if nth % 2:
            sock.sendall(bytes.fromhex("1603010200010001fc0303") + bytes(nth))
        sock.close()
    assert on_the_loop(served, lambda: len(served.handler.closed_reasons) == 20)
    assert on_the_loop(served, lambda: not served.handshakes._open and not served.handshakes._admitted)
