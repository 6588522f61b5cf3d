"""The contract between the session, which runs servers, and the drivers, which make load.

A driver runs in processes of its own, so that the session's work never delays a request. For each step the session
passes a :class:`Task` and gets an :class:`Outcome`. Meanwhile the driver reports :class:`Progress` for the live view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from blumfeld_bench.result import Ceiling, DriverUsage, Point
from blumfeld_bench.workload import Step, Workload


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One step against one server."""

    host: str
    port: int
    topic: str
    """Name of the topic. It exists with the workload's partitions, and its leaders answer."""
    step: Step
    seed: int
    """Seed of the step, the same for all variants in one round: they get the same bytes at the same intended times."""
    command_config: str = ""
    """Path of the file that says how to log in; empty for PLAINTEXT."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """A report for the live view, about twice a second."""

    elapsed_s: float
    """Time since the warm-up began."""
    measuring: bool
    point: Point


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the measured part of a step; ``result.Measured`` describes the fields."""

    seconds: float
    records: int
    bytes: int
    received_bytes: int
    requests: int
    errors: int
    error: str | None = None
    produce_ack: str | None = None
    end_to_end: str | None = None
    series: tuple[Point, ...] = ()
    usage: DriverUsage


class Marks(Protocol):
    """Callbacks at the edges of the measured part, where the session reads the server's usage."""

    def measuring_begins(self) -> None:
        """The warm-up is over."""
        ...

    def measuring_ended(self) -> None:
        """The measured part is over; what is still open is drained afterwards."""
        ...


class NoMarks:
    """Marks of a run whose server isn't looked at."""

    def measuring_begins(self) -> None:
        """See :class:`Marks`."""

    def measuring_ended(self) -> None:
        """See :class:`Marks`."""


def unseen(progress: Progress) -> None:
    """Ignore the progress of a load that is not shown."""


class Driver(Protocol):
    """Makes load. Every method blocks until it is done."""

    def run(self, task: Task, marks: Marks, progress: Callable[[Progress], None]) -> Outcome:
        """Run one step: warm up, measure, drain.

        :raises DriverError: the server refused a request that the step needs, or went away for good
        """
        ...

    def preload(self, task: Task, total_bytes: int, record_bytes: int) -> None:
        """Write that many bytes of record values to the topic, evenly over its partitions, and wait for the acks."""
        ...

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Return the driver's closed-loop rate in this step, against a server that answers at no cost."""
        ...

    def close(self) -> None:
        """End the driver's processes."""
        ...


class DriverError(Exception):
    """The step can't be run; the message has the server's answer."""


MakeDriver = Callable[[Workload, bool], Driver]
"""Type of the function that makes a driver: takes the workload, and whether the driver's processes go first."""
