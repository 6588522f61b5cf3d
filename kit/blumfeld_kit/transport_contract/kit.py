"""Tools of the transport contract: a transport on a loop in a thread of its own, a blocking client, regions that count
their releases, and a toy byte layer.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.spi.parts import FileRegion, Part
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import ByteLayer, Connection, Exchange, Limits, Listener, LoopFactory, Transport

T = TypeVar("T")
MakeTransport = Callable[[Runtime], Transport]
OnRequest = Callable[[Exchange, memoryview], None]

PATIENCE_S = 30.0
"""Time limit for anything that must happen."""
END_S = 60.0
"""Time limit for a transport's stop, on a busy machine."""
QUIET_S = 0.05
"""Time for which a test watches that something doesn't happen."""


def framed(*bodies: bytes) -> bytes:
    """Return the bodies as frames, one behind the other."""
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def echo(exchange: Exchange, frame: memoryview) -> None:
    """Answer with the request's bytes."""
    exchange.answer([bytes(frame)])


def eventually(condition: Callable[[], bool]) -> bool:
    """Return whether the condition comes true within :data:`PATIENCE_S`."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def hold(exchange: Exchange, frame: memoryview) -> None:
    """Leave the request open. The test answers it."""


def hold_and_let_next_start(exchange: Exchange, frame: memoryview) -> None:
    """Leave the request open and let the next one start, as a Produce does once its batches are placed."""
    exchange.let_next_start()


class Handler:
    """A ``ConnectionHandler`` that records its calls. The test says what it does with each request."""

    def __init__(self, on_request: OnRequest = echo) -> None:
        self.on_request = on_request
        self.opened_connections: list[Connection] = []
        self.closed_reasons: list[tuple[Connection, str]] = []
        self.frames: list[bytes] = []
        self.exchanges: list[Exchange] = []

    def opened(self, connection: Connection) -> None:
        self.opened_connections.append(connection)

    def request(self, exchange: Exchange, frame: memoryview) -> None:
        """Record the request, then do what the test says."""
        self.frames.append(bytes(frame))
        self.exchanges.append(exchange)
        self.on_request(exchange, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        self.closed_reasons.append((connection, reason))

    def has_started(self, count: int) -> bool:
        """Return whether exactly that many requests start in time."""
        return eventually(lambda: len(self.exchanges) >= count) and len(self.exchanges) == count

    def has_lost(self, count: int) -> bool:
        """Return whether exactly that many connections close in time."""
        return eventually(lambda: len(self.closed_reasons) >= count) and len(self.closed_reasons) == count


class Receiver:
    """A ``FrameReceiver`` that records its calls."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost_reasons: list[str] = []

    def frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def lost(self, reason: str) -> None:
        self.lost_reasons.append(reason)


