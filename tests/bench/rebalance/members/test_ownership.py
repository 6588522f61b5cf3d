"""Owning, pausing and stable: each definition of the rebalance bench on changes put down by hand."""

from __future__ import annotations

from blumfeld_bench.rebalance.members.ownership import Ownership, pauses


def owned(partitions: int, **members: tuple[int, ...]) -> Ownership:
    """Members ``m1``, ``m2``, … own these from the start."""
    ownership = Ownership(partitions)
    for name, mine in members.items():
        ownership.change(0, int(name[1:]), mine)
    return ownership


def test_an_eager_member_pauses_from_its_rejoin_to_its_new_assignment() -> None:
    """Also where it is given others than it had, as range does."""
    ownership = owned(4, m1=(0, 1), m2=(2, 3))
    before = ownership.begin()
    ownership.change(100, 1, ())
    ownership.change(130, 2, ())
    ownership.change(200, 1, (2, 3))
    ownership.change(250, 2, (0, 1))
    seen = pauses(before, ownership.changes, ownership.owners(), 250)
    assert seen.members == {1: 100, 2: 120}
    assert seen.moved == {0: 150, 1: 150, 2: 70, 3: 70}
    assert seen.unowned == 440


def test_a_cooperative_member_that_gives_one_up_for_good_does_not_pause() -> None:
    """It has what it keeps all the time; the partition that moves has no owner meanwhile."""
    ownership = owned(4, m1=(0, 1), m2=(2, 3))
    before = ownership.begin()
    assert ownership.change(100, 1, (0,))
    assert not ownership.change(180, 3, (1,))
    seen = pauses(before, ownership.changes, ownership.owners(), 180)
    assert seen.members == {1: 0, 2: 0}
    assert seen.moved == {1: 80}


def test_a_member_that_must_wait_for_what_it_is_given_instead_pauses() -> None:
    ownership = owned(4, m1=(0, 1), m2=(2, 3))
    before = ownership.begin()
    ownership.change(10, 1, (0,))
    ownership.change(20, 2, (3,))
    ownership.change(30, 1, (0, 2))
    ownership.change(70, 2, (3, 1))
    assert pauses(before, ownership.changes, ownership.owners(), 70).members == {1: 20, 2: 50}


def test_what_a_killed_member_had_has_no_owner_until_it_is_given_to_another() -> None:
    ownership = owned(4, m1=(0, 1), m2=(2, 3))
    before = ownership.begin()
    ownership.change(1000, 2, ())
    ownership.change(7000, 1, (0, 1, 2))
    seen = pauses(before, ownership.changes, ownership.owners(), 9000)
    assert seen.moved == {2: 6000}
    assert seen.unowned == 6000 + 8000, "one partition still has none at the end"
    assert seen.members[1] == 0


def test_several_pauses_of_one_member_add_up() -> None:
    ownership = owned(2, m1=(0, 1))
    before = ownership.begin()
    for at_ns in (100, 300):
        ownership.change(at_ns, 1, ())
        ownership.change(at_ns + 50, 1, (0, 1))
    assert pauses(before, ownership.changes, ownership.owners(), 350).members == {1: 100}


def test_balanced_is_every_partition_owned_by_a_living_member_and_nobody_two_ahead() -> None:
    ownership = owned(5, m1=(0, 1, 2), m2=(3, 4))
    assert ownership.balanced([1, 2])
    assert not ownership.balanced([1]), "somebody who is gone owns two"
    assert not ownership.balanced([1, 2, 3]), "the third has none where the first has three"
    ownership.change(1, 1, (0, 1))
    assert (ownership.unowned, ownership.balanced([1, 2])) == (1, False)
    assert not ownership.balanced([])


def test_a_partition_given_away_before_its_owner_let_go_is_counted() -> None:
    """Two readers of one partition at once: what no coordinator may cause."""
    ownership = owned(2, m1=(0, 1))
    ownership.change(5, 2, (1,))
    assert ownership.contested == 1
    ownership.change(6, 1, (0,))
    assert (ownership.contested, ownership.unowned) == (1, 0)
