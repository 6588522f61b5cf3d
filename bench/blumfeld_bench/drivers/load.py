"""A process's share of a step: the phases that all drivers have in common."""

from __future__ import annotations

import gc
import signal
import sys
from abc import ABC, abstractmethod
from time import monotonic_ns
from typing import BinaryIO

import msgspec

from blumfeld.client.security.command_config import CommandConfigError
from blumfeld_bench.drivers.connections import go_first, raise_descriptor_limit, say, sleep_precisely
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.loop import Loop
from blumfeld_bench.drivers.meter import Meter
from blumfeld_bench.drivers.spec import LAP_NS, Begin, Failed, ProcessSpec, Ready
from blumfeld_bench.usage import placement_of

DRAIN_NS = 15_000_000_000
"""Longest time for open requests to be answered and records to arrive."""
EVENTS_MAX = 512


class Load(ABC):
    """All connections of a process, through the phases of a step. A subclass makes its connections when it is made.

    :raises DriverError: a connection can't be made
    """

    _may_end = False
    """Whether the step can end by itself before its time."""

    def __init__(self, spec: ProcessSpec, out: BinaryIO) -> None:
        self._spec, self._step, self._out = spec, spec.step, out
        self._loop = Loop()
        self._meter = Meter()

    def run(self, begin: Begin) -> None:
        """Warm up, measure, drain, and report the counts to the parent.

        :raises DriverError: the server went away for good
        """
        while (now := monotonic_ns()) < begin.begin_ns:
            self._wait(begin.begin_ns, now)
        self._meter.begin(begin)
        self._loop.idle_ns = 0
        self._start(begin)
        if begin.measure_ns > begin.begin_ns:
            self._pass(begin.measure_ns)
        over = self._pass(begin.end_ns)
        self._drain(begin.end_ns if not over else monotonic_ns())
        say(self._out, self._meter.done())

    def _pass(self, until_ns: int) -> bool:
        """Work until ``until_ns`` and report laps. Return whether the step ended by itself before."""
        lap_ns = min(until_ns, monotonic_ns() + LAP_NS)
        while True:
            now = monotonic_ns()
            if now >= lap_ns:
                self._lap(now)
                if now >= until_ns:
                    return False
                lap_ns = min(until_ns, now + LAP_NS)
            self._turn(now, lap_ns)
            if self._may_end and self._all_done():
                self._lap(monotonic_ns())
                return True

    def _lap(self, now_ns: int) -> None:
        self._lap_ends()
        self._meter.idle_ns, self._loop.idle_ns = self._loop.idle_ns, 0
        say(self._out, self._meter.lap(now_ns, self._step.produce is not None))

    def _wait(self, until_ns: int, now_ns: int) -> None:
        """Let time pass before the load begins."""
        self._loop.serve(until_ns, EVENTS_MAX, now_ns)

    @abstractmethod
    def _start(self, begin: Begin) -> None:
        """Begin the load."""

    @abstractmethod
    def _turn(self, now_ns: int, lap_ns: int) -> None:
        """Do what is due, or wait for something to do until ``lap_ns``."""

    def _all_done(self) -> bool:
        """Whether the step has ended by itself."""
        return False

    @abstractmethod
    def _lap_ends(self) -> None:
        """Look after the connections twice a second.

        :raises DriverError: none is left
        """

    @abstractmethod
    def _drain(self, end_ns: int) -> None:
        """Let open requests be answered and records arrive, for at most :data:`DRAIN_NS`."""

    def close(self) -> None:
        """Close all connections."""
        self._loop.close()


def live(make_load: type[Load]) -> None:
    """Run a driver process: read a spec, connect, wait for the start, run.

    Ctrl-C is handled by the parent, which ends its children. A child ignores it, and fails at its next write once
    nobody reads its pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines, out = sys.stdin.buffer, sys.stdout.buffer
    raise_descriptor_limit()
    sleep_precisely()
    spec = msgspec.json.decode(lines.readline(), type=ProcessSpec)
    try:
        if spec.goes_first:
            go_first()
        load = make_load(spec, out)
    except (DriverError, CommandConfigError) as error:
        say(out, Failed(message=str(error)))
        return
    say(out, Ready(placement=placement_of()))
    begin = lines.readline()
    if begin:
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            load.run(msgspec.json.decode(begin, type=Begin))
        except DriverError as error:
            say(out, Failed(message=str(error)))
    load.close()
