"""A stream of frames: what accepted and dialled connections have in common, whatever moves their bytes.

Received → cut → :meth:`Stream.consume`. What was not consumed, because it is the beginning of a frame or because it
must wait, is kept in memory of the connection's own. A driver receives and sends (``# What a driver fills in``); a
kind of connection says what a frame is for (``# What a kind of connection fills in``). A driver adds no slots to
:class:`Stream` itself, so that one class may join both.
"""

from __future__ import annotations

import struct

from blumfeld.net.receive import CARRY_BYTES_MAX, LargeFrame
from blumfeld.net.sending import LayeredSendQueue, SendQueue
from blumfeld.net.turn import Turn
from blumfeld.spi.transport import ByteLayer, Limits

SIZE = struct.Struct(">i")

MUTED = 1
FULL = 2
CLOSING = 4
STARVED = 8


class Stream:
    """One connected socket. Every method runs on the loop's thread; none raises for what the peer does."""

    __slots__ = (
        "_active_ms",
        "_ending",
        "_frame_bytes_max",
        "_large",
        "_layer",
        "_reading",
        "_rest",
        "_sending",
        "_stall",
        "_writing",
        "dead",
        "turn",
    )

    carry_bytes_max = CARRY_BYTES_MAX
    """A larger frame that comes in pieces gets a buffer of its own."""

    def __init__(self, turn: Turn, queue: SendQueue, limits: Limits, layer: ByteLayer | None) -> None:
        self.turn = turn
        self._frame_bytes_max = limits.frame_bytes_max
        self._layer = layer
        self._sending = queue if layer is None else LayeredSendQueue(queue, layer)
        self._rest: memoryview | None = None
        """Received and not consumed."""
        self._large: LargeFrame | None = None
        self._stall = 0
        """Why nothing is read: a set of MUTED, FULL, CLOSING, STARVED."""
        self._ending: str | None = None
        """The reason to close for, once all has been answered and sent."""
        self._reading = False
        """Whether the driver tells us what arrives."""
        self._writing = False
        """Whether the driver tells us when the socket takes more."""
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

    def abandon(self) -> None:
        """Release what was given to be sent and is not with the queue; release at once what still comes."""
        raise NotImplementedError

    def gone(self, reason: str) -> None:
        """The socket is closed. Called once, after :meth:`abandon`."""
        raise NotImplementedError

    def drained(self) -> None:
        """The socket has taken enough for reading to go on."""
        raise NotImplementedError

    # What a driver fills in.

    def begin(self) -> None:
        """The connection is open: read, unless something forbids it."""
        if not self._stall:
            self.resume_reading()

    def resume_reading(self) -> None:
        """Receive, from now on. Does nothing when it does, or on a dead connection."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Leave what arrives to the kernel, which tells the peer. What arrives all the same is kept."""
        raise NotImplementedError

    def watch_sending(self) -> None:
        """After something was sent or queued: see to it that what is unsent leaves when the socket takes it."""
        raise NotImplementedError

    def hang_up(self, reason: str) -> None:
        """Close the socket, then call :meth:`hung_up`: now, or once the kernel holds nothing of ours any more."""
        raise NotImplementedError

    # Receiving.

    def _keep(self, view: memoryview, at: int, end: int) -> None:
        """Keep ``view[at:end]``, which was not consumed, beyond this turn."""
        self._rest = None
        if self._stall & CLOSING or self.dead:
            return
        if end - at >= 4 and not self.held():
            size = SIZE.unpack_from(view, at)[0]
            if size > self.carry_bytes_max:
                self._large = LargeFrame(self.turn.pool, size, view[at + 4 : end], self)
                return
        if at != end:
            self._rest = memoryview(bytearray(view[at:end]))

    def take_layered(self, data: memoryview) -> None:
        """Bytes of the socket, for the layer. They may be overwritten when this returns."""
        turn, layer, sending = self.turn, self._layer, self._sending
        if layer is None:
            return  # it has said goodbye
        assert isinstance(sending, LayeredSendQueue)
        try:
            plain, reply = layer.received(data)
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
                if self._large.starved():
                    self._starve()
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

    # The memory of all connections: see ``blumfeld.net.memory.Receiver``.

    def _starve(self) -> None:
        """The large frame must wait for memory: leave what arrives to the kernel."""
        self._stall |= STARVED
        self.pause_reading()

    def fed_memory(self) -> None:
        """The large frame may grow: read on, unless something else forbids it."""
        self._stall &= ~STARVED
        self._active_ms = self.turn.runtime.monotonic_ms()
        if not self._stall and not self.dead:
            self.resume_reading()

    def muted(self) -> bool:
        """Whether the peer may send nothing for a while, by our own decision."""
        return self._stall & MUTED != 0

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
            if self._sending.unsent_bytes == 0:
                self.die(self._ending)

    def _say_goodbye(self) -> None:
        layer, self._layer = self._layer, None
        if layer is None or not isinstance(self._sending, LayeredSendQueue):
            return
        self.pause_reading()
        self._stall |= CLOSING
        try:
            self._sending.send_raw(layer.closing())
        except OSError:
            return  # it is only a courtesy
        self.watch_sending()

    def idle_since(self) -> float | None:
        """Since when nothing has moved though it was the peer's turn; ``None`` while we owe it an answer.

        A peer that sends no more may have died instead of waiting: it is not waited for longer than that.
        """
        if self.busy() and not self._sending.unsent_bytes and self._ending is None:
            return None
        if self._stall & STARVED:
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
        self.dead = True
        self._rest = None
        self.abandon()
        self.hang_up(reason)

    def hung_up(self, reason: str) -> None:
        """The socket is closed, and nobody reads or writes memory of ours for it any more."""
        self._drop_large()
        self._sending.clear()
        self.gone(reason)
