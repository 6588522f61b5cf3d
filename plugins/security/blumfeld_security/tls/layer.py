"""The byte layer: TLS between socket and framer, on memory.

While the handshake lasts, its steps run in a worker, and the transport reads nothing meanwhile. Afterwards bytes are
decrypted and encrypted on the loop, at most one read or one piece of an answer at a time.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable

from blumfeld.spi.context import Principal
from blumfeld_security.tls.handshakes import Handshakes
from blumfeld_security.tls.words import in_words, not_tls

READ_BYTES = 1 << 17
IDLE_BYTES_MAX = 1 << 16
PER_PLAIN_BYTE = 16
"""TLS may send bytes that carry no data, such as key updates, and each is work. A connection is closed when it has sent
:data:`IDLE_BYTES_MAX` bytes more than so many for each byte of data."""
EARLY_BYTES_MAX = 1 << 20
"""Plain bytes that wait for the end of the handshake: a dialled connection's first requests."""


class TlsLayer:
    """TLS of one connection. See ``blumfeld.spi.transport.ByteLayer``.

    :param host: the other node's name, where this node is the client
    :param completed: called on the loop when the handshake has completed, before the first plain bytes are handed on.
        If it raises ``ConnectionError`` the connection ends
    :param failed: called on the loop with the reason when it fails
    """

    __slots__ = (
        "_completed",
        "_context",
        "_done",
        "_early",
        "_early_bytes",
        "_ended",
        "_error",
        "_failed",
        "_handshakes",
        "_host",
        "_idle_bytes",
        "_in",
        "_object",
        "_out",
        "_resume",
        "_step_error",
        "admitted",
        "began_ms",
        "deadline_ms",
        "is_client",
        "peer",
        "principal",
        "waiting",
        "when_completed",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        *,
        host: str | None = None,
        completed: Callable[[TlsLayer], None] | None = None,
        failed: Callable[[TlsLayer, str], None] | None = None,
    ) -> None:
        self._context = context
        self._handshakes = handshakes
        self._host = host
        self._completed = completed
        self._failed = failed
        self.is_client = host is not None
        self.waiting = self.admitted = False
        self.principal: Principal | None = None
        """The principal of the client's certificate; ``None`` without one."""
        self.began_ms = self.deadline_ms = 0.0
        self.peer = ""
        """The address of the other side, for the log."""
        self.when_completed: Callable[[], None] | None = None
        """Called after ``completed``: set by the handler of the connection."""
        self._object: ssl.SSLObject | None = None
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._done = False
        self._ended = False
        """Whether the other side has said that it sends no more."""
        self._error: str | None = None
        self._step_error: Exception | None = None
        self._early: list[bytes] = []
        self._early_bytes = 0
        self._idle_bytes = 0
        self._resume: Callable[[], None] | None = None
        self.began_ms = handshakes.now_ms()
        handshakes.begin(self)

    # The transport's side.

    def attach(self, resume: Callable[[], None]) -> None:
        """See ``ByteLayer.attach``."""
        self._resume = resume

    def detach(self) -> None:
        """See ``ByteLayer.detach``."""
        self._resume = self.when_completed = self._completed = self._failed = None
        self._handshakes.end(self, self.began_ms, completed=False)

    def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        """See ``ByteLayer.received``."""
        if self._error is not None:
            raise ConnectionError(self._error)
        if not self._done:
            return self._handshake(data)
        if len(data):
            self._in.write(data)
        plain = self._decrypted()
        if self._ended:
            self._end(plain)
        if self._idle_bytes or len(data) > PER_PLAIN_BYTE * len(plain):
            self._bound_idle(len(data), len(plain))
        return plain, self._out.read() if self._out.pending else b""

    def to_send(self, plain: bytes | memoryview) -> bytes:
        """See ``ByteLayer.to_send``. Before the handshake has completed the plain bytes are kept.

        :raises ConnectionError: too many are
        """
        if self._done:
            assert self._object is not None
            self._object.write(plain)
            return self._out.read()
        self._early.append(bytes(plain))
        self._early_bytes += len(plain)
        if self._early_bytes > EARLY_BYTES_MAX:
            raise ConnectionError("too many bytes wait for the end of the TLS handshake")
        if self.is_client and self._object is None:
            self.step()  # a first message has nothing to verify
            return self._out.read()
        return b""

    def closing(self) -> bytes:
        """See ``ByteLayer.closing``: the closing alert, or the one that tells why a handshake failed."""
        if self.waiting or self._object is None:
            return b""
        if self._done and self._error is None:
            with contextlib.suppress(ssl.SSLError, ValueError):  # nobody waits for the other side's alert
                self._object.unwrap()
        return self._out.read() if self._out.pending else b""

    # The handshake.

    def _handshake(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        if self.waiting:
            raise ConnectionError("bytes came while a step of the handshake was under way")
        if len(data):
            if self._object is None:
                foreign = not_tls(bytes(data[:4]))
                if foreign is not None:
                    self._break(foreign)
                if not self.admitted and not self._handshakes.admit(self):
                    self._break("too many TLS handshakes are under way")
            self._in.write(data)
            self.waiting = True
            self._handshakes.queue(self)
            return b"", b""
        error, self._step_error = self._step_error, None
        if isinstance(error, ssl.SSLWantReadError):
            return b"", self._out.read() if self._out.pending else b""
        if error is not None:
            self._break(in_words(error) if isinstance(error, ssl.SSLError) else str(error))
        return self._complete()

    def step(self) -> None:
        """See ``Handshaking.step``."""
        try:
            if self._object is None:
                self._object = self._context.wrap_bio(
                    self._in, self._out, server_side=not self.is_client, server_hostname=self._host or None
                )
            self._object.do_handshake()
            self._step_error = None
        except (OSError, ValueError) as error:  # ssl's errors are of both
            self._step_error = error

    def stepped(self) -> None:
        """See ``Handshaking.stepped``."""
        self.waiting = False
        self._resumed()

    def fail(self, reason: str) -> None:
        """See ``Handshaking.fail``. A step that is under way ends first."""
        if self._error is None:
            self._error = reason
            self._tell(reason)
        if not self.waiting and self._resume is not None:
            self._resume()

    def _break(self, reason: str) -> None:
        self._error = reason
        self._tell(reason)
        raise ConnectionError(reason)

    def _tell(self, reason: str) -> None:
        self._handshakes.end(self, self.began_ms, completed=False)
        if self._failed is not None:
            self._failed(self, reason)

    def _complete(self) -> tuple[bytes, bytes]:
        assert self._object is not None
        self._done = True
        try:
            if self._completed is not None:
                self._completed(self)
        except ConnectionError as error:
            self._break(str(error))
        self._handshakes.end(self, self.began_ms, completed=True)
        if self.when_completed is not None:
            self.when_completed()
        early, self._early = self._early, []
        for plain in early:
            self._object.write(plain)
        plain = self._decrypted()
        return plain, self._out.read() if self._out.pending else b""

    # Afterwards.

    def _decrypted(self) -> bytes:
        assert self._object is not None
        read, source = self._object.read, self._in
        pieces = []
        try:
            while True:
                piece = read(READ_BYTES)
                if not piece:
                    self._ended = True
                    break
                pieces.append(piece)
                if not source.pending:  # OpenSSL has no more either: a read returns a whole record
                    break
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise ConnectionError(in_words(error)) from None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _end(self, plain: bytes) -> None:
        """Let the connection close behind its last bytes: some clients wait half a minute for our closing alert."""
        if not plain:
            raise ConnectionError("closed by the peer")
        self._handshakes.soon(self._resumed)

    def _resumed(self) -> None:
        if self._resume is not None:
            self._resume()

    def _bound_idle(self, received_bytes: int, plain_bytes: int) -> None:
        self._idle_bytes = max(0, self._idle_bytes + received_bytes - PER_PLAIN_BYTE * plain_bytes)
        if self._idle_bytes > IDLE_BYTES_MAX:
            self._error = "TLS without data: the other side sends only messages of TLS itself"
            raise ConnectionError(self._error)

    # About the other side.

    @property
    def completed(self) -> bool:
        """Whether the handshake has completed."""
        return self._done

    def peer_certificate(self) -> bytes | None:
        """Returns the certificate that the other side has shown, in DER; ``None`` for none."""
        if not self._done or self._object is None:
            return None
        return self._object.getpeercert(binary_form=True)
