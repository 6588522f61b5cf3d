"""The parent of a step's driver processes: start them, give them a common start time, gather their reports into one
Outcome.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from time import monotonic_ns
from types import TracebackType

import msgspec

from blumfeld_bench.drivers.contract import DriverError, Marks, Outcome, Progress
from blumfeld_bench.drivers.gather import Gathered
from blumfeld_bench.drivers.spec import Begin, Done, Failed, Lap, ProcessSpec, Ready, Said
from blumfeld_bench.result import Placement

LEAD_NS = 50_000_000
"""Time between the last ``Ready`` and the start of the load, for the message to reach every process."""
CONNECT_TIMEOUT_S = 120.0
OVERTIME_S = 60.0
"""Patience with a silent process beyond the step's own time and its drain."""
PIPE_BYTES = 1_048_576
F_SETPIPE_SZ = 1031
READ_BYTES = 1 << 20


class Children:
    """The processes of one step. They are ended when the ``with`` block is left."""

    def __init__(self, module: str, specs: Sequence[ProcessSpec]) -> None:
        self._step = specs[0].step
        self._processes: list[subprocess.Popen[bytes]] = []
        self._rest: list[bytearray] = []
        self._selector = selectors.DefaultSelector()
        self._placement: Placement | None = None
        for index, spec in enumerate(specs):
            process = subprocess.Popen(
                [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            self._processes.append(process)
            self._rest.append(bytearray())
            assert process.stdout is not None
            with contextlib.suppress(OSError):  # a pipe of the default size works too
                fcntl.fcntl(process.stdout.fileno(), F_SETPIPE_SZ, PIPE_BYTES)
            os.set_blocking(process.stdout.fileno(), False)
            self._selector.register(process.stdout, selectors.EVENT_READ, index)
            self._tell(index, msgspec.json.encode(spec))

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()
        for process in self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            if kind is not None:
                process.kill()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def run(self, marks: Marks, progress: Callable[[Progress], None]) -> Outcome:
        """Wait until all processes are ready, start them, and read their reports to the end.

        :raises DriverError: a process can't run the step, or died
        """
        self._await_ready()
        begin_ns = monotonic_ns() + LEAD_NS
        measure_ns = begin_ns + int(self._step.warm_up_s * 1e9)
        begin = Begin(
            begin_ns=begin_ns, measure_ns=measure_ns, end_ns=measure_ns + int(self._step.measure_s * 1e9)
        )
        for index in range(len(self._processes)):
            self._tell(index, msgspec.json.encode(begin))
        gathered = Gathered(self._step, begin, len(self._processes))
        self._hear_out(begin, gathered, marks, progress)
        outcome = gathered.outcome()
        usage = msgspec.structs.replace(outcome.usage, placement=self._placement)
        return msgspec.structs.replace(outcome, usage=usage)

    def _await_ready(self) -> None:
        waiting = len(self._processes)
        deadline = time.monotonic() + CONNECT_TIMEOUT_S
        while waiting:
            for _, said in self._heard(deadline - time.monotonic()):
                if isinstance(said, Ready):
                    waiting -= 1
                    self._placement = said.placement
            if time.monotonic() > deadline:
                raise DriverError(f"a driver process did not connect within {CONNECT_TIMEOUT_S:.0f} s")

    def _hear_out(
        self, begin: Begin, gathered: Gathered, marks: Marks, progress: Callable[[Progress], None]
    ) -> None:
        """Call the marks at their instants, and ``progress`` after each lap."""
        edges: list[tuple[int, Callable[[], None]]] = [
            (begin.measure_ns, marks.measuring_begins),
            (begin.end_ns, marks.measuring_ended),
        ]
        deadline = begin.end_ns / 1e9 + OVERTIME_S
        while not gathered.complete:
            timeout_s = deadline - time.monotonic()
            if timeout_s < 0:
                raise DriverError("a driver process did not end in time")
            if edges:
                timeout_s = min(timeout_s, (edges[0][0] - monotonic_ns()) / 1e9)
            for index, said in self._heard(timeout_s):
                self._take(index, said, gathered, progress)
            while edges and (monotonic_ns() >= edges[0][0] or gathered.measured):
                edges.pop(0)[1]()

    def _take(self, index: int, said: Said, gathered: Gathered, progress: Callable[[Progress], None]) -> None:
        if isinstance(said, Lap):
            gathered.lap(index, said)
            shown = gathered.progress()
            if shown is not None:
                progress(shown)
        elif isinstance(said, Done):
            gathered.done(index, said)

    def _heard(self, timeout_s: float) -> list[tuple[int, Said]]:
        heard: list[tuple[int, Said]] = []
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            index: int = key.data
            data = os.read(key.fd, READ_BYTES)
            if not data:
                self._selector.unregister(key.fileobj)
                if self._processes[index].wait(10) != 0:
                    raise DriverError(
                        f"driver process {index} died with status {self._processes[index].returncode}"
                    )
                continue
            rest = self._rest[index]
            rest += data
            if b"\n" not in data:
                continue
            *lines, last = bytes(rest).split(b"\n")
            self._rest[index] = bytearray(last)
            for line in lines:
                said: Said = msgspec.json.decode(line, type=Said)
                if isinstance(said, Failed):
                    raise DriverError(said.message)
                heard.append((index, said))
        return heard

    def _tell(self, index: int, line: bytes) -> None:
        stdin = self._processes[index].stdin
        assert stdin is not None
        try:
            stdin.write(line + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise DriverError(f"driver process {index} died") from None
