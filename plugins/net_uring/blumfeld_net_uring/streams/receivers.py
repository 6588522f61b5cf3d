"""Two ways to receive on the ring: into buffers that the kernel picks (:class:`GroupStream`), or after a poll
(:class:`PolledStream`: kernels without buffer groups, and byte layers).
"""

from __future__ import annotations

import errno
import select
from typing import TYPE_CHECKING

from blumfeld.net.connections.stream import CLOSING
from blumfeld.net.readiness.streams import ReadableStream
from blumfeld.net.send_queue import LayeredSendQueue
from blumfeld.net.turn import LargeFrame
from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.buffers import address_of
from blumfeld_net_uring.io_uring.ring import IGNORED
from blumfeld_net_uring.streams.send_queue import error_of
from blumfeld_net_uring.streams.stream import SLOTS, UringStream

DIRECT_BYTES_MIN = 65_536
"""If more than this is missing of a large frame, the kernel writes it directly into the frame, at the price
of a cancelled receive. Fewer bytes are copied.
"""
_AGAIN = (-errno.ECANCELED, -errno.EAGAIN, -errno.EINTR)

GROUP_SLOTS = (*SLOTS, "_direct", "_expects_large")
POLLED_SLOTS = (*SLOTS, "_read_bytes", "_recv_into")


