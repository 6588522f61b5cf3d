"""One process of the wire driver: ``python -m blumfeld_bench.drivers.wire.process``. Its messages are those of
``spec``.

One thread, one epoll, no garbage collection while it measures.
"""

from __future__ import annotations

import itertools
import time
from time import monotonic_ns
from typing import BinaryIO

from blumfeld_bench.drivers.connections import connect, connect_idle
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.frames import fetch_frame, produce_pool
from blumfeld_bench.drivers.load import DRAIN_NS, EVENTS_MAX, Load, live
from blumfeld_bench.drivers.loop import SPIN_NS, SPIN_SHARE
from blumfeld_bench.drivers.schedule import Schedule
from blumfeld_bench.drivers.spec import Begin, ProcessSpec, share
from blumfeld_bench.drivers.wire.fetch_socket import GRACE_NS, FetchSocket, IdleSocket
from blumfeld_bench.drivers.wire.produce_socket import Producers, ProduceSocket
from blumfeld_bench.drivers.wire_client import EARLIEST, LATEST, Leader, WireClient
from blumfeld_bench.security import security_at

EVENTS_OPEN = 16
"""Events handled at a time while requests are due."""


class WireLoad(Load):
    """All connections of this process, through the phases of a step."""

    def __init__(self, spec: ProcessSpec, out: BinaryIO) -> None:
        super().__init__(spec, out)
        self._security = security_at(spec.command_config)
        self._acked_ns = 0
        self._fetch_wait_ns = spec.step.consume.max_wait_ms * 1_000_000 if spec.step.consume else 0
        leaders = sorted(set(spec.leaders))
        self._leaders = leaders
        self._led = [[index for index, at in enumerate(spec.leaders) if at == leader] for leader in leaders]
        self._idle = [IdleSocket(self._loop, self._meter, sock) for sock in connect_idle(spec)]
        self._readers = self._connect_readers()
        self._producers = self._connect_producers()
        self._may_end = self._step.produce is None or bool(spec.requests_max)

    def _all_done(self) -> bool:
        """Whether the step has ended by itself: all requests of a limited number are answered, or existing data is read
        to its end.
        """
        consume, producers = self._step.consume, self._producers
        if self._spec.requests_max and producers is not None:
            return producers.all_broken or not producers.waiting
        if self._step.produce is None and consume is not None and consume.start == "earliest":
            return all(reader.level or reader.broken for reader in self._readers)
        return False

    def _start(self, begin: Begin) -> None:
        for reader in self._readers:
            reader.start()
        produce, producers = self._step.produce, self._producers
        if produce is None or producers is None:
            return
        if produce.rate_per_s == 0:
            producers.start_closed(self._spec.requests_max)
            return
        mine = share(produce.connections, self._spec.index, self._spec.processes)
        requests_per_s = produce.rate_per_s / produce.batch_records * len(mine) / produce.connections
        seed = self._spec.seed * 1009 + self._spec.index
        self._loop.spin_ns = min(SPIN_NS, int(SPIN_SHARE * 1e9 / requests_per_s))
        producers.schedule = Schedule(
            seed, requests_per_s, produce.batch_records, begin.begin_ns, begin.end_ns
        )

    def _turn(self, now_ns: int, lap_ns: int) -> None:
        producers = self._producers
        schedule = producers.schedule if producers is not None else None
        if producers is None or schedule is None:
            self._loop.serve(lap_ns, EVENTS_MAX, now_ns)
            return
        if schedule.due_ns <= now_ns and not schedule.over:
            producers.offer_due(now_ns)
        self._loop.serve(lap_ns if schedule.over else min(lap_ns, schedule.due_ns), EVENTS_OPEN)

    def _lap_ends(self) -> None:
        if self._producers is not None and self._producers.all_broken:
            raise DriverError(f"no connection is left: {self._meter.error}")

    def _drain(self, end_ns: int) -> None:
        producers = self._producers
        if producers is not None:
            producers.stop()
        deadline = end_ns + DRAIN_NS
        while (now := monotonic_ns()) < deadline:
            if producers is not None and producers.schedule is not None:
                producers.offer_due(now)
            if self._drained(now, end_ns):
                break
            self._loop.serve(min(deadline, now + 2_000_000), EVENTS_MAX)
        if producers is not None:
            for sock in producers.sockets:
                sock.give_up(monotonic_ns())

    def _drained(self, now_ns: int, end_ns: int) -> bool:
        producers = self._producers
        if producers is not None:
            if producers.waiting:
                return False
            schedule = producers.schedule
            if schedule is not None and not schedule.over and not producers.all_broken:
                return False
            self._acked_ns = self._acked_ns or now_ns
        if self._readers and self._step.produce is not None:
            acked_ns = max(self._acked_ns, end_ns)
            if now_ns < acked_ns + GRACE_NS:
                return False
            # A broker that holds a fetch for longer than max_wait_ms has no records for it.
            answered_ns = acked_ns if now_ns < acked_ns + GRACE_NS + self._fetch_wait_ns else 0
            return all(reader.level_since(answered_ns) or reader.broken for reader in self._readers)
        return True

    def _connect_producers(self) -> Producers | None:
        produce = self._step.produce
        if produce is None:
            return None
        spec = self._spec
        stamping = self._step.consume is not None
        count = len(share(produce.connections, spec.index, spec.processes))
        if not count:
            return None
        now_ms = time.time_ns() // 1_000_000
        seed = spec.seed * 7919 + spec.index
        pools = [produce_pool(spec.topic, led, produce, seed, now_ms) for led in self._led]
        socks = iter(connect(self._leaders * count, self._security))

        def lane() -> list[ProduceSocket]:
            return [
                ProduceSocket(
                    self._loop, self._meter, sock, spec.topic, produce.in_flight, produce.acks, stamping
                )
                for sock in itertools.islice(socks, len(self._leaders))
            ]

        lanes = [lane() for _ in range(count)]
        return Producers(lanes, pools)

    def _connect_readers(self) -> list[FetchSocket]:
        consume = self._step.consume
        if consume is None:
            return []
        spec = self._spec
        where = [Leader(0, host, port) for host, port in spec.leaders]
        with WireClient(spec.host, spec.port, security=self._security) as client:
            start = client.offsets(spec.topic, where, LATEST if consume.start == "latest" else EARLIEST)
        readers = []
        for consumer in share(consume.groups * consume.members, spec.index, spec.processes):
            member = consumer % consume.members
            for leader, led in zip(self._leaders, self._led, strict=True):
                dealt = {index: start[index] for index in led if index % consume.members == member}
                if not dealt:
                    continue
                frame, places = fetch_frame(
                    spec.topic, dealt, consume.max_wait_ms, consume.min_bytes, consume.partition_max_bytes
                )
                (sock,) = connect([leader], self._security)
                readers.append(FetchSocket(self._loop, self._meter, sock, frame, places))
        return readers

    def close(self) -> None:
        """Close all connections."""
        for sock in (*self._idle, *self._readers, *(self._producers.sockets if self._producers else ())):
            sock.close()
        super().close()


if __name__ == "__main__":
    live(WireLoad)
