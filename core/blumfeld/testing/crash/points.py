"""Every crash point of the script: die there, start again, hold what is left against what was promised."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import msgspec

from blumfeld.testing.crash.ledger import Broken
from blumfeld.testing.crash.machine import READS, Died, Machine, MakeStorage, Point
from blumfeld.testing.crash.script import run_script
from blumfeld.testing.fake_files import Luck

LUCKY_SEEDS = 2
"""Power cuts at each changing operation with chance in what stays, beside those that keep nothing and a little."""


class PhaseCount(msgspec.Struct):
    """What came of the points of one phase."""

    operations: int = 0
    kills: int = 0
    power_cuts: int = 0
    lost: int = 0


class Outcome(msgspec.Struct):
    """What came of all points."""

    phases: dict[str, PhaseCount]
    failures: list[str]
    """One line for each point at which a promise was broken."""

    @property
    def points(self) -> int:
        """Crashes tried."""
        return sum(count.kills + count.power_cuts for count in self.phases.values())


def try_points(
    make: MakeStorage,
    *,
    seed: int = 0,
    limit: int | None = None,
) -> Outcome:
    """Run the script once to count, then once for each point. The script must hold without a crash.

    :param limit: at most so many points, spread evenly over the script; None: all
    """
    counting = Machine(make)
    run_script(counting)
    outcome = Outcome({}, [])
    for phase, _ in counting.operations:
        outcome.phases.setdefault(phase, PhaseCount()).operations += 1
    points = list(_points(counting.operations, seed))
    if limit is not None and limit < len(points):
        points = [points[at * len(points) // limit] for at in range(limit)]
    for point in points:
        _try(make, point, outcome, counting.operations)
    return outcome


def _points(operations: Sequence[tuple[str, str]], seed: int) -> Iterator[Point]:
    """Before each operation, and after the last one. Before a read the disk is as after what was changed last."""
    for number in range(1, len(operations) + 2):
        yield Point(number)
        yield Point(number, power_cut=True, luck=Luck(0))
        if number <= len(operations) and operations[number - 1][1] in READS:
            continue
        yield Point(number, power_cut=True, luck=Luck(1))
        for lucky in range(LUCKY_SEEDS):
            yield Point(number, power_cut=True, luck=random.Random(f"{seed}/{number}/{lucky}"))


def _try(
    make: MakeStorage,
    point: Point,
    outcome: Outcome,
    operations: Sequence[tuple[str, str]],
) -> None:
    phase, operation = (
        operations[point.operation - 1] if point.operation <= len(operations) else ("reopen", "end")
    )
    count = outcome.phases[phase]
    if point.power_cut:
        count.power_cuts += 1
    else:
        count.kills += 1
    try:
        die_and_restart(make, point)
    except Exception as error:
        count.lost += 1
        how = f"power cut ({_name(point)})" if point.power_cut else "kill"
        text = str(error) if isinstance(error, Broken) else repr(error)
        outcome.failures.append(f"{phase}: {how} before operation {point.operation} ({operation}): {text}")


def _name(point: Point) -> str:
    return f"kept {point.luck.kept}" if isinstance(point.luck, Luck) else "by chance"


def die_and_restart(
    make: MakeStorage, point: Point, prepare: Callable[[Machine], None] = lambda _: None
) -> Machine:
    """Die at the point, start twice, go on and let the power fail. :raises Broken: a promise was not kept

    :param prepare: called with the machine before its script runs: where a test plants a bug
    """
    machine = Machine(make, point)
    prepare(machine)
    try:
        run_script(machine)
    except Died:
        pass
    else:
        machine.die(point)
    machine.point = None
    machine.restart()
    machine.check()
    before = {name: replica.ledger.current for name, replica in machine.replicas.items()}
    machine.die(Point(0))
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
    return machine
