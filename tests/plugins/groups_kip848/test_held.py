"""What a member holds it holds until it has given it up: rules that scripts and simulation come past too seldom."""

from __future__ import annotations

import attrs

from blumfeld.client.classic_group import partitions_of, subscription_bytes
from blumfeld_groups_kip848.conversion.downgrade import exported
from blumfeld_groups_kip848.edit import Edit
from blumfeld_groups_kip848.group import (
    LEFT_FOR_A_WHILE,
    ClassicMember,
    ConsumerGroup,
    Member,
    MemberState,
    PartitionOwners,
)
from blumfeld_groups_kip848.members.departures import leave_for_a_while
from blumfeld_groups_kip848.targets.reconciliation import reconcile
from blumfeld_kit.groups.model import ModelCluster

A, B = b"a" * 16, b"b" * 16
REVOKING = Member(
    "m", epoch=3, previous_epoch=3, state=MemberState.UNREVOKED_PARTITIONS, revoking={A: {0: 3}, B: {0: 3}}
)


def test_who_gave_up_one_topic_of_two_has_not_given_up() -> None:
    """It stays where it is until it has given up both."""
    assert reconcile(REVOKING, 4, {}, {B: [0]}, PartitionOwners()) is REVOKING
    assert reconcile(REVOKING, 4, {}, {}, PartitionOwners()).epoch == 4


def test_a_late_release_leaves_what_another_holds_by_now() -> None:
    """In the shard's own group and in a draft of it."""
    owners = PartitionOwners()
    owners.take({A: {0: 3}}, 3)
    owners.take({A: {0: 5}}, 5)
    for view in (owners, PartitionOwners(owners)):
        view.release({A: {0: 3}}, 3)
        assert view.epoch(A, 0) == 5


def test_who_leaves_for_a_while_gives_up_what_it_was_to_give_up() -> None:
    """The rest is kept for it."""
    group = ConsumerGroup("g", members={"m": attrs.evolve(REVOKING, instance_id="i", assigned={A: {1: 3}})})
    edit = Edit(group, 0)
    leave_for_a_while(edit, group.members["m"])
    member = edit.group.members["m"]
    assert (member.epoch, member.revoking, member.assigned) == (LEFT_FOR_A_WHILE, {}, {A: {1: 3}})


def test_a_classic_group_is_told_what_its_members_hold() -> None:
    """What they are to give up too: they read it until they have joined again."""
    cluster = ModelCluster()
    cluster.create("t", 3)
    topic_id = cluster.topics["t"].topic_id
    classic = ClassicMember(10_000, (("range", subscription_bytes(["t"], (), -1, None)),))
    member = attrs.evolve(REVOKING, classic=classic, assigned={topic_id: {0: 3}}, revoking={topic_id: {2: 3}})
    (exported_member,) = exported(ConsumerGroup("g", members={"m": member}), cluster).members
    assert sorted(partitions_of(exported_member.assignment)) == [("t", 0), ("t", 2)]
