"""A connection that we opened. Frames are passed on as they arrive; sent frames leave at the end of the turn."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.net.connections.stream import SIZE, Stream
from blumfeld.net.send_queue import BUFFERS, SendQueue
from blumfeld.net.turn import Turn
from blumfeld.spi.parts import Part, Parts, release
from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import ByteLayer, FrameReceiver, Limits


class OutboundConnection(Stream):
    """See ``blumfeld.spi.transport.DialedConnection``."""

    __slots__ = ("_dirty", "_forget", "_has_regions", "_out", "_out_bytes", "_receiver")

    def __init__(
        self,
        turn: Turn,
        queue: SendQueue,
        receiver: FrameReceiver,
        limits: Limits,
        layer: ByteLayer | None,
        forget: Callable[[OutboundConnection], None],
    ) -> None:
        super().__init__(turn, queue, limits, layer)
        self._receiver = receiver
        self._forget = forget
        self._out: list[Part] = []
        self._out_bytes = 0
        self._has_regions = False
        self._dirty = False

    def send(self, parts: Parts) -> None:
        """Send one frame at the end of this turn, after all earlier ones."""
        if self.dead or self._ending is not None:
            release(parts)
            return
        size = 0
        for part in parts:
            if isinstance(part, BUFFERS):
                size += len(part)
            else:
                size += part.size_bytes
                self._has_regions = True
        self._out.append(SIZE.pack(size))
        self._out += parts
        self._out_bytes += size + 4
        if not self._dirty:
            self._dirty = True
            self.turn.flush_at_end(self)

    def flush(self) -> None:
        """Hand the frames of this turn to the socket."""
        self._dirty = False
        out, self._out = self._out, []
        total, self._out_bytes = self._out_bytes, 0
        has_regions, self._has_regions = self._has_regions, False
        if self.dead or not out:
            return
        try:
            self._sending.send(out, total, has_regions)
        except OSError as error:
            self.die(f"send: {error.strerror or error}")
            return
        self.watch_sending()
        self.check_ending()

    def close(self) -> None:
        """Close after everything unsent was sent."""
        if not self.dead:
            self.end_when_sent("closed by us")

    def held(self) -> bool:
        """Whether the next frame must wait: only while closing."""
        return self._stall != 0

    def busy(self) -> bool:
        """Whether frames wait for the end of the turn."""
        return self._dirty

    def consume(self, view: memoryview, at: int, end: int) -> int:
        """Give complete frames to the receiver."""
        while end - at >= 4 and not self._stall:
            size = SIZE.unpack_from(view, at)[0]
            if not 0 <= size <= self._frame_bytes_max:
                self.die(f"the peer sent a frame of {size} bytes")
                return end
            after = at + 4 + size
            if after > end:
                break
            self.consume_large(view[at + 4 : after])
            at = after
        return end if self.dead else at

    def consume_large(self, frame: memoryview) -> None:
        """Give one frame to the receiver."""
        try:
            self._receiver.frame(frame)
        except Exception as error:
            self.turn.defect(error, "FrameReceiver.frame")
            self.die("a defect of ours")

    def drained(self) -> None:
        """Do nothing: reading does not depend on sending here."""

    def bound_unsent(self) -> None:
        """Do nothing: the other side is a node."""

    def abandon(self) -> None:
        """Release the frames that were not handed to the socket."""
        out, self._out = self._out, []
        release(out)

    def gone(self, reason: str) -> None:
        """Tell the receiver in this turn."""

        def tell() -> None:
            try:
                self._receiver.lost(reason)
            except Exception as error:
                self.turn.defect(error, "FrameReceiver.lost")
            self._forget(self)

        self.turn.runtime.at_end_of_turn(Phase.COMPLETE, tell)
