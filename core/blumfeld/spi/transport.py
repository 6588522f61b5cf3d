"""The network role: listens, dials, cuts frames, writes answers in order, sends file regions without copying.

Frames are Kafka's: int32 size, then that many bytes. The transport knows nothing else of the
protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from blumfeld.spi.parts import Parts

OWNED_FRAME_BYTES = 17 << 20
"""A frame larger than this lies in memory of its own, which the transport never writes to again. No transport receives
that much at once, so such a frame has come in pieces."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """A named place to listen on, as the manifest has it."""

    name: str
    """``PLAINTEXT``, ``CONTROLLER``, or any name of ``[A-Z0-9_]+``."""
    kind: str
    """``broker`` or ``controller``: which handlers answer on it."""
    host: str
    port: int
    """0 asks for a free one."""
    advertised_host: str | None = None
    """Host name that clients are told to connect to; ``None`` means ``host``."""
    advertised_port: int | None = None
    inter_broker: bool = False
    security_protocol: str = "PLAINTEXT"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a transport. Names and defaults are Kafka's where it has them."""

    frame_bytes_max: int = 104_857_600
    """``socket.request.max.bytes``: a larger or a negative size closes the connection."""
    idle_ms_max: int = 600_000
    """``connections.max.idle.ms``: nothing was received, and nothing unsent was taken, for so long. A connection
    that waits for an answer of ours is not idle, unless its peer sends no more: it may have died. Negative: never.
    """
    connections_max: int = 2_147_483_647
    """``max.connections``: the connection that would go past it is closed at once."""
    listener_connections_max: int = 2_147_483_647
    """``listener.name.<name>.max.connections``: likewise, of the connections of this listener alone."""
    connections_per_ip_max: int = 2_147_483_647
    """``max.connections.per.ip``."""
    connections_per_ip_overrides: dict[str, int] = {}
    """``max.connections.per.ip.overrides``: address → its own limit in place of that."""
    connections_per_s_max: int = 2_147_483_647
    """``max.connection.creation.rate``: beyond it connections wait in the backlog. Ten seconds' connections may come at
    once. Of several listeners the one between brokers is exempt.
    """
    listener_connections_per_s_max: int = 2_147_483_647
    """``listener.name.<name>.max.connection.creation.rate``: likewise, of this listener alone."""
    in_flight_max: int = 64
    """Exchanges open on one connection before its socket is no longer read. Kafka has 1; ours are cheap, and
    only Produce starts early.
    """
    unsent_bytes_max: int = 1 << 20
    """Answers not yet taken by the socket before the connection is no longer read (backpressure)."""
    listen_backlog: int = 50
    """``socket.listen.backlog.size``."""
    request_memory_bytes_max: int = 256 << 20
    """``queued.max.request.bytes``: memory of unfinished frames of all connections of the transport together, where a
    frame has more than 64 KiB. Beyond it only the oldest frame is read on, so it is exceeded by one frame at most. Of
    several calls of ``listen`` the last one counts.
    """
    answer_memory_bytes_max: int = 256 << 20
    """Memory of unsent answers of all connections together, where a connection has more than 64 KiB of them; file
    regions are no memory. Beyond it none of these connections is read.
    """
    memory_stall_ms: int = 5_000
    """The time that a connection may stand still while others wait for memory that it holds. Then it is closed."""


class ByteLayer(Protocol):
    """Between socket and framer, without I/O: what TLS fills. One for each connection. All calls are on the loop's
    thread."""

    waiting: bool
    """Whether the layer works on received bytes elsewhere, and will call ``resume``. The transport looks after each
    call of :meth:`received`, and reads nothing from the socket meanwhile. So a layer holds the bytes of one read at
    most.
    """

    def attach(self, resume: Callable[[], None]) -> None:
        """Take the function that ends :attr:`waiting`. Called once, before anything else.

        ``resume`` may also be called when a layer has bytes for either side although none came in, or wants to end the
        connection by an error. The transport calls ``received(b"")`` within it, unless the connection closes. It must
        be called on the loop's thread, and not from within a method of the layer.
        """
        ...

    def detach(self) -> None:
        """Take note that the connection has gone: nothing else of the layer is called. Called once."""
        ...

    def received(self, data: bytes | memoryview) -> tuple[bytes, bytes]:
        """Take bytes of the socket, or none after ``resume``: (plain bytes for the framer, bytes to send back now).

        :raises ConnectionError: the peer broke the layer's protocol; the connection is closed after what is
            unsent was tried
        """
        ...

    def to_send(self, plain: bytes | memoryview) -> bytes:
        """Returns the bytes to send on the socket for these plain bytes."""
        ...

    def closing(self) -> bytes:
        """Last bytes to send before an orderly close, or after an error of :meth:`received`."""
        ...


