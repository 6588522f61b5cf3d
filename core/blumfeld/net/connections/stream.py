"""A stream of frames: the common part of accepted and dialled connections on every driver.

Received bytes are cut into frames, which go to :meth:`Stream.consume`. Bytes that are not consumed (the beginning of a
frame, or frames that must wait) are kept in memory of the connection's own.

Two kinds of subclass fill in the rest. A driver receives and sends (``# What a driver fills in``). A kind of connection
handles frames (``# What a kind of connection fills in``). One class inherits from both, which is why a driver class
adds no slots of its own.
"""

from __future__ import annotations

import struct

from blumfeld.net.send_queue import LayeredSendQueue, SendQueue
from blumfeld.net.turn import CARRY_BYTES_MAX, LargeFrame, Turn
from blumfeld.spi.transport import ByteLayer, Limits

SIZE = struct.Struct(">i")

MUTED = 1
FULL = 2
CLOSING = 4
STARVED = 8
ELSEWHERE = 16


class Stream:
    """One connected socket. Every method runs on the loop's thread; none raises for what the peer does."""

    __slots__ = (
        "_active_ms",
        "_ending",
        "_frame_bytes_max",
        "_goodbye",
        "_greeting",
        "_large",
        "_reading",
        "_rest",
        "_sending",
        "_stall",
        "_writing",
        "dead",
        "layer",
        "turn",
    )

    carry_bytes_max = CARRY_BYTES_MAX
    """A larger frame that comes in pieces gets a buffer of its own."""

    def __init__(self, turn: Turn, queue: SendQueue, limits: Limits, layer: ByteLayer | None) -> None:
        self.turn = turn
        self._frame_bytes_max = limits.frame_bytes_max
        self.layer = layer
        self._sending = queue if layer is None else LayeredSendQueue(queue, layer)
        self._rest: memoryview | None = None
        """Bytes that were received and not consumed."""
        self._large: LargeFrame | None = None
        self._stall = 0
        """The reasons why nothing is read: bits MUTED, FULL, CLOSING, STARVED, ELSEWHERE."""
        self._ending: str | None = None
        """The reason for closing, set while the connection only waits until everything is answered and sent."""
        self._reading = False
        """Whether the driver calls us when bytes arrive."""
        self._writing = False
        """Whether the driver calls us when the socket takes more bytes."""
        # Not the turn's time: that is old if nothing was received for long, and the peer would pass for idle.
        self._active_ms = turn.runtime.monotonic_ms()
        self.dead = False
        self._goodbye = layer is None
        """Whether the layer has given its last bytes."""
        self._greeting = layer is not None
        """Whether the layer has given no plain bytes yet: its handshake comes first."""
        if layer is not None:
            layer.attach(self._layer_resumed)

    # Filled in by a kind of connection.

    def consume(self, view: memoryview, at: int, end: int) -> int:
        """Take the complete frames of ``view[at:end]`` that may start now. Returns the position of the first one
        left."""
        raise NotImplementedError

    def consume_large(self, frame: memoryview) -> None:
        """Take one complete frame. Called only when a frame may start."""
        raise NotImplementedError

    def held(self) -> bool:
        """Whether the next frame must wait."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Whether answers are still to come."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Release the answers that were not handed to the send queue, and from now on each later one when it comes."""
        raise NotImplementedError

    def gone(self, reason: str) -> None:
        """Take note that the socket is closed. Called once, after :meth:`abandon`."""
        raise NotImplementedError

    def drained(self) -> None:
        """Take note that the socket took bytes, so that reading may go on."""
        raise NotImplementedError

    def bound_unsent(self) -> None:
        """Read no more while too much is unsent, for instance bytes of a layer's own."""
        raise NotImplementedError

    # Filled in by a driver.

    def begin(self) -> None:
        """Begin to read, unless there is a reason not to."""
        if not self._stall:
            self.resume_reading()

    def resume_reading(self) -> None:
        """Receive from now on. Does nothing if it receives already, or on a dead connection."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Receive nothing from now on: the kernel's buffer fills and holds the peer back. Bytes that a driver still
        receives are kept."""
        raise NotImplementedError

    def watch_sending(self) -> None:
        """Send the unsent bytes when the socket takes them. Called after something was sent or queued."""
        raise NotImplementedError

    def hang_up(self, reason: str) -> None:
        """Close the socket, then call :meth:`hung_up`: at once, or when the kernel uses none of our memory any more."""
        raise NotImplementedError

    # Receiving.

    def _keep(self, view: memoryview, at: int, end: int) -> None:
        """Copy ``view[at:end]``, which was not consumed: the turn's memory is overwritten in the next turn."""
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
        """Pass received bytes through the byte layer. They may be overwritten after this returns."""
        turn, layer, sending = self.turn, self.layer, self._sending
        if layer is None or self._goodbye:
            return
        assert isinstance(sending, LayeredSendQueue)
        try:
            plain, reply = layer.received(data)
            if reply:
                sending.send_raw(reply)
        except OSError as error:  # ConnectionError is one
            self.end_when_sent(f"byte layer: {error}")
            return
        except Exception as error:
            turn.defect(error, "ByteLayer.received")
            self.die("a defect of ours")
            return
        if reply:
            self.watch_sending()
            self.bound_unsent()
        if plain and not self.dead:
            self._greeting = False
            self._feed(plain)
        if layer.waiting and not self.dead:
            self._stall |= ELSEWHERE
            self.pause_reading()

    def _layer_resumed(self) -> None:
        """Take what the layer has, and read on unless there is another reason not to."""
        if self.dead or self._goodbye:
            return
        self._stall &= ~ELSEWHERE
        if not self.turn.begun:
            self.turn.begin()
        self.take_layered(memoryview(b""))
        if not self.dead and not self.held():
            self.consume_rest()

    def _feed(self, plain: bytes) -> None:
        """Take plain bytes from the layer. They are copied, because a handler may write into a frame (offsets)."""
        at = 0
        if self._large is not None:
            at = self._large.fill_from(memoryview(plain))
            if not self._large.complete:
                if self._large.starved():
                    self._starve()
                return
            if not self.held():
                frame, self._large = self._large.take(), None
                self.consume_large(frame)
        rest, self._rest = self._rest, None
        view = memoryview(bytearray(plain[at:]) if rest is None else bytearray(rest) + plain[at:])
        end = len(view)
        used = self.consume(view, 0, end)
        if used != end:
            self._keep(view, used, end)

    def consume_rest(self) -> None:
        """Take the frames that were received during a hold, then read on. A large one that was completed meanwhile
        comes before the rest."""
        large = self._large
        if large is not None and large.complete:
            if self.held():
                return
            self._large = None
            self.consume_large(large.take())
            if self.dead:
                return
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
        """Take note that the peer sends no more. It may still wait for answers."""
        self.pause_reading()
        if self._ending is None:
            self._ending = "closed by the peer"
        if not self.held():
            self.consume_rest()

    def _rest_ended(self) -> None:
        if not self.held():
            self._rest = None  # the beginning of a frame that will never be complete
        self.check_ending()

    # The memory of all connections: see ``blumfeld.net.memory.Receiver``.

    def _starve(self) -> None:
        """Read nothing until the large frame gets memory."""
        self._stall |= STARVED
        self.pause_reading()

    def fed_memory(self) -> None:
        """Read on, because the large frame got memory; unless there is another reason not to."""
        self._stall &= ~STARVED
        self._active_ms = self.turn.runtime.monotonic_ms()
        if not self._stall and not self.dead:
            self.resume_reading()

    def muted(self) -> bool:
        """Whether we have muted the peer for a while."""
        return self._stall & MUTED != 0

    # Ending.

    def end_when_sent(self, reason: str) -> None:
        """Read no more, and close once everything is answered and sent."""
        self.pause_reading()
        self._stall |= CLOSING
        self._ending = reason
        self._rest = None
        self._drop_large()
        self.check_ending()

    def check_ending(self) -> None:
        """Close, if the connection is ending and nothing is left to answer or send."""
        if self._ending is None or self.dead or self.busy() or self._rest is not None:
            return
        if self._sending.unsent_bytes == 0:
            self._say_goodbye()
            if self._sending.unsent_bytes == 0:
                self.die(self._ending)

    def _say_goodbye(self) -> None:
        layer, sending = self.layer, self._sending
        if layer is None or self._goodbye or not isinstance(sending, LayeredSendQueue):
            return
        self._goodbye = True
        self.pause_reading()
        self._stall |= CLOSING
        try:
            sending.send_raw(layer.closing())
        except OSError:
            return  # the peer has gone, and the closing bytes are only a courtesy
        self.watch_sending()

    def idle_since(self) -> float | None:
        """Returns the monotonic time since which the peer has been idle; ``None`` while the peer waits for us.

        A peer that has closed its side counts as idle even while we owe it answers: it may have died.
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
        """Close now. Unsent bytes are dropped, and their file regions released."""
        if self.dead:
            return
        self.pause_reading()
        self.dead = True
        self._rest = None
        self.abandon()
        self.hang_up(reason)

    def hung_up(self, reason: str) -> None:
        """Finish the end of the connection: its socket is closed, and the kernel uses none of our memory any more."""
        self._drop_large()
        self._sending.clear()
        if self.layer is not None:
            self._goodbye = True
            self.layer.detach()
        self.gone(reason)
