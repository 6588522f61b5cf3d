"""Load drivers: our own frames over sockets (``wire``; ``transactions`` for transactional producers), or librdkafka's
clients, as a workload asks for. Each makes its load in processes that do nothing else.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from blumfeld_bench.drivers.children import Children
from blumfeld_bench.drivers.contract import DriverError, Marks, NoMarks, Outcome, Progress, Task, unseen
from blumfeld_bench.drivers.frames import FETCH_VERSION, PRODUCE_VERSION, STAMP_BYTES
from blumfeld_bench.drivers.spec import ProcessSpec
from blumfeld_bench.drivers.transactions.frames import api_versions
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.result import Ceiling
from blumfeld_bench.security import security_at
from blumfeld_bench.workload import Produce, Step, Workload

MODULE = "blumfeld_bench.drivers.wire.process"
PRELOAD_BATCH_BYTES = 262_144
PRELOAD_CONNECTIONS = 2
PRELOAD_IN_FLIGHT = 4
PRELOAD_TIMEOUT_S = 600.0
CEILING_WARM_UP_S = 0.3
CEILING_S = 2.0


class WireDriver:
    """See :class:`blumfeld_bench.drivers.contract.Driver`."""

    module = MODULE
    """Module that each of its processes runs."""

    def __init__(self, workload: Workload, *, goes_first: bool = False) -> None:
        self._workload = workload
        self._goes_first = goes_first

    def run(self, task: Task, marks: Marks, progress: Callable[[Progress], None]) -> Outcome:
        """Run one step in fresh processes."""
        _check(task.step)
        with Children(self.module, self._specs(task)) as children:
            return children.run(marks, progress)

    def preload(self, task: Task, total_bytes: int, record_bytes: int) -> None:
        """Write in whole batches of a quarter MB: at most one batch more than was asked for."""
        batch_records = max(1, PRELOAD_BATCH_BYTES // record_bytes)
        produce = Produce(
            connections=PRELOAD_CONNECTIONS,
            record_bytes_min=record_bytes,
            record_bytes_max=record_bytes,
            batch_records=batch_records,
            in_flight=PRELOAD_IN_FLIGHT,
            acks=-1,
        )
        step = Step(name="preload", produce=produce, warm_up_s=0, measure_s=PRELOAD_TIMEOUT_S)
        requests = -(-total_bytes // (batch_records * record_bytes))
        task = msgspec.structs.replace(task, step=step)
        specs = [msgspec.structs.replace(self._specs(task)[0], processes=1, requests_max=requests)]
        with Children(MODULE, specs) as children:
            outcome = children.run(NoMarks(), unseen)
        if outcome.errors or outcome.requests != requests:
            raise DriverError(f"preload: {outcome.requests} of {requests} requests, {outcome.error}")

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Run the step's shape in a closed loop, without its idle connections, against the null server."""
        produce = step.produce
        if produce is not None:
            produce = msgspec.structs.replace(produce, rate_per_s=0.0)
        step = msgspec.structs.replace(
            step,
            produce=produce,
            idle_connections=0,
            warm_up_s=CEILING_WARM_UP_S,
            measure_s=min(CEILING_S, step.measure_s),
        )
        record_bytes = 0 if produce is not None else self._workload.preload_record_bytes
        with null_server("ceiling", self._workload.topic.partitions, record_bytes) as port:
            task = Task(host="127.0.0.1", port=port, topic="ceiling", step=step, seed=seed)
            outcome = self.run(task, NoMarks(), unseen)
        if outcome.errors:
            raise DriverError(f"the driver's ceiling: {outcome.error}")
        return Ceiling(
            step=step.name,
            records_per_s=outcome.records / outcome.seconds,
            bytes_per_s=outcome.bytes / outcome.seconds,
        )

    def close(self) -> None:
        """Do nothing: no process lives between steps."""

    def _needed(self, step: Step) -> dict[int, int]:
        """Return the versions by API key that the driver speaks in a step."""
        return {0: PRODUCE_VERSION, 1: FETCH_VERSION}

    def _specs(self, task: Task) -> list[ProcessSpec]:
        with WireClient(task.host, task.port, security=security_at(task.command_config)) as client:
            spoken = client.versions()
            for key, version in self._needed(task.step).items():
                low, high = spoken.get(key, (0, -1))
                if not low <= version <= high:
                    raise DriverError(
                        f"the server speaks versions {low} to {high} of API key {key}; the driver needs {version}"
                    )
            leaders = client.leaders(task.topic)
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
                command_config=task.command_config,
                goes_first=self._goes_first,
            )
            for index in range(self._workload.processes)
        ]


class LibrdkafkaDriver(WireDriver):
    """The client library that most applications use. A preload goes through the wire driver, as it isn't measured."""

    module = "blumfeld_bench.drivers.librdkafka"

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Return the ceiling of the writing side alone: the null server keeps no records, so that no group can read
        there.

        :raises DriverError: the step only reads
        """
        if step.produce is None:
            raise DriverError(
                f"step {step.name}: librdkafka's reading has no ceiling here, see its busy share"
            )
        return super().ceiling(msgspec.structs.replace(step, consume=None), seed)


class TransactionsDriver(WireDriver):
    """A closed loop of transactions, by the same program for every server."""

    module = "blumfeld_bench.drivers.transactions.process"

    def ceiling(self, step: Step, seed: int) -> Ceiling:
        """Transactions have no ceiling: the null server knows none.

        :raises DriverError: always
        """
        raise DriverError("the null server knows no transactions: see the driver's busy share")

    def _needed(self, step: Step) -> dict[int, int]:
        if step.produce is None or step.produce.transaction is None:
            raise DriverError(f"step {step.name} has no transactions")
        return super()._needed(step) | api_versions(step.produce.transaction.version)


def make_driver(workload: Workload, goes_first: bool = False) -> WireDriver:
    """Return the driver that the workload names.

    :param goes_first: run the driver's processes before the server's (SCHED_RR)
    """
    kinds = {"wire": WireDriver, "librdkafka": LibrdkafkaDriver, "transactions": TransactionsDriver}
    return kinds[workload.driver](workload, goes_first=goes_first)


def _check(step: Step) -> None:
    produce = step.produce
    if produce is not None and step.consume is not None and produce.record_bytes_min < STAMP_BYTES:
        raise DriverError(f"step {step.name}: end-to-end needs records of at least {STAMP_BYTES} bytes")


@contextmanager
def null_server(topic: str, partitions: int, record_bytes: int) -> Iterator[int]:
    """Run a null server while the block lasts and yield its port. See
    :mod:`blumfeld_bench.drivers.wire.null_server`.
    """
    command = [
        sys.executable,
        "-m",
        "blumfeld_bench.drivers.wire.null_server",
        topic,
        str(partitions),
        str(record_bytes),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise DriverError("the null server did not start")
            yield int(line)
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
