"""A whole run: preflight, ceilings, interleaved rounds, system calls, result.

One server runs at a time. Failures are recorded and the run goes on. Ctrl-C ends it and keeps what was measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import msgspec

from blumfeld import __version__
from blumfeld.client.security.command_config import CommandConfigError
from blumfeld_bench.drivers.connections import NOT_FIRST, may_go_first
from blumfeld_bench.drivers.contract import Driver, DriverError, MakeDriver, unseen
from blumfeld_bench.plan import schedule
from blumfeld_bench.plan.schedule import Turn
from blumfeld_bench.plan.variants import VariantSpec
from blumfeld_bench.result import Ceiling, Failure, Machine, Measured, Result, SystemCalls
from blumfeld_bench.runs import system_calls
from blumfeld_bench.runs.machine import this_machine
from blumfeld_bench.runs.servers import ServerError
from blumfeld_bench.runs.turn import Place, Runner, server_of, shortened
from blumfeld_bench.runs.watcher import SessionPlan, Watcher
from blumfeld_bench.statistics.verdict import conclude
from blumfeld_bench.workload import Step, Workload

VERDICT_FROM_ROUNDS = 3
TRACED_S = 2.0
QUICK_TRACED_S = 1.0
EXPECTED = (CommandConfigError, DriverError, ServerError, OSError, subprocess.SubprocessError)
"""Failures of a server or a driver, which the run survives. Any other exception is a defect of the bench and ends the
run.
"""


@attrs.frozen
class Options:
    """Settings of a run."""

    rounds: int | None = None
    """Number of rounds. None: :data:`blumfeld_bench.plan.schedule.ROUNDS`, or as many as fit into a quick run."""
    quick: bool = False
    seed: int = 1
    system_calls: bool = True
    ceilings: bool = True
    pin: bool = False
    """Bind the server to the first core and the driver to the others. Otherwise the kernel's scheduler places both, as
    it would in use. With few cores, binding makes rounds more alike and the result less like use.
    """
    driver_first: bool = False
    """Run the driver's processes under SCHED_RR, before the server's. Otherwise the kernel treats both alike."""
    folder: Path | None = None
    """Folder of the servers' data, on the disk to be measured. None: the system's folder for temporary files."""


class SessionError(Exception):
    """The run can't be made at all."""


def run_session(
    specs: Sequence[VariantSpec],
    workload: Workload,
    make_driver: MakeDriver,
    options: Options,
    watcher: Watcher,
) -> Result:
    """Run everything. The first variant is the baseline of the comparisons.

    :raises SessionError: no variant can run the workload; ``pin`` with a single core; ``driver_first`` where it is
        forbidden
    """
    if options.driver_first and not may_go_first():
        raise SessionError(NOT_FIRST)
    machine = this_machine()
    with (
        placed(options.pin) as server_cores,
        tempfile.TemporaryDirectory(prefix="blumfeld-bench-", dir=options.folder) as folder,
    ):
        session = _Session(specs, workload, options, watcher, Path(folder), server_cores, machine)
        driver = make_driver(workload, options.driver_first)
        try:
            return session.run(driver)
        finally:
            driver.close()
            watcher.ended(session.interrupted)


