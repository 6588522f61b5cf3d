"""How a member comes from what it has to what its target says."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld_groups_kip848.group import Member, MemberState, Owned, PartitionOwners
from blumfeld_groups_kip848.targets.reconciliation import is_subset, reconcile
from tests.everyday import examples

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED = MemberState
NOTHING: Mapping[bytes, list[int]] = {}


def owned(since: int, *partitions: int) -> Owned:
    return {T: dict.fromkeys(partitions, since)} if partitions else {}


def target(*partitions: int, topic: bytes = T) -> dict[bytes, frozenset[int]]:
    return {topic: frozenset(partitions)}


def member(epoch: int, assigned: Owned, **fields: object) -> Member:
    return Member("m", epoch=epoch, previous_epoch=epoch - 1, assigned=assigned, **fields)  # type: ignore[arg-type]


def held_by(*members: Member) -> PartitionOwners:
    owners = PartitionOwners()
    for each in members:
        owners.take(each.assigned, each.epoch)
        owners.take(each.revoking, each.epoch)
    return owners


def test_a_member_that_has_its_target_is_the_same_object() -> None:
    consumer = member(5, owned(3, 0, 1))
    assert reconcile(consumer, 5, target(0, 1), None, held_by(consumer)) is consumer


def test_what_is_free_comes_with_the_epoch_and_what_was_kept_keeps_its_own() -> None:
    consumer = member(5, owned(3, 0))
    now = reconcile(consumer, 7, target(0, 1), None, held_by(consumer))
    assert (now.epoch, now.previous_epoch, now.state) == (7, 5, STABLE)
    assert now.assigned == {T: {0: 3, 1: 7}}


def test_what_is_to_go_is_asked_for_in_the_old_epoch_before_anything_comes() -> None:
    consumer = member(5, owned(3, 0, 1))
    now = reconcile(consumer, 7, target(1, 2), None, held_by(consumer))
    assert (now.epoch, now.state) == (5, UNREVOKED)
    assert (now.assigned, now.revoking) == (owned(3, 1), owned(3, 0))


def test_what_it_does_not_have_any_more_need_not_be_asked_for() -> None:
    consumer = member(5, owned(3, 0, 1))
    now = reconcile(consumer, 7, target(1, 2), {T: [1]}, held_by(consumer))
    assert (now.epoch, now.state, now.revoking) == (7, STABLE, {})
    assert now.assigned == {T: {1: 3, 2: 7}}


def test_silence_about_what_it_owns_gives_nothing_up() -> None:
    consumer = member(5, owned(3, 1), state=UNREVOKED, revoking=owned(3, 0))
    for reported in (None, {T: [0, 1]}, {T: [0]}):
        assert reconcile(consumer, 7, target(1), reported, held_by(consumer)) is consumer
    assert reconcile(consumer, 7, target(1), {T: [1]}, held_by(consumer)).epoch == 7


def test_what_others_hold_comes_later_and_is_waited_for_in_the_new_epoch() -> None:
    other = attrs.evolve(member(5, owned(5, 2)), member_id="other")
    consumer = member(5, owned(3, 0))
    waiting = reconcile(consumer, 7, target(0, 1, 2), None, held_by(consumer, other))
    assert (waiting.epoch, waiting.state) == (7, UNRELEASED)
    assert waiting.assigned == {T: {0: 3, 1: 7}}
    heard_of = reconcile(waiting, 7, target(0, 1, 2), None, held_by(waiting, other))
    assert heard_of == attrs.evolve(waiting, previous_epoch=7)
    assert reconcile(heard_of, 7, target(0, 1, 2), None, held_by(waiting, other)) is heard_of
    done = reconcile(waiting, 7, target(0, 1, 2), None, held_by(waiting))
    assert (done.state, done.assigned) == (STABLE, {T: {0: 3, 1: 7, 2: 7}})


def test_what_it_gave_up_and_is_to_have_again_is_its_own_at_once() -> None:
    """Nobody else can have it: it was held for it until now."""
    consumer = member(5, owned(3, 1), state=UNREVOKED, revoking=owned(3, 0))
    now = reconcile(consumer, 8, target(0, 1), {T: [1]}, held_by(consumer))
    assert (now.epoch, now.state, now.assigned) == (8, STABLE, {T: {0: 8, 1: 3}})


def test_a_member_that_has_given_up_and_must_again_stays_in_its_epoch() -> None:
    """The next target came while it gave up."""
    consumer = member(5, owned(3, 1, 2), state=UNREVOKED, revoking=owned(3, 0))
    now = reconcile(consumer, 9, target(1), {T: [1, 2]}, held_by(consumer))
    assert (now.epoch, now.previous_epoch, now.state) == (5, 5, UNREVOKED)
    assert (now.assigned, now.revoking) == (owned(3, 1), owned(3, 2))


def test_a_target_older_than_the_subscription_gives_nothing_that_is_not_read() -> None:
    consumer = member(5, owned(3, 0))
    wanted = {**target(0, 1), **target(0, topic=U)}
    assert reconcile(consumer, 7, wanted, None, held_by(consumer), subscribed={T}).assigned == {
        T: {0: 3, 1: 7}
    }


def test_what_is_not_read_any_more_is_given_up_before_there_is_a_target_that_says_so() -> None:
    has = {**owned(3, 0), U: {0: 3}}
    consumer = member(5, has)
    options = {"subscribed": {U}, "subscription_changed": True}
    now = reconcile(consumer, 5, {}, None, held_by(consumer), **options)  # type: ignore[arg-type]
    assert (now.epoch, now.state, now.assigned, now.revoking) == (5, UNREVOKED, {U: {0: 3}}, owned(3, 0))
    freed = reconcile(consumer, 5, {}, {U: [0]}, held_by(consumer), **options)  # type: ignore[arg-type]
    assert (freed.state, freed.assigned, freed.revoking) == (STABLE, {U: {0: 3}}, {})
    done = attrs.evolve(consumer, state=UNREVOKED, revoking=owned(3, 9))
    next_step = reconcile(done, 6, target(0, topic=U), {T: [0]}, held_by(done), **options)  # type: ignore[arg-type]
    assert (next_step.state, next_step.revoking) == (UNREVOKED, owned(3, 0))
    busy = attrs.evolve(consumer, state=UNREVOKED, revoking=owned(3, 9))
    more = reconcile(busy, 6, {}, None, held_by(busy), **options)  # type: ignore[arg-type]
    assert (more.state, more.assigned, more.revoking) == (UNREVOKED, {U: {0: 3}}, {T: {9: 3, 0: 3}})


def test_a_part_of_what_it_has_is_said_not_passed_over() -> None:
    assert is_subset({T: [0]}, owned(3, 0, 1))
    assert is_subset(NOTHING, owned(3, 0))
    assert not is_subset(None, owned(3, 0))
    assert not is_subset({T: [0, 2]}, owned(3, 0, 1))
    assert not is_subset({U: [0]}, owned(3, 0))


names = st.sampled_from(["a", "b", "c"])
deals = st.lists(st.lists(names, min_size=6, max_size=6), min_size=1, max_size=4)
turns = st.lists(st.tuples(names, st.booleans()), max_size=25)


@settings(max_examples=examples(150), deadline=None)
@given(deals=deals, turns=turns)
def test_members_converge_on_any_target_and_never_hold_the_same(
    deals: list[list[str]], turns: list[tuple[str, bool]]
) -> None:
    """Targets come while members are on their way to others; heartbeats come in any order, and may say nothing."""
    group = {name: Member(name) for name in "abc"}
    clients: dict[str, set[int]] = {name: set() for name in group}
    epoch, dealt = 0, deals[0]

    def beat(name: str, says: bool) -> None:
        before = group[name]
        reported = {T: sorted(clients[name])} if says else None
        owners = held_by(*group.values())
        wanted = {T: frozenset(n for n, to in enumerate(dealt) if to == name)}
        group[name] = reconcile(before, epoch, wanted, reported, owners)
        assert group[name].epoch >= before.epoch
        clients[name] = set(group[name].assigned.get(T, ()))  # it gives up at once, and says so next time
        partitions = [
            p for each in group.values() for o in (each.assigned, each.revoking) for p in o.get(T, ())
        ]
        assert len(partitions) == len(set(partitions)), "two members hold a partition"

    for nth in range(len(deals)):
        epoch, dealt = 2 + 2 * nth, deals[nth]
        for name, says in turns[nth :: len(deals)]:
            beat(name, says)
    for _ in range(4):
        for name in group:
            beat(name, True)
    for name, group_member in group.items():
        assert group_member.is_reconciled(epoch)
        assert set(group_member.assigned.get(T, ())) == {n for n, to in enumerate(dealt) if to == name}
