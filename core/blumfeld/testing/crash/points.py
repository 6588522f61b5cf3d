"""Every crash point of the scripts: die there, start again, hold what is left against what was promised."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from blumfeld.testing.crash.ledger import Broken
from blumfeld.testing.crash.machine import READS, Died, Machine, MakeStorage, Point
from blumfeld.testing.crash.script import SCRIPTS, Script
from blumfeld.testing.fakes.power import Adversary, Luck

LUCKY_SEEDS = 2
"""Power cuts at each changing operation with chance in what stays, beside all the adversaries' but ``KEEP``."""
SECOND_EVERY = 3
"""At every so many points it dies a second time, while it recovers from the first."""


class UnfitStorageError(AssertionError):
    """A script fails on this storage though it never dies: what crashes do to it can't be told.

    In the contract kit that is a failed test. ``python -m campaigns crash`` prints it as one line.
    """


class Count(msgspec.Struct):
    """What came of some points."""

    operations: int = 0
    kills: int = 0
    power_cuts: int = 0
    second: int = 0
    """Of them, those with a second death during recovery."""
    lost: int = 0


class Outcome(msgspec.Struct):
    """What came of all points."""

    phases: dict[str, Count]
    kinds: dict[str, Count]
    """By the file operation before which it died."""
    failures: list[str]
    """One line for each point at which a promise was broken."""

    @property
    def points(self) -> int:
        """Crashes tried, without the second ones."""
        return sum(count.kills + count.power_cuts for count in self.phases.values())


def try_points(
    make: MakeStorage, *, seed: int = 0, limit: int | None = None, scripts: Sequence[str] = tuple(SCRIPTS)
) -> Outcome:
    """Run each script once to count, then once for each point.

    :raises UnfitStorageError: a script doesn't hold without a crash

    :param limit: at most so many points, spread evenly over the scripts; None: all
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
    for number, one in enumerate(points):
        second = _second(fate, recovering) if number % SECOND_EVERY == 0 else None
        recovering = _try(make, one, second, outcome) or recovering
    return outcome


def _without_a_crash(machine: Machine, name: str) -> None:
    try:
        SCRIPTS[name](machine)
    except Exception as error:
        raise UnfitStorageError(
            f"the script {name!r} fails without any crash ({type(error).__name__}: {error})"
        ) from error


class _Try(msgspec.Struct, frozen=True):
    script: Script
    point: Point
    phase: str
    operation: str


def _where(operations: Sequence[tuple[str, str]], point: Point) -> tuple[str, str]:
    return operations[min(point.operation, len(operations)) - 1]


def _points(operations: Sequence[tuple[str, str]], seed: str) -> Iterator[Point]:
    """Before each operation, and after the last one. Before a read the disk is as after what was changed last."""
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
    """Another death, at any operation of a recovery that takes about as many as the one before took."""
    how = random.Random(fate.randrange(1 << 30))
    return Point(fate.randrange(operations) + 1, power_cut=fate.random() < 0.7, luck=how)


def _try(make: MakeStorage, one: _Try, second: Point | None, outcome: Outcome) -> int:
    """Try it; how many operations the recovery took, 0 if it did not come to its end."""
    counts = (outcome.phases[one.phase], outcome.kinds[one.operation])
    for count in counts:
        count.power_cuts += one.point.power_cut
        count.kills += not one.point.power_cut
        count.second += second is not None
    machines: list[Machine] = []
    try:
        die_and_restart(make, one.point, machines.append, script=one.script, second=second)
    except Exception as error:
        for count in counts:
            count.lost += 1
        text = str(error) if isinstance(error, Broken) else repr(error)
        where = f"{one.phase}: {_name(one.point)} before operation {one.point.operation} ({one.operation})"
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
    """Die at the point, start twice, go on and let the power fail. :raises Broken: a promise was not kept

    :param prepare: called with the machine before its script runs: where a test plants a bug
    :param second: where to die again while it starts, counted from there
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
    before = {name: replica.ledger.current for name, replica in machine.replicas.items()}
    machine.die(Point(0))
    machine.operations.clear()
    machine.restart()
    machine.check()
    for name, replica in machine.replicas.items():
        if replica.ledger.current != before[name]:
            raise Broken(f"{name}: a second start found something else")
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