class _Session:
    """The state of one run."""

    def __init__(
        self,
        specs: Sequence[VariantSpec],
        workload: Workload,
        options: Options,
        watcher: Watcher,
        folder: Path,
        server_cores: frozenset[int] | None,
        machine: Machine,
    ) -> None:
        self._specs = tuple(specs)
        self._given = workload
        self._options = options
        self._watcher = watcher
        self._folder = folder
        self._cores = server_cores
        self._machine = machine
        self._created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._costs = schedule.Costs(with_calls=options.system_calls)
        self._ceilings: list[Ceiling] = []
        self._measured: list[Measured] = []
        self._calls: list[SystemCalls] = []
        self._calls_missing = ""
        self._skipped: dict[str, str] = {}
        self._failures: list[Failure] = []
        self._plan = self._planned()
        self.interrupted = False

    def run(self, driver: Driver) -> Result:
        """Run all phases in order."""
        self._watcher.started(self._plan)
        try:
            self._preflight()
            self._plan = self._planned()
            self._watcher.planned(self._plan)
            if self._options.ceilings:
                self._measure_ceilings(driver)
            self._rounds(driver)
            self._count_calls(driver)
        except KeyboardInterrupt:
            self.interrupted = True
        return self._result()

    def _planned(self) -> SessionPlan:
        left = [spec for spec in self._specs if spec.label not in self._skipped]
        labels = [spec.label for spec in left]
        workload, rounds = self._given, self._options.rounds or schedule.ROUNDS
        if self._options.quick:
            workload, fitting = schedule.quick(workload, labels, self._costs)
            rounds = self._options.rounds or fitting
        return SessionPlan(
            workload=workload,
            variants=tuple(spec.variant for spec in left),
            turns=schedule.turns_of(labels, rounds),
            rounds=rounds,
            quick=self._options.quick,
            left_out=self._left_out(workload),
            estimate_s=schedule.estimate_s(workload, labels, rounds, self._costs),
        )

    def _left_out(self, workload: Workload) -> tuple[str, ...]:
        kept = {step.name for step in workload.steps}
        return tuple(step.name for step in self._given.steps if step.name not in kept)

    def _preflight(self) -> None:
        """Start each variant once and create its topic, to learn how long that takes and which ones can't run the
        workload.
        """
        turn_s: dict[str, float] = {}
        for nth, spec in enumerate(self._specs):
            self._watcher.doing(f"trying {spec.label}")
            began = time.monotonic()
            try:
                with server_of(spec, self._given, self._folder / f"try-{nth}", self._cores):
                    pass
            except EXPECTED as error:
                self._skipped[spec.label] = _words(error)
                self._watcher.skipped(spec.label, self._skipped[spec.label])
            turn_s[spec.label] = time.monotonic() - began + spec.variant.warm_up_s
        if len(self._skipped) == len(self._specs):
            raise SessionError("; ".join(f"{label}: {why}" for label, why in self._skipped.items()))
        self._costs = msgspec.structs.replace(self._costs, turn_s=turn_s)

    def _measure_ceilings(self, driver: Driver) -> None:
        """Measure the ceiling of each shape of load once: a ladder of rates shares one ceiling."""
        reached: dict[Step, Ceiling | None] = {}
        for step in self._plan.workload.steps:
            shape = schedule.shape(step)
            if shape not in reached:
                self._watcher.doing(f"measuring what the driver reaches alone in {step.name}")
                try:
                    reached[shape] = driver.ceiling(step, self._options.seed)
                except EXPECTED as error:
                    reached[shape] = None
                    self._watcher.doing(f"no ceiling for {step.name}: {_words(error)}")
            ceiling = reached[shape]
            if ceiling is not None:
                self._ceilings.append(msgspec.structs.replace(ceiling, step=step.name))

    def _rounds(self, driver: Driver) -> None:
        runner = Runner(self._plan.workload, driver, self._options.seed)
        for turn in self._plan.turns:
            self._watcher.turn_begins(turn)
            try:
                with self._place(turn) as (spec, place):
                    runner.prepare(spec, place, turn.round)
                    self._steps(runner, place, turn)
            except EXPECTED as error:
                self._failed(turn, "", error)
            self._say_verdict(turn)

    @contextmanager
    def _place(self, turn: Turn) -> Iterator[tuple[VariantSpec, Place]]:
        spec = next(spec for spec in self._specs if spec.label == turn.variant)
        folder = self._folder / f"{turn.position:03}-{_slug(turn.variant)}"
        with server_of(spec, self._plan.workload, folder, self._cores) as place:
            yield spec, place

    def _steps(self, runner: Runner, place: Place, turn: Turn) -> None:
        for step in self._plan.workload.steps:
            self._watcher.step_begins(turn, step.name, step.warm_up_s + step.measure_s)
            try:
                measured = runner.measure(place, step, turn, self._watcher.progress)
            except EXPECTED as error:
                if place.server is not None and not place.server.is_up:
                    raise ServerError(
                        f"in {step.name} the server ended:\n{place.server.printed()}"
                    ) from error
                self._failed(turn, step.name, error)
                continue
            self._measured.append(measured)
            self._watcher.measured(measured)

    def _failed(self, turn: Turn, step: str, error: BaseException) -> None:
        words = _words(error)
        self._failures.append(Failure(variant=turn.variant, step=step, round=turn.round, error=words))
        self._watcher.step_failed(turn, step, words)

    def _say_verdict(self, turn: Turn) -> None:
        is_last = turn.position % len(self._plan.variants) == len(self._plan.variants) - 1
        if is_last and turn.round + 1 >= VERDICT_FROM_ROUNDS and len(self._plan.variants) > 1:
            self._watcher.verdict_so_far(conclude(self._result()).verdicts)

    def _count_calls(self, driver: Driver) -> None:
        if not self._options.system_calls:
            return
        self._calls_missing = system_calls.missing()
        if self._calls_missing:
            return
        runner = Runner(self._plan.workload, driver, self._options.seed)
        for nth, variant in enumerate(self._plan.variants):
            if variant.kind == "running":
                continue
            self._watcher.doing(f"counting system calls of {variant.label}")
            turn = Turn(round=self._plan.rounds, position=len(self._plan.turns) + nth, variant=variant.label)
            try:
                with self._place(turn) as (spec, place):
                    runner.prepare(
                        attrs.evolve(spec, variant=msgspec.structs.replace(variant, warm_up_s=0)), place, 0
                    )
                    self._trace(runner, place, variant.label)
            except (*EXPECTED, system_calls.TracerError) as error:
                self._calls_missing = f"{variant.label}: {_words(error)}"

    def _trace(self, runner: Runner, place: Place, label: str) -> None:
        assert place.server is not None
        traced_s = QUICK_TRACED_S if self._options.quick else TRACED_S
        for nth, step in enumerate(self._plan.workload.steps):
            tracer = system_calls.Tracer(place.server.pids(), place.server.folder / f"calls-{nth}")
            try:
                outcome = runner.run(place, shortened(step, traced_s), 0, tracer, unseen)
            finally:
                tracer.close()
            self._calls.append(
                SystemCalls(variant=label, step=step.name, requests=outcome.requests, by_name=tracer.calls())
            )

    def _result(self) -> Result:
        return Result(
            blumfeld=__version__,
            created=self._created,
            seed=self._options.seed,
            quick=self._options.quick,
            rounds=max((round_result.round + 1 for round_result in self._measured), default=0),
            machine=self._machine,
            workload=self._plan.workload,
            variants=tuple(spec.variant for spec in self._specs),
            ceilings=tuple(self._ceilings),
            measured=tuple(self._measured),
            system_calls=tuple(self._calls),
            system_calls_missing=self._calls_missing,
            skipped=dict(self._skipped),
            left_out=self._plan.left_out,
            failures=tuple(self._failures),
            interrupted=self.interrupted,
            pinned=self._cores is not None,
            driver_first=self._options.driver_first,
        )


@contextmanager
def placed(pin: bool) -> Iterator[frozenset[int] | None]:
    """With ``pin``, keep this process and its children off the server's core, and yield that core."""
    if not pin:
        yield None
        return
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        raise SessionError("pinning needs two cores: one for the server, one for the driver")
    server = frozenset({min(cores)})
    os.sched_setaffinity(0, cores - server)
    try:
        yield server
    finally:
        os.sched_setaffinity(0, cores)


def _slug(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", label)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
