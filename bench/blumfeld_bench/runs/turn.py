"""A turn: one variant in one round, with a fresh server and topic, all steps, and the server's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from blumfeld_bench.drivers.contract import (
    Driver,
    DriverError,
    Marks,
    NoMarks,
    Outcome,
    Progress,
    Task,
    unseen,
)
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.result import Measured, Usage
from blumfeld_bench.runs.servers import Server, ServerCluster, drop_from_page_cache, started
from blumfeld_bench.security import security_at
from blumfeld_bench.usage import Totals, placement_of, summed, used
from blumfeld_bench.workload import Consume, Produce, Step, Workload

HOST = "127.0.0.1"
WARM_UP_PRODUCE = Produce(
    connections=4, record_bytes_min=100, record_bytes_max=100, batch_records=10, in_flight=2
)
"""Warm-up load for servers that compile as they run: produce and fetch in a closed loop, small enough to leave the disk
idle.
"""


class Place(NamedTuple):
    """A running server and its topic."""

    port: int
    topic: str
    server: Server | ServerCluster | None
    """The server, or ``None`` if the bench did not start it."""
    command_config: str = ""
    """Path of the file that says how to log in; empty for PLAINTEXT."""


class ServerMarks:
    """Takes a server's usage right at the edges of the measured part."""

    def __init__(self, server: Server | ServerCluster | None) -> None:
        self._server = server
        self._before: list[Totals] = []
        self._after: list[Totals] = []

    def measuring_begins(self) -> None:
        """See :class:`blumfeld_bench.drivers.contract.Marks`."""
        if self._server is not None:
            self._server.reset_peak()
            self._before = self._server.totals_by_node()

    def measuring_ended(self) -> None:
        """See :class:`blumfeld_bench.drivers.contract.Marks`."""
        if self._server is not None:
            self._after = self._server.totals_by_node()

    def usage(self) -> Usage | None:
        """Return the usage between the marks, or None for a server whose processes aren't known."""
        if not self._before or not self._after:
            return None
        return used(summed(self._before), summed(self._after))

    def usage_by_node(self) -> tuple[Usage, ...]:
        """Return each node's usage between the marks; nothing for a single server."""
        if len(self._before) < 2 or not self._after:
            return ()
        return tuple(used(before, after) for before, after in zip(self._before, self._after, strict=True))


@contextmanager
def server_of(
    spec: VariantSpec, workload: Workload, folder: Path, cores: frozenset[int] | None = None
) -> Iterator[Place]:
    """Yield the variant's server with the workload's topic; stop it and remove its data afterwards.

    :raises ServerError: the server did not start
    :raises DriverError: the server refused the topic, or has fewer brokers than the topic needs
    """
    with started(spec, folder, cores) as server:
        port = spec.port if server is None else server.port
        topic = f"bench-{folder.parent.name}-{folder.name}" if server is None else "bench"
        place = Place(port, topic, server, spec.variant.command_config)
        _make_topic(place, workload)
        yield place


def _make_topic(place: Place, workload: Workload) -> None:
    topic, name = workload.topic, place.topic
    with WireClient(HOST, place.port, security=security_at(place.command_config)) as client:
        brokers = client.broker_count()
        if brokers < topic.replication_factor:
            raise DriverError(
                f"{topic.replication_factor} replicas need as many brokers; the cluster has {brokers}"
            )
        client.create_topic(name, topic.partitions, topic.replication_factor, topic.config)
        client.wait_for_leaders(name)


