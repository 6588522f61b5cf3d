"""The waves of a storm: drawn from the seed, and no node is hit twice in the same place at once."""

from __future__ import annotations

from itertools import combinations, islice

from campaigns.cluster.faults import ACTIONS, SESSIONS
from campaigns.cluster.storm import FACULTIES, Blow, Wave, waves

NODES = (1, 2, 3)


def test_a_seed_gives_the_same_storm_again_and_another_seed_another_one() -> None:
    storms = [list(islice(waves(seed, tuple(FACULTIES), NODES), 20)) for seed in (7, 7, 8)]
    assert storms[0] == storms[1] != storms[2]


def test_blows_on_one_faculty_of_a_node_never_overlap() -> None:
    all_waves = list(islice(waves(1, tuple(FACULTIES), NODES), 300))
    assert not any(blow.collides(other) for wave in all_waves for blow, other in combinations(wave.blows, 2))
    assert {blow.action for wave in all_waves for blow in wave.blows} == set(FACULTIES)
    assert set(FACULTIES) == set(ACTIONS) - SESSIONS
    assert {len(wave.nodes) for wave in all_waves} == {1, 2, 3}


def test_blows_collide_on_the_same_faculty_node_and_time_only() -> None:
    kill = Blow(2.0, "kill", (1, 2), 3.0)
    assert kill.collides(Blow(5.0, "pause", (2,), 1.0))
    assert not kill.collides(Blow(5.1, "pause", (2,), 1.0))
    assert not kill.collides(Blow(2.0, "pause", (3,), 1.0))
    assert not kill.collides(Blow(2.0, "cut", (1, 2), 1.0))


def test_a_wave_is_taken_step_by_step_in_times_order() -> None:
    kill, part = Blow(0.0, "kill", (1,), 9.0), Blow(2.0, "part", (2, 3), 1.5)
    wave = Wave(4, (kill, part))
    assert wave.steps() == [(0.0, True, kill), (2.0, True, part), (3.5, False, part), (9.0, False, kill)]
    assert wave.name == "wave 4: kill 1 0.0-9.0 s, part 2+3 2.0-3.5 s"
    assert wave.nodes == (1, 2, 3)


def test_two_nodes_are_parted_and_no_fewer() -> None:
    all_waves = islice(waves(2, ("part",), NODES), 50)
    assert {len(blow.nodes) for wave in all_waves for blow in wave.blows} == {2}
