"""The wire driver: our own frames over plain sockets, in processes that do nothing else."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.bench.driver import DriverError, Marks, Outcome, Progress, Task
from blumfeld.bench.drivers.children import Children
from blumfeld.bench.drivers.frames import FETCH_VERSION, PRODUCE_VERSION, STAMP_BYTES
from blumfeld.bench.drivers.spec import ProcessSpec
from blumfeld.bench.result import Ceiling
from blumfeld.bench.wire_client import WireClient
from blumfeld.bench.workload import Step, Workload

MODULE = "blumfeld.bench.drivers.process"
PRELOAD_BATCH_BYTES = 262_144
PRELOAD_CONNECTIONS = 2
PRELOAD_IN_FLIGHT = 4


class WireDriver:
    """See :class:`blumfeld.bench.driver.Driver`."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def run(self, task: Task, marks: Marks, progress: Callable[[Progress], None]) -> Outcome:
        """One step, in fresh processes."""
        _check(task.step)
        with Children(MODULE, self._specs(task)) as children:
            return children.run(marks, progress)

    def preload(self, task: Task, total_bytes: int, record_bytes: int) -> None:
        raise NotImplementedError

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing stays between steps."""

    def _specs(self, task: Task) -> list[ProcessSpec]:
        with WireClient(task.host, task.port) as client:
            versions = client.versions()
            for key, version in ((0, PRODUCE_VERSION), (1, FETCH_VERSION)):
                low, high = versions.get(key, (0, -1))
                if not low <= version <= high:
                    raise DriverError(f"the server has API {key} in versions {low} to {high}, not {version}")
            leaders = client.wait_for_leaders(task.topic)
        where = tuple((leader.host, leader.port) for leader in leaders)
        return [
            ProcessSpec(
                host=task.host,
                port=task.port,
                topic=task.topic,
                leaders=where,
                step=task.step,
                seed=task.seed,
                index=index,
                processes=self._workload.processes,
            )
            for index in range(self._workload.processes)
        ]


def _check(step: Step) -> None:
    produce = step.produce
    if produce is not None and step.consume is not None and produce.record_bytes_min < STAMP_BYTES:
        raise DriverError(f"step {step.name}: end-to-end needs records of at least {STAMP_BYTES} bytes")