class GroupStream(UringStream):
    """Receives into the transport's buffer group. With multishot one entry receives everything."""

    if not TYPE_CHECKING:
        __slots__ = ()

    carry_bytes_max = 0  # Bytes are joined at the frame's final place, so each is copied once.

    _direct: LargeFrame | None
    """The frame that the kernel writes into. Held until that operation has completed, even if the connection
    dies.
    """
    _expects_large: bool
    """Whether the last frame was so large that the next receive had better be a single one."""

    def resume_reading(self) -> None:
        """Start to receive."""
        if not self._reading and not self.dead:
            self._reading = True
            if not self._armed:
                self._arm()

    def pause_reading(self) -> None:
        """Cancel the receive. Bytes that arrive until it ends are kept."""
        self._reading = False
        if self._armed and not self._cancelled:
            self._cancelled = True
            self.turn.ring.cancel(IGNORED, self._recv_token)

    def fed(self) -> None:
        """Continue after starvation: buffers are free again."""
        if self._reading and not self._armed and not self.dead:
            self._arm()

    def _arm(self, poll_first: bool = False) -> None:
        turn, large = self.turn, self._large
        if large is not None and large.missing > DIRECT_BYTES_MIN // 2:
            if large.starved():
                self._starve()
                return
            self._armed = True
            room = large.room()
            self._direct = large
            turn.ring.recv(self._recv_token, self._fd, address_of(room), len(room))
            return
        self._armed = True
        assert turn.group is not None
        if turn.multishot and not self._expects_large:
            mode = abi.RECV_MULTISHOT
        else:
            mode = abi.RECVSEND_POLL_FIRST if poll_first else 0
        turn.ring.recv_group(self._recv_token, self._fd, turn.group.group, mode)

    def _received(self, result: int, flags: int) -> None:
        if flags & 1:  # CQE_F_BUFFER
            turn = self.turn
            buffer_id = flags >> 16
            turn.taken.append(buffer_id)
            if not turn.begun:
                turn.begin()
            if result > 0 and not self.dead:
                self._active_ms = turn.now_ms
                view = turn.views[buffer_id]
                if self._rest is None and self._large is None:
                    used = self.consume(view, 0, result)
                    if used != result:
                        self._keep(view, used, result)
                        if self._large is not None:
                            self._large_begun(self._large)
                else:
                    self._join(view[:result])
        if not flags & 2:  # CQE_F_MORE
            self._receive_ended(result, flags)

    def _join(self, data: memoryview) -> None:
        """Join bytes to earlier ones that were kept. Take complete frames and keep the rest."""
        if self._stall & CLOSING:
            return
        large = self._large
        if large is not None:
            data = data[large.fill_from(data) :]
            if not large.complete:
                if large.starved():
                    self._starve()
                else:
                    self._large_begun(large)
                return
            if not self.held():
                self._large = None
                self.consume_large(large.take())
        elif self._rest is not None:
            data = memoryview(bytearray(self._rest) + data)
            self._rest = None
        if self._large is not None or self.held():
            self._hold(data)
            return
        used = self.consume(data, 0, len(data))
        if used != len(data):
            self._keep(data, used, len(data))
            if self._large is not None:
                self._large_begun(self._large)

    def _hold(self, data: memoryview) -> None:
        """Keep the bytes behind all earlier ones until the hold is lifted, and stop receiving."""
        self.pause_reading()
        if self._stall & CLOSING or self.dead or not data:
            return
        rest = self._rest
        self._rest = memoryview(bytearray(data) if rest is None else bytearray(rest) + data)

    def _large_begun(self, large: LargeFrame) -> None:
        """Much of the frame is missing: end the receive, so that the next one goes directly into the frame."""
        if large.missing > DIRECT_BYTES_MIN:
            self._expects_large = True
            if self._armed and not self._cancelled and self.turn.multishot:
                self._cancelled = True
                self.turn.ring.cancel(IGNORED, self._recv_token)

    def _receive_ended(self, result: int, flags: int) -> None:
        """The entry in flight has ended. Queue the next one."""
        self._armed = self._cancelled = False
        direct, self._direct = self._direct, None
        if direct is not None and direct is not self._large:
            direct.drop()
            direct = None
        if self.dead:
            self._let_go()
        elif direct is not None and result > 0:
            self._direct_received(direct, result)
        elif result == 0:
            self._ended()
        elif result == -errno.ENOBUFS:
            if self._reading and self.turn.starve(self.fed):
                self._arm()
        elif result < 0 and result not in _AGAIN:
            self.die(f"receive: {error_of(result).strerror}")
        elif self._reading:
            if result > 0 and self._large is None:
                self._expects_large = False
            self._arm(poll_first=not flags & abi.CQE_F_SOCK_NONEMPTY)

    def _direct_received(self, large: LargeFrame, count: int) -> None:
        turn = self.turn
        if not turn.begun:
            turn.begin()
        self._active_ms = turn.now_ms
        if large.filled(count):
            if self.held():
                self.pause_reading()
                return
            self._large = None
            self.consume_large(large.take())
        if self._reading and not self._armed and not self.dead:
            self._arm()

    def _drop_large(self) -> None:
        if self._large is self._direct:
            self._large = None  # Kept until the kernel no longer writes into it.
        else:
            super()._drop_large()


class PolledStream(UringStream, ReadableStream):
    """Receives by its own system call after a polling entry has reported data."""

    if not TYPE_CHECKING:
        __slots__ = ()

    def resume_reading(self) -> None:
        """Start to receive."""
        if not self._reading and not self.dead:
            self._reading = True
            if not self._armed:
                self._arm()

    def pause_reading(self) -> None:
        """Stop: arriving bytes stay in the kernel, which slows the peer."""
        self._reading = False
        if self._armed and not self._cancelled:
            self._cancelled = True
            self.turn.ring.cancel(IGNORED, self._recv_token)

    def _arm(self) -> None:
        self._armed = True
        self.turn.ring.poll_add(self._recv_token, self._fd, select.POLLIN)

    def _received(self, result: int, flags: int) -> None:
        self._armed = self._cancelled = False
        if self.dead:
            self._let_go()
            return
        if result < 0 and result not in _AGAIN:
            self.die(f"receive: {error_of(result).strerror}")
            return
        if self._reading and result > 0:
            if isinstance(self._sending, LayeredSendQueue):
                self._readable_layered()
            else:
                self._readable()
        if self._reading and not self._armed and not self.dead:
            self._arm()