class Connection(Protocol):
    """An accepted connection, as the dispatcher sees it. It lives until ``ConnectionHandler.closed``."""

    id: int
    """Unique within its transport, and never used again."""
    listener: Listener
    peer_host: str
    peer_port: int
    state: Any
    """The handler's own: the transport never reads it. ``None`` at first."""
    layer: ByteLayer | None
    """The byte layer that the listener's maker gave this connection."""

    def limit_frames(self, bytes_max: int) -> None:
        """Take no larger frame from now on: small ones before authentication. A frame whose size has come already isn't
        checked again.
        """
        ...

    def mute(self, until_ms: float) -> None:
        """Read no more from the socket until ``Runtime.monotonic_ms()`` reaches ``until_ms``: quotas."""
        ...

    def close(self, reason: str) -> None:
        """Send answers that are ready, then close. May be called twice."""
        ...

    def abort(self, reason: str) -> None:
        """Close now: what is unsent is dropped, its regions released."""
        ...


class Exchange(Protocol):
    """One request and the place of its answer among the connection's answers.

    Exactly one of :meth:`answer` and :meth:`no_answer` is called, once, at any later time. After the
    connection has gone both are still legal: the parts are released.
    """

    @property
    def connection(self) -> Connection:
        """The connection that it came on."""
        ...

    def answer(self, parts: Parts) -> None:
        """The answer, without the size field, which the transport writes. Sent in Phase.ANSWER, after all
        answers before it.

        The transport owns the parts from here on: they must not change, and none may be a view of a request's
        frame, which does not last until a slow socket has taken it.
        """
        ...

    def no_answer(self) -> None:
        """The request has none (acks=0)."""
        ...

    def let_next_start(self) -> None:
        """The next request of this connection may start although this one is open: only for Produce with its
        batches placed.
        """
        ...


class ConnectionHandler(Protocol):
    """The callbacks of a transport, implemented by the broker's dispatcher or a test's echo. None of them may raise or
    block.
    """

    def opened(self, connection: Connection) -> None:
        """A connection was accepted, before its first request."""
        ...

    def request(self, exchange: Exchange, frame: memoryview) -> None:
        """One frame, without its size field.

        ``frame`` is writable, and unchanged until the end of this turn (all callbacks of Phase.WRITE have run). A frame
        above ``OWNED_FRAME_BYTES`` stays unchanged for as long as it is held; of a smaller one, a handler copies the
        bytes that it needs for longer. The next request of the connection is not started until this one is answered,
        has no answer, or called ``let_next_start``.
        """
        ...

    def closed(self, connection: Connection, reason: str) -> None:
        """The connection has gone. Called once, also when we closed it."""
        ...


class FrameReceiver(Protocol):
    """The callbacks of a dialled connection."""

    def frame(self, frame: memoryview) -> None:
        """One frame from the peer. It lives as the frame of a request: writable, and unchanged until the end of this
        turn's Phase.WRITE, or for as long as it is held if it is above ``OWNED_FRAME_BYTES``.
        """
        ...

    def lost(self, reason: str) -> None:
        """The connection has gone. Called once."""
        ...


class DialedConnection(Protocol):
    """A connection that we opened."""

    def send(self, parts: Parts) -> None:
        """Send one frame: size, then the parts. Never blocks; after the connection was lost it only releases."""
        ...

    def close(self) -> None:
        """Close after what is unsent has gone."""
        ...


class Transport(Protocol):
    """Made by ``blumfeld_make_transport``. Made → started → stopped; stop without start is legal."""

    def driver(self) -> str:
        """The driver of the sockets, for ``plan`` and the log: ``"epoll"``, ``"io_uring (5.19: …)"``."""
        ...

    async def listen(
        self,
        listener: Listener,
        handler: ConnectionHandler,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> int:
        """Bind and accept; the port that was bound. When this returns, a client can connect.

        :raises OSError: port in use, address not ours: the node does not start, the message names the
            listener
        """
        ...

    async def dial(
        self,
        host: str,
        port: int,
        receiver: FrameReceiver,
        limits: Limits,
        byte_layer: Callable[[], ByteLayer] | None = None,
    ) -> DialedConnection:
        """Connect. Raises ``OSError``; the caller decides on timeouts and retries. Cancelled, it leaves no socket
        behind. ``RuntimeError``: the transport was stopped."""
        ...

    def limit(self, listener: str, limits: Limits) -> None:
        """Take other limits for the listener of this name, for connections that come from now on. The limits of a
        connection itself (frame size, idle time) stay as they were when it came. Nothing happens without the listener.
        """
        ...

    async def stop(self, grace_ms: int) -> None:
        """Accept and read no more; wait up to ``grace_ms`` for open exchanges to be answered and sent; close
        everything.
        """
        ...


LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@runtime_checkable
class TurnEndingLoop(Protocol):
    """A loop's extension beyond asyncio's: the end of a turn without a detour through its queue."""

    def call_after_poll(self, callback: Callable[[], None], /) -> object:
        """Call ``callback()`` once. A callback that the loop calls while it polls gets it called after all callbacks
        of this poll, and before anything that was queued. Elsewhere this is ``call_soon``.
        """
        ...
