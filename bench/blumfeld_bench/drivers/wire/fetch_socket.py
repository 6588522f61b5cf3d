"""The reading side of a driver process: sockets that fetch and count.

Each connection sends plain Fetch requests without a session (KIP-227), one at a time, for all its partitions. The
driver keeps positions and deals partitions itself; it asks no group coordinator (the librdkafka driver joins real
groups). Records are counted from batch headers. Only the first record of a batch is parsed, for its intended time and
its size beside its value.
"""

from __future__ import annotations

import socket
import struct
from time import monotonic_ns

from blumfeld.client.errors import error_name
from blumfeld.wire.batches.record_batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from blumfeld_bench.drivers.frames import first_value
from blumfeld_bench.drivers.loop import EPOLLOUT, Loop
from blumfeld_bench.drivers.meter import Meter

BUFFER_BYTES = 262_144
"""Initial size of the receive buffer; it grows to the largest answer."""
GRACE_NS = 300_000_000
"""Time after the end for which a reader that has read everything waits for more."""

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_ANSWER = struct.Struct(">4xi4xhii")  # length, correlation id, throttle, error, session, topics
_NAME = struct.Struct(">h")
_PARTITION = struct.Struct(">ihqqqi")  # index, error, high watermark, stable, log start, aborted transactions
_RECORDS = struct.Struct(">ii")  # preferred replica, bytes of records
_BATCH = struct.Struct(">qi11xi30xi")  # base offset, length, last offset delta, records
_STAMP = struct.Struct(">q")
_ABORTED_BYTES = 16


class FetchSocket:
    """One consumer's connection to one broker, for those of its partitions that this broker leads.

    :param frame: the request; ``offset_at`` has the place of each partition's offset in it
    """

    def __init__(
        self,
        loop: Loop,
        meter: Meter,
        sock: socket.socket,
        frame: bytearray,
        offset_at: dict[int, int],
    ) -> None:
        self._loop, self._meter, self._socket = loop, meter, sock
        self._frame, self._offset_at = frame, offset_at
        self._positions = {index: _I64.unpack_from(frame, at)[0] for index, at in offset_at.items()}
        self._behind = set(offset_at)
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._number = 0
        self._asked_ns = self._known_ns = 0
        self._stopped = False
        self.broken = False
        loop.add(sock, self._ready)

    @property
    def level(self) -> bool:
        """Whether everything was read that the last answer knew of."""
        return not self._behind

    def level_since(self, at_ns: int) -> bool:
        """Whether everything was read, by an answer to a request sent at ``at_ns`` or later: that answer knew all data
        of then.
        """
        return not self._behind and self._known_ns >= at_ns

    def start(self) -> None:
        """Send the first request."""
        self._ask(monotonic_ns())

    def stop(self) -> None:
        """Send no more requests."""
        self._stopped = True

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._loop.remove(self._socket)
        self._socket.close()

    def _ask(self, now_ns: int) -> None:
        if self._stopped:
            return
        self._asked_ns = now_ns
        self._number += 1
        _I32.pack_into(self._frame, 8, self._number)
        try:
            sent = self._socket.send(self._frame)
            if sent < len(
                self._frame
            ):  # at most one small request is ever open, so a partial send means the connection is broken
                raise OSError("the server takes no more bytes of a request")
        except OSError as error:
            self._break(error)

    def _ready(self, mask: int) -> None:
        if mask == EPOLLOUT or self.broken:
            return
        try:
            got = self._socket.recv_into(self._view[self._filled :])
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        if not got:
            self._break(OSError("the server hung up"))
            return
        self._filled += got
        if self._filled < 4:
            return
        size = _I32.unpack_from(self._buffer)[0] + 4
        if self._filled < size:
            if size > len(self._buffer):
                self._grow(size)
            return
        now = monotonic_ns()
        self._filled = 0
        try:
            self._take(self._view[:size], now)
        except (struct.error, LookupError, ValueError) as error:
            self._break(error)
            return
        self._known_ns = self._asked_ns
        self._ask(now)

    def _grow(self, size: int) -> None:
        larger = bytearray(size)
        larger[: self._filled] = self._view[: self._filled]
        self._buffer, self._view = larger, memoryview(larger)

    def _take(self, answer: memoryview, now_ns: int) -> None:
        number, error, _session, topics = _ANSWER.unpack_from(answer)
        if number != self._number:
            raise ValueError(f"answer {number} where {self._number} was expected")
        if error:
            self._meter.fault(f"Fetch: {error_name(error)}")
        at = _ANSWER.size
        before = self._meter.received_records
        for _ in range(topics):
            at += 2 + _NAME.unpack_from(answer, at)[0]
            (partitions,) = _I32.unpack_from(answer, at)
            at += 4
            for _ in range(partitions):
                at = self._take_partition(answer, at, now_ns)
        if self._meter.received_records > before:
            self._meter.fetches += 1

    def _take_partition(self, answer: memoryview, at: int, now_ns: int) -> int:
        index, error, high_watermark, _, _, aborted = _PARTITION.unpack_from(answer, at)
        at += _PARTITION.size + max(aborted, 0) * _ABORTED_BYTES
        size: int = _RECORDS.unpack_from(answer, at)[1]
        at += _RECORDS.size
        end = at + max(size, 0)
        if error:
            self._meter.fault(f"Fetch of partition {index}: {error_name(error)}")
        elif size > 0:
            following = self._take_batches(answer, at, end, now_ns)
            if following > self._positions[index]:
                self._positions[index] = following
                _I64.pack_into(self._frame, self._offset_at[index], following)
        if self._positions[index] >= high_watermark and not error:
            self._behind.discard(index)
        else:
            self._behind.add(index)
        return end

    def _take_batches(self, answer: memoryview, at: int, end: int, now_ns: int) -> int:
        """Count whole batches; return the offset after the last one, or -1."""
        meter = self._meter
        following = -1
        while end - at >= HEADER_BYTES:
            base_offset, length, last_delta, records = _BATCH.unpack_from(answer, at)
            size = length + LOG_OVERHEAD_BYTES
            if at + size > end:
                break  # a fetch may cut off the last batch
            value_at, value_bytes, record_end = first_value(answer, at + HEADER_BYTES)
            beside = record_end - at - HEADER_BYTES - value_bytes
            meter.received_records += records
            meter.received_bytes += size - HEADER_BYTES - records * beside - _longer_deltas(records)
            if value_bytes >= 8:
                meter.end_to_end(_STAMP.unpack_from(answer, value_at)[0], now_ns)
            following = int(base_offset + last_delta + 1)
            at += size
        return following

    def _break(self, error: Exception) -> None:
        self._meter.fault(f"a consumer's connection ended: {error}")
        self.broken = True
        self.close()


def _longer_deltas(records: int) -> int:
    """Return the bytes that a batch's offset deltas take beyond one each, as varints."""
    return max(0, records - 64) + max(0, records - 8192)


class IdleSocket:
    """A client that sends one ApiVersions request and then stays silent. It counts an error if the server closes the
    connection.
    """

    def __init__(self, loop: Loop, meter: Meter, sock: socket.socket) -> None:
        self._loop, self._meter, self._socket = loop, meter, sock
        loop.add(sock, self._ready)

    def _ready(self, mask: int) -> None:
        try:
            self._socket.recv(1)
        except BlockingIOError:
            return  # a message of TLS itself, such as a ticket
        except OSError:
            pass
        self._meter.fault("an idle connection got data or was closed")
        self.close()

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._loop.remove(self._socket)
        self._socket.close()
