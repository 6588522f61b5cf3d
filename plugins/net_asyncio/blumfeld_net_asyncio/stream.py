"""A non-blocking socket with frames: what accepted and dialled connections have in common.

Readable → receive into the turn's memory → cut → :meth:`Stream.consume`. What was not consumed, because it is the
beginning of a frame or because it must wait, is kept in memory of the connection's own.
"""

from __future__ import annotations

import socket
import struct

from blumfeld.spi.transport import ByteLayer, Limits
from blumfeld_net_asyncio.receive import CARRY_BYTES_MAX, LargeFrame
from blumfeld_net_asyncio.send import LayeredSendQueue, SendQueue
from blumfeld_net_asyncio.turn import Turn

SIZE = struct.Struct(">i")

MUTED = 1
FULL = 2
CLOSING = 4


class Stream:
    """One connected socket. Every method runs on the loop's thread; none raises for what the peer does."""

    __slots__ = (
        "_active_ms",
        "_ending",
        "_fd",
        "_frame_bytes_max",
        "_large",
        "_layer",
        "_read_bytes",
        "_reader",
        "_reading",
        "_recv_into",
        "_rest",
        "_sending",
        "_socket",
        "_stall",
        "_writing",
        "dead",
        "turn",
    )

    def __init__(self, turn: Turn, sock: socket.socket, limits: Limits, layer: ByteLayer | None) -> None:
        self.turn = turn
        self._socket = sock
        self._fd = sock.fileno()
        self._recv_into = sock.recv_into
        self._frame_bytes_max = limits.frame_bytes_max
        self._read_bytes = turn.read_bytes
        self._layer = layer
        self._sending: SendQueue = SendQueue(sock) if layer is None else LayeredSendQueue(sock, layer)
        self._rest: memoryview | None = None
        """Received and not consumed."""
        self._large: LargeFrame | None = None
        self._stall = 0
        """Why nothing is read: a set of MUTED, FULL, CLOSING."""
        self._ending: str | None = None
        """The reason to close for, once all has been answered and sent."""
        self._reading = False
        self._writing = False
        self._reader = self._readable if layer is None else self._readable_layered
        self._active_ms = turn.now_ms
        self.dead = False

    # What a kind of connection fills in.

    def consume(self, view: memoryview, at: int, end: int) -> int:
        """Take complete frames from ``view[at:end]``, as many as may start now; where the first that is left begins."""
        raise NotImplementedError

    def consume_large(self, frame: memoryview) -> None:
        """Take one complete frame; called only when one may start."""
        raise NotImplementedError

    def held(self) -> bool:
        """Whether the next frame must wait."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Whether answers are still to come."""
        raise NotImplementedError

    def gone(self, reason: str) -> None:
        """The socket is closed. Called once."""
        raise NotImplementedError

    def drained(self) -> None:
        """The socket has taken enough for reading to go on."""
        raise NotImplementedError

    # Receiving.

    def resume_reading(self) -> None:
        """Have the loop call us when bytes arrive, from now on."""
        if not self._reading and not self.dead:
            self._reading = True
            self.turn.readiness.add_reader(self._fd, self._reader)

    def pause_reading(self) -> None:
        """Leave what arrives to the kernel, which tells the peer."""
        if self._reading:
            self._reading = False
            self.turn.readiness.remove_reader(self._fd)

    def _readable(self) -> None:
        if self._stall or (self._rest is not None and self.held()):
            self.pause_reading()
            return
        if self._large is not None:
            self._read_large(self._large)
            return
        turn = self.turn
        pool = turn.pool
        chunk = pool.chunk
        start = at = pool.position
        rest = self._rest
        if rest is not None:
            if len(rest) > CARRY_BYTES_MAX:  # whole frames that were held a moment ago
                self.consume_rest()
                return
            at += len(rest)
            chunk[start:at] = rest
        try:
            count = self._recv_into(chunk[at : at + self._read_bytes])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.die(f"receive: {error.strerror}")
            return
        if count == 0:
            self._ended()
            return
        self._rest = None
        if not turn.begun:
            turn.begin()
        self._active_ms = turn.now_ms
        end = at + count
        pool.position = end
        used = self.consume(chunk, start, end)
        if used != end:
            self._keep(chunk, used, end)
            if self._large is not None and count == self._read_bytes:
                self._read_large(self._large)
        if pool.position > pool.limit:
            pool.next_chunk()

    def _keep(self, view: memoryview, at: int, end: int) -> None:
        """Keep ``view[at:end]``, which was not consumed, beyond this turn."""
        self._rest = None
        if self._stall & CLOSING or self.dead:
            return
        if end - at >= 4 and not self.held():
            size = SIZE.unpack_from(view, at)[0]
            if size > CARRY_BYTES_MAX:
                self._large = LargeFrame(self.turn.pool, size, view[at + 4 : end])
                return
        if at != end:
            self._rest = memoryview(bytearray(view[at:end]))

    def _read_large(self, large: LargeFrame) -> None:
        """Receive the next bytes of a large frame, and nothing behind it."""
        turn = self.turn
        while not large.complete:
            room = large.room()
            try:
                count = self._recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.die(f"receive: {error.strerror}")
                return
            if count == 0:
                self._ended()
                return
            if not turn.begun:
                turn.begin()
            self._active_ms = turn.now_ms
            if not large.filled(count) and count < len(room):
                return
        self._large = None
        self.consume_large(large.take())

    def _readable_layered(self) -> None:
        if self._stall or (self._rest is not None and self.held()):
            self.pause_reading()
            return
        turn = self.turn
        pool = turn.pool
        view = pool.chunk[pool.position : pool.position + self._read_bytes]
        try:
            count = self._recv_into(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.die(f"receive: {error.strerror}")
            return
        if count == 0:
            self._ended()
            return
        if not turn.begun:
            turn.begin()
        self._active_ms = turn.now_ms
        layer, sending = self._layer, self._sending
        assert layer is not None
        assert isinstance(sending, LayeredSendQueue)
        try:
            plain, reply = layer.received(view[:count])
            sending.send_raw(reply)
        except OSError as error:  # ConnectionError is one
            self.end_when_sent(f"byte layer: {error}")
            return
        except Exception as error:
            turn.defect(error, "ByteLayer.received")
            self.die("a defect of ours")
            return
        self.watch_sending()
        if plain and not self.dead:
            self._feed(plain)

    def _feed(self, plain: bytes) -> None:
        """Take plain bytes that are not in the turn's memory: copy them, for a frame may be written to."""
        at = 0
        if self._large is not None:
            at = self._large.fill_from(memoryview(plain))
            if not self._large.complete:
                return
            frame, self._large = self._large.take(), None
            self.consume_large(frame)
        rest = self._rest
        view = memoryview(bytearray(plain[at:]) if rest is None else bytearray(rest) + plain[at:])
        used = self.consume(view, 0, len(view))
        self._keep(view, used, len(view))

    def consume_rest(self) -> None:
        """The hold was lifted: take frames that were received meanwhile, then read on."""
        rest = self._rest
        if rest is not None:
            used = self.consume(rest, 0, len(rest))
            if self.dead or self._stall & CLOSING:
                return
            if used == len(rest):
                self._rest = None
            elif self.held():
                self._rest = rest[used:]
            else:
                self._keep(rest, used, len(rest))
        if self._ending is not None:
            self._rest_ended()
        elif not self._stall and (self._rest is None or not self.held()):
            self.resume_reading()

    def _ended(self) -> None:
        """The peer sends no more; it may still wait for answers."""
        self.pause_reading()
        if self._ending is None:
            self._ending = "closed by the peer"
        if not self.held():
            self.consume_rest()

    def _rest_ended(self) -> None:
        if not self.held():
            self._rest = None  # the beginning of a frame that will never be whole
        self.check_ending()

    # Sending.

    def watch_sending(self) -> None:
        """After something was sent or queued: have the loop call us when the socket takes more, if we need that."""
        if self._sending.unsent_bytes:
            if not self._writing and not self.dead:
                self._writing = True
                self.turn.readiness.add_writer(self._fd, self._writable)
        elif self._writing:
            self._writing = False
            self.turn.readiness.remove_writer(self._fd)

    def _writable(self) -> None:
        turn = self.turn
        if not turn.begun:
            turn.begin()
        sending = self._sending
        before = sending.unsent_bytes
        try:
            sending.push()
        except OSError as error:
            self.die(f"send: {error.strerror or error}")
            return
        if sending.unsent_bytes < before:
            self._active_ms = turn.now_ms
        self.watch_sending()
        self.drained()
        self.check_ending()

    # Ending.

    def end_when_sent(self, reason: str) -> None:
        """Read no more; close once nothing is to be answered or sent."""
        self.pause_reading()
        self._stall |= CLOSING
        self._ending = reason
        self._rest = None
        self._drop_large()
        self.check_ending()

    def check_ending(self) -> None:
        """Close, if that was all."""
        if self._ending is None or self.dead or self.busy() or self._rest is not None:
            return
        if self._sending.unsent_bytes == 0:
            self._say_goodbye()
            self.die(self._ending)

    def _say_goodbye(self) -> None:
        if self._layer is not None and isinstance(self._sending, LayeredSendQueue):
            try:
                self._sending.send_raw(self._layer.closing())
            except OSError:
                return  # it is only a courtesy

    def idle_since(self) -> float | None:
        """Since when nothing has moved though it was the peer's turn; ``None`` while we owe it an answer."""
        if self.busy() and not self._sending.unsent_bytes:
            return None
        return self._active_ms

    def _drop_large(self) -> None:
        if self._large is not None:
            self._large.drop()
            self._large = None

    def die(self, reason: str) -> None:
        """Close now; what is unsent is dropped, its regions released."""
        if self.dead:
            return
        self.pause_reading()
        if self._writing:
            self._writing = False
            self.turn.readiness.remove_writer(self._fd)
        self.dead = True
        self._rest = None
        self._drop_large()
        self._sending.clear()
        self._socket.close()
        self.gone(reason)
