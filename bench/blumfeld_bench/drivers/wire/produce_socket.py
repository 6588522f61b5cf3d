"""Sockets that send prepared Produce requests and take their answers, and the set of all that a process has."""

from __future__ import annotations

import errno
import itertools
import random
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns, time_ns

from blumfeld.client.errors import error_name
from blumfeld_bench.drivers.frames import ProduceFrame
from blumfeld_bench.drivers.loop import EPOLLOUT, Loop
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.schedule import Schedule
from blumfeld_bench.drivers.spec import share

RECEIVE_BYTES = 16384
OFFERS_MAX = 64
"""Requests sent in one go when several are due; then answers are read."""

Next = Callable[[], ProduceFrame | None]


class ProduceSocket:
    """One connection of a producer to one broker, with up to ``in_flight`` requests open.

    In a closed loop (:meth:`start`) it keeps that many open. In an open one (:meth:`offer`) it sends due requests
    while there is room, and queues the rest. In both, a request's latency counts from its intended time.
    """

    __slots__ = (
        "_answer",
        "_answer_bytes",
        "_broken",
        "_expected",
        "_in_flight",
        "_loop",
        "_meter",
        "_next",
        "_number",
        "_open",
        "_queue",
        "_rest",
        "_silent",
        "_socket",
        "_stamping",
        "_unsent",
    )

    def __init__(
        self,
        loop: Loop,
        meter: Meter,
        sock: socket.socket,
        topic: str,
        in_flight: int,
        acks: int,
        stamping: bool,
    ) -> None:
        self._loop, self._meter, self._socket = loop, meter, sock
        self._in_flight = in_flight
        self._silent = acks == 0
        self._stamping = stamping
        # version 7: length, correlation id, one topic, its name, one partition, its index, the error; then 28 bytes
        self._answer = struct.Struct(f">ii4x2x{len(topic.encode())}x4x4xh")
        self._answer_bytes = self._answer.size + 28
        self._number = self._expected = 1
        self._open: deque[tuple[int, ProduceFrame]] = deque()
        self._queue: deque[tuple[int, ProduceFrame]] = deque()
        self._unsent: deque[bytes] = deque()
        self._rest = b""
        self._next: Next | None = None
        self._broken = False
        loop.add(sock, self._ready)

    @property
    def waiting(self) -> int:
        """Return the number of requests without an answer, sent or queued."""
        return len(self._open) + len(self._queue)

    @property
    def broken(self) -> bool:
        """Whether the connection has ended."""
        return self._broken

    def start(self, following: Next) -> None:
        """From now on, keep as many requests open as are allowed."""
        self._next = following
        self._refill(monotonic_ns())

    def stop(self) -> None:
        """Start no new requests."""
        self._next = None

    def offer(self, intended_ns: int, due_ns: int, frame: ProduceFrame) -> None:
        """Send a due request now, or as soon as there is room."""
        if self._broken:
            self._meter.fault("a request was due on a connection that has ended")
        elif len(self._open) < self._in_flight and not self._queue:
            now = monotonic_ns()
            if intended_ns >= self._meter.measure_ns:
                self._meter.late.append(now - due_ns)
            self._send(intended_ns, frame)
        else:
            self._queue.append((intended_ns, frame))

    def give_up(self, now_ns: int) -> None:
        """Count open requests with their age, so that the tail shows them: the drain is over."""
        for intended_ns, _ in (*self._open, *self._queue):
            self._meter.ack(intended_ns, now_ns)
        self._meter.fault("a request was not answered before the drain ended", len(self._open))
        self._open.clear()
        self._queue.clear()

    def close(self) -> None:
        """Close the connection; harmless twice."""
        self._loop.remove(self._socket)
        self._socket.close()

    def _send(self, intended_ns: int, frame: ProduceFrame) -> None:
        frame.number(self._number)
        self._number += 1
        if self._stamping:
            frame.stamp(intended_ns, time_ns() // 1_000_000)
        if not self._silent:
            self._open.append((intended_ns, frame))
        if self._unsent:
            self._unsent.append(bytes(frame.data))
            return
        try:
            sent = self._socket.send(frame.data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._break(error)
            return
        if sent < len(frame.data):
            self._unsent.append(bytes(memoryview(frame.data)[sent:]))
            self._loop.watch_writing(self._socket, True)
        elif self._silent:
            self._acknowledged(intended_ns, frame, monotonic_ns())

    def _ready(self, mask: int) -> None:
        if mask & EPOLLOUT:
            self._flush()
        if mask & ~EPOLLOUT and not self._broken:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        now = monotonic_ns()
        if not data:
            self._break(ConnectionResetError(errno.ECONNRESET, "the server hung up"))
            return
        if self._rest:
            data = self._rest + data
        at, size, end = 0, self._answer_bytes, len(data)
        while end - at >= size and self._open:
            length, number, error_code = self._answer.unpack_from(data, at)
            if length != size - 4 or number != self._expected:
                self._break(
                    ValueError(f"answer {number} of {length} bytes where {self._expected} was expected")
                )
                return
            self._expected += 1
            intended_ns, frame = self._open.popleft()
            if error_code:
                self._meter.fault(f"Produce: {error_name(error_code)}")
            else:
                self._acknowledged(intended_ns, frame, now)
            at += size
        self._rest = data[at:]
        if self._rest and not self._may_follow():
            self._break(ValueError(f"{self._rest[:16]!r} is no answer to a request"))
            return
        self._refill(now)

    def _acknowledged(self, intended_ns: int, frame: ProduceFrame, now_ns: int) -> None:
        meter = self._meter
        latency = now_ns - intended_ns
        meter.acks.append(latency if intended_ns >= meter.measure_ns else -latency)
        meter.requests += 1
        meter.records += frame.records
        meter.bytes += frame.value_bytes

    def _may_follow(self) -> bool:
        """Whether the bytes after the last answer can be the beginning of another one."""
        size = (self._answer_bytes - 4).to_bytes(4, "big")
        return bool(self._open) and size.startswith(self._rest[:4])

    def _refill(self, now_ns: int) -> None:
        opened, queue, following = self._open, self._queue, self._next
        while len(opened) < self._in_flight and not self._broken:
            if queue:
                self._send(*queue.popleft())
            elif following is not None and not self._unsent:
                frame = following()
                if frame is None:
                    self._next = None
                    return
                self._send(monotonic_ns(), frame)
                # With acks=0 no answer fills up in_flight: only one request a turn, or this loop would never end.
                if self._silent:
                    self._loop.watch_writing(self._socket, True)
                    return
            else:
                return

    def _flush(self) -> None:
        while self._unsent:
            data = self._unsent[0]
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                return
            except OSError as error:
                self._break(error)
                return
            if sent < len(data):
                self._unsent[0] = data[sent:]
                return
            self._unsent.popleft()
        self._loop.watch_writing(self._socket, False)
        self._refill(monotonic_ns())

    def _break(self, error: Exception) -> None:
        """Mark the connection as ended: each open request is lost and counts as an error."""
        self._meter.fault(f"a connection ended: {error}", max(1, self.waiting))
        self._broken = True
        self._open.clear()
        self._queue.clear()
        self.close()


class Producers:
    """All producers of a process, and the requests that they send."""

    def __init__(
        self, lanes: Sequence[Sequence[ProduceSocket]], pools: Sequence[Sequence[ProduceFrame]]
    ) -> None:
        """:param lanes: for each connection its sockets, one for each leader
        :param pools: for each leader its requests
        """
        self._lanes = lanes
        self._pools = pools
        self._frames = [(leader, frame) for leader, pool in enumerate(pools) for frame in pool]
        if len(pools) > 1:
            random.Random(len(self._frames)).shuffle(self._frames)
        self._sent = 0
        self.schedule: Schedule | None = None
        self.sockets = [sock for lane in lanes for sock in lane]

    @property
    def waiting(self) -> int:
        """Return the number of requests without an answer."""
        return sum(sock.waiting for sock in self.sockets)

    @property
    def all_broken(self) -> bool:
        """Whether no connection is left."""
        return all(sock.broken for sock in self.sockets)

    def start_closed(self, requests_max: int) -> None:
        """Keep every socket full until ``requests_max`` requests were sent (0: without end), evenly over the
        leaders.
        """
        takes = []
        for leader, pool in enumerate(self._pools):
            frames: Iterator[ProduceFrame] = itertools.cycle(pool)
            if requests_max:
                frames = itertools.islice(frames, len(share(requests_max, leader, len(self._pools))))
            takes.append(itertools.chain(frames, itertools.repeat(None)).__next__)
        for lane in self._lanes:
            for sock, take in zip(lane, takes, strict=True):
                sock.start(take)

    def offer_due(self, now_ns: int) -> None:
        """Send or queue the requests that are due by now, at most so many that answers aren't kept waiting."""
        schedule = self.schedule
        assert schedule is not None
        for _ in range(OFFERS_MAX):
            if schedule.due_ns > now_ns or schedule.over:
                return
            leader, frame = self._frames[self._sent % len(self._frames)]
            lane = self._lanes[self._sent % len(self._lanes)]
            lane[leader].offer(schedule.intended_ns, schedule.due_ns, frame)
            self._sent += 1
            schedule.advance()

    def stop(self) -> None:
        """Start no new requests; open ones go on."""
        for sock in self.sockets:
            sock.stop()
