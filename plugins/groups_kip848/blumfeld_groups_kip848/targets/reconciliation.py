"""A member's way from its assignment to its target: one pure function (KIP-848).

First the member gives up partitions outside the target and keeps its old epoch. When its heartbeats no longer
report them, it moves to the target's epoch and gets the free partitions of the target. It gets the remaining
ones later, as other members release them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from blumfeld.spi.assignors import Assigned
from blumfeld_groups_kip848.group import Member, MemberState, Owned, PartitionOwners

Reported = Mapping[bytes, Collection[int]]
"""Topic id → partitions that a member reports as owned."""


def reconcile(
    member: Member,
    target_epoch: int,
    target: Assigned,
    owned_reported: Reported | None,
    owners: PartitionOwners,
    *,
    subscribed: Collection[bytes] | None = None,
    subscription_changed: bool = False,
) -> Member:
    """The member after one step towards its target; the same object if there is no step to take.

    :param owned_reported: partitions that the heartbeat reports; ``None`` if it leaves them out, which means
        that the member still owns those it must give up
    :param owners: holders of all partitions, this member included
    :param subscribed: ids of the topics that the member reads now, to filter a target that is older than its
        subscription. ``None`` if the target fits the subscription
    :param subscription_changed: whether this request changed the subscription. Partitions of dropped topics
        are given up at once, before a new target exists (as in Kafka 4.2)
    """
    if subscribed is not None:
        target = {topic: partitions for topic, partitions in target.items() if topic in subscribed}
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        stays = _holds(owned_reported, member.revoking)
    else:
        stays = member.is_reconciled(target_epoch)
    if stays:
        return _narrow(member, subscribed, owned_reported) if subscription_changed else member
    return _step(member, target_epoch, target, owned_reported, owners)


def _step(
    member: Member,
    target_epoch: int,
    target: Assigned,
    owned_reported: Reported | None,
    owners: PartitionOwners,
) -> Member:
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    for topic_id, partitions in member.assigned.items():
        wanted = target.get(topic_id, ())
        for partition, since in partitions.items():
            where = kept if partition in wanted else revoked
            where.setdefault(topic_id, {})[partition] = since
    if revoked and _holds(owned_reported, revoked):
        return _moved(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, kept, revoked)
    unreleased = False
    for topic_id in sorted(target):
        has, given_up = kept.get(topic_id, {}), member.revoking.get(topic_id, ())
        for partition in sorted(target[topic_id]):
            if partition in has:
                continue
            if owners.epoch(topic_id, partition) != -1 and partition not in given_up:
                unreleased = True
            else:
                kept.setdefault(topic_id, {})[partition] = target_epoch
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _moved(member, state, target_epoch, kept, {})


def _narrow(member: Member, subscribed: Collection[bytes] | None, owned_reported: Reported | None) -> Member:
    """The member without partitions of topics that it no longer reads. Its epoch stays."""
    if subscribed is None:
        return member
    gone = {topic: partitions for topic, partitions in member.assigned.items() if topic not in subscribed}
    if not gone:
        return member
    kept = {topic: partitions for topic, partitions in member.assigned.items() if topic in subscribed}
    revoking = {**member.revoking}
    for topic, partitions in gone.items():
        revoking[topic] = {**revoking.get(topic, {}), **partitions}
    if _holds(owned_reported, revoking):
        return attrs.evolve(member, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoking)
    return attrs.evolve(member, assigned=kept)


def _moved(member: Member, state: MemberState, epoch: int, assigned: Owned, revoking: Owned) -> Member:
    """The member with a new assignment. Its previous epoch becomes the current one even if the epoch stays: a
    member that was heard from in an epoch has received the answer that told it that epoch.
    """
    moved = attrs.evolve(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )
    return member if moved == member else moved


def _holds(owned_reported: Reported | None, partitions: Owned) -> bool:
    """Whether the member reports one of these partitions, or reports nothing."""
    if owned_reported is None:
        return True
    return any(
        not given.keys().isdisjoint(owned_reported.get(topic_id, ()))
        for topic_id, given in partitions.items()
    )


def is_subset(owned_reported: Reported | None, assigned: Owned) -> bool:
    """Whether the member reports its partitions, and all of them are in its assignment."""
    if owned_reported is None:
        return False
    return all(
        partition in assigned.get(topic_id, ())
        for topic_id, partitions in owned_reported.items()
        for partition in partitions
    )
