"""Two ends of a TLS connection on memory and virtual time: the layer at one end, and what a test wants at the other."""

from __future__ import annotations

import ssl

from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_security.tls.handshakes import Handshakes
from blumfeld_security.tls.layer import TlsLayer

TURNS_MAX = 50


class Stranger:
    """The other end as OpenSSL has it, without our layer."""

    def __init__(self, context: ssl.SSLContext, host: str = "localhost") -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=host)
        self.done = False

    def step(self) -> bytes:
        """Go on with the handshake. Returns the bytes to send."""
        try:
            self.tls.do_handshake()
            self.done = True
        except ssl.SSLWantReadError:
            pass
        return self.outgoing.read()

    def say(self, data: bytes) -> bytes:
        """Returns the encrypted bytes."""
        self.tls.write(data)
        return self.outgoing.read()

    def hear(self, data: bytes) -> bytes:
        """Returns the plain bytes."""
        self.incoming.write(data)
        heard = b""
        try:
            while piece := self.tls.read(1 << 20):
                heard += piece
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return heard


class End:
    """A layer and what its transport does: it keeps the order, and hands nothing over while the layer is waiting."""

    def __init__(self, runtime: FakeRuntime, layer: TlsLayer) -> None:
        self.runtime = runtime
        self.layer = layer
        self.plain = b""
        self.out = b""
        """Bytes for the other side that it hasn't got yet."""
        self.broken: str | None = None
        self._held = b""
        layer.attach(self._resume)

    def _resume(self) -> None:
        self._take(b"")

    def take(self, data: bytes) -> None:
        """Hand over bytes of the other side, now or once the layer is ready."""
        self._held += data
        if self._held and not self.layer.waiting and self.broken is None:
            data, self._held = self._held, b""
            self._take(data)

    def _take(self, data: bytes) -> None:
        try:
            plain, reply = self.layer.received(data)
        except ConnectionError as error:
            self.broken = str(error)
            self.out += self.layer.closing()
            self.layer.detach()
            return
        self.plain += plain
        self.out += reply
        self.take(b"")

    def send(self, plain: bytes) -> None:
        """Send plain bytes."""
        self.out += self.layer.to_send(plain)

    def sent(self) -> bytes:
        """Returns the bytes for the other side, once workers are done."""
        self.runtime.run_turn()
        out, self.out = self.out, b""
        return out


def server(
    runtime: FakeRuntime, context: ssl.SSLContext, handshakes: Handshakes | None = None, **more: object
) -> End:
    """The broker's end."""
    made = Handshakes(runtime) if handshakes is None else handshakes
    return End(runtime, TlsLayer(context, made, **more))  # type: ignore[arg-type]


def shake(near: End, far: Stranger) -> None:
    """Let both talk until neither has anything to say."""
    for _ in range(TURNS_MAX):
        try:
            said = far.step() if not far.done else b""
        except ssl.SSLError:
            said = far.outgoing.read()
        near.take(said)
        reply = near.sent()
        if not said and not reply:
            return
        far.incoming.write(reply)
        if far.done and near.broken is None:
            far.hear(b"")


def join(near: End, far: End) -> None:
    """Let two layers talk until neither has anything to say."""
    for _ in range(TURNS_MAX):
        there, back = near.sent(), far.sent()
        if not there and not back:
            return
        far.take(there)
        near.take(back)
