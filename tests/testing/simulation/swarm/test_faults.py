"""Which classes of faults a seed turns on, and what each of them does to a machine."""

from __future__ import annotations

from collections import Counter

import pytest

from blumfeld.testing.fakes.files import FakeDisk
from blumfeld.testing.simulation.swarm import FaultClass, Shape, Swarm
from blumfeld.testing.simulation.swarm.brokers import Brokers
from blumfeld.testing.simulation.swarm.disk_files import files_of
from blumfeld.testing.simulation.swarm.faults import drawn
from tests.testing.simulation.register.workload import RegisterWorkload

EVERY = frozenset(FaultClass)


def test_seeds_differ_and_every_class_is_on_in_about_half_of_them() -> None:
    on: Counter[FaultClass] = Counter()
    for seed in range(400):
        found = drawn(seed, EVERY)
        assert found
        on.update(found.keys())
    assert set(on) == EVERY
    assert all(150 < count < 250 for count in on.values())


def test_leaving_a_class_out_changes_no_other() -> None:
    """Otherwise a failing seed could not be reduced."""
    for seed in range(20):
        every = drawn(seed, EVERY)
        for left_out in every:
            rest = {one: mean_s for one, mean_s in every.items() if one is not left_out}
            assert not rest or drawn(seed, EVERY - {left_out}) == rest


def test_a_seed_that_turns_nothing_on_has_a_fault_all_the_same_unless_none_is_allowed() -> None:
    assert all(drawn(seed, {FaultClass.CUT}) for seed in range(20))
    assert drawn(1, frozenset()) == {}


@pytest.mark.parametrize("one", sorted(EVERY - {FaultClass.BIT_ROT}))
def test_each_class_happens(one: FaultClass) -> None:
    """Alone, in a run that keeps its promises."""
    reads = one is FaultClass.READ_ERROR  # mostly at the start of a process, and with few pages in the cache
    faults = (one, FaultClass.KILL, FaultClass.POWER) if reads else (one,)
    for seed in range(8):
        shape = Shape(seed=seed, clients=3, seconds=60.0, faults=faults)
        if Swarm(shape, Brokers() if reads else RegisterWorkload()).run().faults.get(one.value):
            return
    pytest.fail("no seed brought it about")


def test_files_with_bytes_are_found() -> None:
    disk = FakeDisk()
    files = disk.mount(lambda: 0)
    files.make_dirs("/data/deep")
    files.write_atomically("/data/deep/b", b"xx")
    files.write_atomically("/data/a", b"x")
    files.open("/data/empty", create=True)
    assert files_of(disk.tree) == [("/data/a", 1), ("/data/deep/b", 2)]
