"""Scenarios that the seeds of the swarm meet too seldom: each has a script."""

from __future__ import annotations

import pytest

from blumfeld_kit.simulation.swarm import Shape, Swarm
from tests.everyday import first
from tests.kit.simulation.cluster.scenarios import (
    FullController,
    FullDisk,
    LargeTopic,
    LateRegistration,
    PausedController,
    SmallIsr,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_controller_dies_while_a_topic_with_a_thousand_partitions_is_created(seed: int) -> None:
    """The controller is killed before any node shows the topic."""
    report = Swarm(Shape(seed=seed, clients=2, seconds=30.0, faults=()), LargeTopic()).run()
    assert report.counts["controllers killed"] == 1
    assert report.counts["acked"]


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_replicas_that_left_an_isr_which_was_too_small_are_elected(seed: int) -> None:
    """The last member of the ISR, which lost its page cache, is not."""
    report = Swarm(Shape(seed=seed, clients=2, seconds=25.0, faults=()), SmallIsr()).run()
    assert report.counts["last members lost"] == 1
    assert not report.counts.get("excuses")


@pytest.mark.parametrize("seed", first(1, range(2)))
def test_a_controller_that_was_stopped_fences_nobody(seed: int) -> None:
    report = Swarm(Shape(seed=seed, clients=2, seconds=25.0, faults=()), PausedController()).run()
    assert report.counts["pauses"] == 2
    assert report.counts["acked"]


def test_a_registration_that_comes_behind_the_next_one_ends_no_start() -> None:
    report = Swarm(Shape(seed=0, clients=2, seconds=15.0, faults=()), LateRegistration()).run()
    assert report.counts["late registrations"] == 1
    assert report.counts["starts after a late registration"] == 1


@pytest.mark.parametrize("seed", first(1, range(2)))
@pytest.mark.parametrize("scenario", [FullDisk, FullController])
def test_a_full_disk_gives_its_leaders_away_and_is_back_by_itself(
    seed: int, scenario: type[FullDisk]
) -> None:
    report = Swarm(Shape(seed=seed, clients=4, seconds=40.0, faults=()), scenario()).run()
    assert report.counts["refused"] > 1
    assert report.counts["acked while full"] > 20
