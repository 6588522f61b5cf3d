"""TLS: a burst of handshakes, half ones, none, and garbage. The load of others speaks plain text beside them."""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import ssl
import time
from collections.abc import Iterator, Sequence

from blumfeld.testing.process import LOOPBACK
from campaigns.connection_faults.fault import Fault, Scene, Wrong
from campaigns.connection_faults.frames import api_versions, reset, source_of
from campaigns.connection_faults.secured_listeners import PORTS, client_context, settings

BURST = 1_000
SILENT = 2_000
GARBAGE = 20_000
HALF_HELLO = bytes.fromhex("1603010200010001fc0303")
LONG = "security.options.tls.handshake_ms_max=60000"
"""For a burst: on a busy machine the clients take longer than Kafka's would wait."""
SHORT = "security.options.tls.handshake_ms_max=3000"
CLOSED_WITHIN_S = 15.0
BURST_WITHIN_S = 60.0
CALM_S = 2.0
"""Time before the burst in which the others are watched."""


class Client:
    """One TLS connection, whose first message is made before it is sent."""

    socket: socket.socket

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)
        self.done = False
        self._step()
        self.hello = self.outgoing.read()

    def connect(self, nth: int) -> None:
        """Connect, and say nothing yet."""
        self.socket = connected(nth)
        self.socket.setblocking(False)

    def _step(self) -> None:
        try:
            self.tls.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass

    def readable(self) -> bool:
        """Go on; whether an answer to a request has come."""
        data = self.socket.recv(65_536)
        if not data:
            raise Wrong("a handshake of the burst was closed")
        self.incoming.write(data)
        if self.done:
            try:
                return len(self.tls.read(65_536)) > 0
            except ssl.SSLWantReadError:
                return False
        self._step()
        if self.done:
            self.tls.write(api_versions())
        self.socket.sendall(self.outgoing.read())
        return False


def connected(nth: int) -> socket.socket:
    """A connection to the TLS listener."""
    return socket.create_connection((LOOPBACK, PORTS["TLS"]), 10.0, source_address=(source_of(nth), 0))


def burst(scene: Scene) -> str:
    """All first messages at once; each client then asks for something."""
    count = scene.times(BURST, least=20)
    context = client_context()
    clients = [Client(context) for _ in range(count)]
    scene.background.mark()
    time.sleep(CALM_S * scene.scale)
    calm = scene.background.mark()
    with contextlib.ExitStack() as held, selectors.DefaultSelector() as selector:
        for nth, client in enumerate(clients):
            client.connect(nth)
            held.callback(client.socket.close)
            selector.register(client.socket, selectors.EVENT_READ, client)
        scene.background.mark()
        took_s, left = _shake(clients, selector)
        seen = scene.background.mark()
    if left:
        raise Wrong(f"{left} of {count} handshakes had no answer within {BURST_WITHIN_S:.0f} s")
    others = f"p99 of the others' produces {seen.p99_ms:.1f} ms meanwhile, {calm.p99_ms:.1f} ms before"
    return f"{count} handshakes in {took_s:.2f} s; {others}"


def _shake(clients: Sequence[Client], selector: selectors.BaseSelector) -> tuple[float, int]:
    """Returns the time that it took, and the number that has no answer."""
    started = time.monotonic()
    for client in clients:
        client.socket.sendall(client.hello)
    left = len(clients)
    while left and time.monotonic() - started < BURST_WITHIN_S:
        for key, _ in selector.select(1.0):
            if key.data.readable():
                selector.unregister(key.fileobj)
                left -= 1
    return time.monotonic() - started, left


def silent(scene: Scene) -> str:
    """Connections that say nothing, or half of a first message: closed in time, and small."""
    count = scene.times(SILENT, least=20)
    before = scene.broker.rss_bytes()
    kept = []
    for nth in range(count):
        kept.append(connected(nth))
        kept[-1].sendall(b"" if nth % 2 else HALF_HELLO)
    each = (scene.broker.rss_bytes() - before) / count
    started = time.monotonic()
    for sock in kept:
        sock.settimeout(max(0.01, CLOSED_WITHIN_S - (time.monotonic() - started)))
        try:
            if sock.recv(1):
                raise Wrong("something came on a connection without a handshake")
        except TimeoutError:
            raise Wrong(f"not all were closed within {CLOSED_WITHIN_S:.0f} s") from None
        finally:
            sock.close()
    return f"{count} connections, {each:.0f} B of RSS each, closed {time.monotonic() - started:.1f} s after the last"


def garbage(scene: Scene) -> str:
    """Spoiled first messages, plain text and noise, each on a connection of its own."""
    count = scene.times(GARBAGE, least=100)
    chance = random.Random(32)
    hello = Client(client_context())
    for nth in range(count):
        spoiled = bytearray(hello.hello)
        for _ in range(chance.randrange(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        said = (
            bytes(spoiled),
            bytes(spoiled[: chance.randrange(len(spoiled))]),
            api_versions(),
            b"GET / HTTP/1.1\r\n",
        )
        sock = connected(nth)
        sock.sendall(said[nth % len(said)])
        reset(sock) if nth % 3 else sock.close()
    return f"{count} connections"


def faults() -> Iterator[Fault]:
    """All of them."""
    given = settings()
    yield Fault("a burst of TLS handshakes", burst, settings=(*given, LONG))
    yield Fault("TLS connections without a handshake", silent, settings=(*given, SHORT))
    yield Fault("a storm of spoiled TLS handshakes", garbage, settings=given)