class Runner:
    """Runs the steps of one workload against running servers."""

    def __init__(self, workload: Workload, driver: Driver, seed: int) -> None:
        self._workload = workload
        self._driver = driver
        self._seed = seed

    def task(self, place: Place, step: Step, round_number: int) -> Task:
        """Return the driver's task. Its seed is the same for all variants in one step of one round."""
        nth = self._workload.steps.index(step) if step in self._workload.steps else len(self._workload.steps)
        seed = (self._seed * 1_000_003 + round_number * 1_009 + nth) % 2**31
        return Task(
            host=HOST,
            port=place.port,
            topic=place.topic,
            step=step,
            seed=seed,
            command_config=place.command_config,
        )

    def prepare(self, spec: VariantSpec, place: Place, round_number: int) -> None:
        """Warm the server as the variant asks, and write the data that the workload reads.

        :raises DriverError: the server refused or failed
        """
        workload = self._workload
        warm_up_s = spec.variant.warm_up_s
        if warm_up_s > 0:
            warm = place._replace(topic=f"{place.topic}-warm-up")
            _make_topic(warm, workload)
            for step in warm_up_steps(workload, warm_up_s):
                self._driver.run(self.task(warm, step, round_number), NoMarks(), unseen)
        if workload.preload_bytes:
            task = self.task(place, workload.steps[0], round_number)
            self._driver.preload(task, workload.preload_bytes, workload.preload_record_bytes)

    def measure(self, place: Place, step: Step, turn: Turn, progress: Callable[[Progress], None]) -> Measured:
        """Measure one step.

        :raises DriverError: the step could not be run
        """
        marks = ServerMarks(place.server)
        outcome = self.run(place, step, turn.round, marks, progress)
        produce = step.produce
        return Measured(
            variant=turn.variant,
            step=step.name,
            round=turn.round,
            position=turn.position,
            seconds=outcome.seconds,
            offered_per_s=produce.rate_per_s if produce is not None else 0.0,
            records_per_s=outcome.records / outcome.seconds,
            bytes_per_s=outcome.bytes / outcome.seconds,
            received_bytes_per_s=outcome.received_bytes / outcome.seconds,
            requests=outcome.requests,
            errors=outcome.errors,
            error=outcome.error,
            transactions_per_s=outcome.requests / outcome.seconds if transactional(step) else 0.0,
            produce_ack=outcome.produce_ack,
            end_to_end=outcome.end_to_end,
            series=outcome.series,
            server=marks.usage(),
            server_nodes=marks.usage_by_node(),
            driver=outcome.usage,
            server_placement=None if place.server is None else placement_of(place.server.pid),
            ready_s=place.server.ready_s if place.server is not None else 0.0,
        )

    def run(
        self, place: Place, step: Step, round_number: int, marks: Marks, progress: Callable[[Progress], None]
    ) -> Outcome:
        """Run one step and call ``marks`` at the edges of its measured part.

        :raises DriverError: the step could not be run, or nothing was measured
        """
        if step.page_cache == "cold":
            if place.server is None:
                raise DriverError(
                    "a server that somebody else started keeps its data where it pleases: not cold"
                )
            drop_from_page_cache(place.server.folder)
        outcome = self._driver.run(self.task(place, step, round_number), marks, progress)
        if outcome.seconds <= 0:
            raise DriverError("nothing was measured")
        return outcome


def transactional(step: Step) -> bool:
    """Whether the step's producers write in transactions."""
    return step.produce is not None and step.produce.transaction is not None


def warm_up_steps(workload: Workload, seconds: float) -> list[Step]:
    """Return the load before the first step: of transactions every step for a share of the time, since each shape takes
    code of its own."""
    shapes = [step for step in workload.steps if transactional(step)]
    if not shapes:
        return [
            Step(name="warm-up", produce=WARM_UP_PRODUCE, consume=Consume(), warm_up_s=0, measure_s=seconds)
        ]
    return [
        msgspec.structs.replace(
            step, name=f"warm-up-{step.name}", warm_up_s=0, measure_s=seconds / len(shapes)
        )
        for step in shapes
    ]


def shortened(step: Step, measure_s: float) -> Step:
    """Return the step with its measured part cut to ``measure_s`` and a short warm-up."""
    return msgspec.structs.replace(
        step, warm_up_s=min(step.warm_up_s, 0.5), measure_s=min(step.measure_s, measure_s)
    )