class CountedRegion:
    """A region of a file, or of memory (``fd`` -1), that counts its releases."""

    def __init__(self, data: bytes, fd: int, position: int) -> None:
        self._data = data
        self._fd = fd
        self.position = position
        self.size_bytes = len(data)
        self.releases = 0

    def fileno(self) -> int:
        """Return the descriptor. Raises ``OSError`` for memory."""
        if self._fd < 0 or self.releases:
            raise OSError(errno.EBADF, "no descriptor")
        return self._fd

    def pread(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes within the region."""
        if self.releases:
            raise OSError(errno.EBADF, "read after its release")
        return self._data[offset:] if size is None else self._data[offset : offset + size]

    def release(self) -> None:
        """Count the release."""
        self.releases += 1
        if self.releases > 1:
            raise RuntimeError("released twice")


class XorLayer:
    """A byte layer that exchanges a greeting, then flips every bit."""

    GREETING = b"hello"
    GOODBYE = b"bye"

    waiting = False

    def __init__(self) -> None:
        self._greeted = 0
        self.attached = self.detached = 0

    def attach(self, resume: Callable[[], None]) -> None:
        """Keep the function, as a layer that needs time does."""
        self.resume = resume
        self.attached += 1

    def detach(self) -> None:
        """Count the call."""
        self.detached += 1

    def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        """Expect the greeting first and answer it. Afterwards flip every bit."""
        raw = bytes(data)
        missing = self.GREETING[self._greeted :]
        head, rest = raw[: len(missing)], raw[len(missing) :]
        if not missing.startswith(head):
            raise ConnectionError("no greeting")
        self._greeted += len(head)
        return xor(rest), self.GREETING if head and len(head) == len(missing) else b""

    def to_send(self, plain: bytes | memoryview) -> bytes:
        """Return the bytes with every bit flipped."""
        return xor(bytes(plain))

    def closing(self) -> bytes:
        """Return the last bytes of the layer."""
        return self.GOODBYE


class CountingLayer(XorLayer):
    """A layer that notes the size of each piece that it is handed to send."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[int] = []

    def to_send(self, plain: bytes | memoryview) -> bytes:
        """Note the size."""
        self.pieces.append(len(plain))
        return super().to_send(plain)


class SlowLayer(XorLayer):
    """A layer that leaves received bytes lying until the test calls :meth:`finish` on the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._slowly = b""
        self.calls: list[bytes] = []
        """The bytes of each call of :meth:`received`."""
        self.slow = True

    def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        """Take the bytes, and wait."""
        self.calls.append(bytes(data))
        self._slowly += bytes(data)
        if self.slow:
            self.waiting = True
            return b"", b""
        taken, self._slowly = self._slowly, b""
        return super().received(taken)

    def finish(self, *, stay_slow: bool = False) -> None:
        """End the work on what was received."""
        self.waiting = self.slow = False
        self.resume()
        self.slow = stay_slow


def xor(data: bytes) -> bytes:
    """Flip every bit."""
    return data.translate(bytes(255 - byte for byte in range(256)))


class Client:
    """A blocking client. A call that takes longer than :data:`PATIENCE_S` raises."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, *bodies: bytes) -> None:
        """Send frames in one call."""
        self.socket.sendall(framed(*bodies))

    def receive(self, size: int) -> bytes:
        """Receive exactly that many bytes. Raises ``EOFError`` when the connection ends before."""
        data = bytearray()
        while len(data) < size:
            try:
                piece = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError:
                piece = b""
            if not piece:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)

    def frame(self) -> bytes:
        """Receive one frame, without its size."""
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def is_closed(self) -> bool:
        """Return whether the peer closes the connection and sends nothing before."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_quiet(self, seconds: float = QUIET_S) -> bool:
        """Return whether nothing arrives in that time, not even an end."""
        return not select.select([self.socket], [], [], seconds)[0]

    def reset(self) -> None:
        """Reset the connection, as the kernel does for a killed process."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Net:
    """One transport, on its own loop in a thread. Tests run outside of that thread and may block."""

    def __init__(self, make_transport: MakeTransport, loop_factory: LoopFactory, folder: Path) -> None:
        self._make_transport = make_transport
        self._loop_factory = loop_factory
        self._folder = folder
        self._fds: list[int] = []
        self._ready = threading.Event()
        self._clients: list[Client] = []
        self.regions: list[CountedRegion] = []
        self.defects: list[str] = []
        """Errors that escaped from a callback of the loop."""
        self.stopped = False
        self._thread = threading.Thread(target=self._serve, name="transport-contract")

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(lambda _, context: self.defects.append(repr(context)))
        self._finish = asyncio.Event()
        self.runtime = AsyncioRuntime(lambda where, error: self.defects.append(f"{where}: {error!r}"))
        self.transport = self._make_transport(self.runtime)
        self._ready.set()
        await self._finish.wait()
        await self.transport.stop(0)
        await self.runtime.close()

    def start(self) -> None:
        """Start the loop. Nothing listens yet."""
        self._thread.start()
        if not self._ready.wait(PATIENCE_S):
            raise RuntimeError("make_transport did not return")

    def finish(self) -> None:
        """Stop the transport without grace, end the loop and close all clients."""
        self._loop.call_soon_threadsafe(self._finish.set)
        self._thread.join(END_S)
        for client in self._clients:
            client.socket.close()
        for fd in self._fds:
            os.close(fd)
        if self._thread.is_alive():
            raise RuntimeError("the transport did not stop")

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop and wait for it."""

        async def called() -> T:
            return function()

        return self.run(called())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the loop within the block, so that the loop finds everything that the test sends there in one turn.

        The bytes must fit into the kernel's buffers: nothing reads them meanwhile.
        """
        holding, over = threading.Event(), threading.Event()

        def hold_loop() -> None:
            holding.set()
            over.wait(PATIENCE_S)

        self._loop.call_soon_threadsafe(hold_loop)
        if not holding.wait(PATIENCE_S):
            raise RuntimeError("the loop does not run")
        try:
            yield
        finally:
            over.set()

    def answer(self, exchange: Exchange, *parts: Part) -> None:
        """Answer a request, on the loop."""
        self.call(lambda: exchange.answer(parts))

    def listen(
        self,
        handler: Handler,
        limits: Limits | None = None,
        byte_layer: Callable[[], ByteLayer] | None = None,
        name: str = "PLAINTEXT",
        port: int = 0,
    ) -> int:
        """Listen on loopback, and return the port."""
        listener = Listener(name=name, kind="broker", host="127.0.0.1", port=port)
        return self.run(self.transport.listen(listener, handler, limits or Limits(), byte_layer))

    def connect(self, port: int) -> Client:
        """Connect a client. The net closes it at the end."""
        client = Client(port)
        self._clients.append(client)
        return client

    def serve(self, on_request: OnRequest = echo, limits: Limits | None = None) -> tuple[Handler, Client]:
        """Listen with that handler, and connect one client."""
        handler = Handler(on_request)
        return handler, self.connect(self.listen(handler, limits))

    def region(self, data: bytes, *, in_memory: bool = False) -> FileRegion:
        """Return a region with those bytes, in the middle of a file or in memory. The net checks its release at the
        end.
        """
        fd = -1
        if not in_memory:
            path = self._folder / f"region-{len(self.regions)}"
            path.write_bytes(b"before" + data + b"after")
            fd = os.open(path, os.O_RDONLY)
            self._fds.append(fd)
        region = CountedRegion(data, fd, 6)
        self.regions.append(region)
        return region
