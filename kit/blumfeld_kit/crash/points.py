"""Tries every crash point of the scripts: die there, start again, compare what is left with what was promised."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from blumfeld_kit.crash.machine import READS, Died, Machine, MakeStorage, Point
from blumfeld_kit.crash.promises import Broken
from blumfeld_kit.crash.script import SCRIPTS, Script
from blumfeld_kit.fakes.power import Adversary, Luck

LUCKY_SEEDS = 2
"""Number of random power cuts at each changing operation, beside those of every adversary but ``KEEP``."""
SECOND_EVERY = 3
"""One point in so many has a second death during the recovery from the first."""


class UnfitStorageError(AssertionError):
    """A script fails on this storage without any crash, so its crashes prove nothing.

    In the contract kit this is a failed test. ``python -m campaigns crash`` prints it as one line.
    """


class Count(msgspec.Struct):
    """Counts of some points."""

    operations: int = 0
    kills: int = 0
    power_cuts: int = 0
    second: int = 0
    """Points with a second death during recovery."""
    lost: int = 0


class Outcome(msgspec.Struct):
    """The outcome of all points."""

    phases: dict[str, Count]
    kinds: dict[str, Count]
    """Counts by the file operation before which the node died."""
    failures: list[str]
    """One line for each point at which a promise was not kept."""

    @property
    def points(self) -> int:
        """Number of crashes, without the second ones."""
        return sum(count.kills + count.power_cuts for count in self.phases.values())


def try_points(
    make: MakeStorage, *, seed: int = 0, limit: int | None = None, scripts: Sequence[str] = tuple(SCRIPTS)
) -> Outcome:
    """Run each script once to count its operations, then once for each point.

    :param limit: at most so many points, spread evenly over the scripts; ``None`` means all

    :raises UnfitStorageError: a script fails without a crash
    """
    outcome = Outcome({}, {}, [])
    points: list[_Try] = []
    for name in scripts:
        counting = Machine(make)
        _without_a_crash(counting, name)
        for phase, operation in counting.operations:
            for counts, key in ((outcome.phases, phase), (outcome.kinds, operation)):
                counts.setdefault(key, Count()).operations += 1
        points += (
            _Try(SCRIPTS[name], point, *_where(counting.operations, point))
            for point in _points(counting.operations, f"{seed}/{name}")
        )
    if limit is not None and limit < len(points):
        points = [points[at * len(points) // limit] for at in range(limit)]
    fate = random.Random(f"{seed}/second")
    recovering = 1
    for number, crash_point in enumerate(points):
        second = _second(fate, recovering) if number % SECOND_EVERY == 0 else None
        recovering = _try(make, crash_point, second, outcome) or recovering
    return outcome


def _without_a_crash(machine: Machine, name: str) -> None:
    try:
        SCRIPTS[name](machine)
    except Exception as error:
        raise UnfitStorageError(
            f"the script {name!r} fails without any crash ({type(error).__name__}: {error}); mend that first"
        ) from error


class _Try(msgspec.Struct, frozen=True):
    script: Script
    point: Point
    phase: str
    operation: str


def _where(operations: Sequence[tuple[str, str]], point: Point) -> tuple[str, str]:
    return operations[min(point.operation, len(operations)) - 1]


def _points(operations: Sequence[tuple[str, str]], seed: str) -> Iterator[Point]:
    """Yield points before each operation and after the last. A read changes nothing, so it has fewer."""
    for number in range(1, len(operations) + 2):
        yield Point(number)
        yield Point(number, power_cut=True, luck=Adversary.LOSE)
        if number <= len(operations) and operations[number - 1][1] in READS:
            continue
        for adversary in Adversary:
            if adversary not in (Adversary.LOSE, Adversary.KEEP):
                yield Point(number, power_cut=True, luck=adversary)
        for lucky in range(LUCKY_SEEDS):
            yield Point(number, power_cut=True, luck=random.Random(f"{seed}/{number}/{lucky}"))


def _second(fate: random.Random, operations: int) -> Point:
    """Return a second death, within about as many operations as the recovery before took."""
    how = random.Random(fate.randrange(1 << 30))
    return Point(fate.randrange(operations) + 1, power_cut=fate.random() < 0.7, luck=how)


def _try(make: MakeStorage, attempt: _Try, second: Point | None, outcome: Outcome) -> int:
    """Try a point. Return how many operations the recovery took, or 0 if it failed."""
    counts = (outcome.phases[attempt.phase], outcome.kinds[attempt.operation])
    for count in counts:
        count.power_cuts += attempt.point.power_cut
        count.kills += not attempt.point.power_cut
        count.second += second is not None
    machines: list[Machine] = []
    try:
        die_and_restart(make, attempt.point, machines.append, script=attempt.script, second=second)
    except Exception as error:
        for count in counts:
            count.lost += 1
        text = str(error) if isinstance(error, Broken) else repr(error)
        point = attempt.point
        where = f"{attempt.phase}: {_name(point)} before operation {point.operation} ({attempt.operation})"
        again = "" if second is None else f", then {_name(second)} in recovery"
        outcome.failures.append(f"{where}{again}: {text}")
        return 0
    return len(machines[0].operations)


def _name(point: Point) -> str:
    if not point.power_cut:
        return "kill"
    luck = point.luck
    how = luck.name.lower() if isinstance(luck, Adversary) else "by chance"
    return f"power cut ({how})"


def die_and_restart(
    make: MakeStorage,
    point: Point,
    prepare: Callable[[Machine], None] = lambda _: None,
    *,
    script: Script = SCRIPTS["life"],
    second: Point | None = None,
) -> Machine:
    """Die at the point, start twice, append, and cut the power.

    :param prepare: called with the machine before its script runs, so that a test can plant a bug
    :param second: a second death during the start, counted from there

    :raises Broken: a promise was not kept
    """
    machine = Machine(make, point)
    prepare(machine)
    try:
        script(machine)
    except Died:
        pass
    else:
        machine.die(point)
    _recover(machine, second)
    before = {name: replica.promises.current for name, replica in machine.replicas.items()}
    machine.die(Point(0))
    machine.operations.clear()
    machine.restart()
    machine.check()
    for name, replica in machine.replicas.items():
        if replica.promises.current != before[name]:
            raise Broken(f"{name}: a second start found other batches than the first")
    for replica in machine.replicas.values():
        machine.append(replica, 1, 1)
        machine.flush(replica)
    machine.die(Point(0, power_cut=True, luck=Luck(0)))
    machine.restart()
    machine.check()
    machine.settle()
    machine.check_again()
    return machine


def _recover(machine: Machine, second: Point | None) -> None:
    machine.operations.clear()
    machine.phase = "recovering"
    machine.point = second
    try:
        machine.restart()
        machine.check()
    except Died:
        machine.point = None
        machine.restart()
        machine.check()
    machine.point = None
