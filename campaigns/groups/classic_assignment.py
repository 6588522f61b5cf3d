"""The work of a classic leader between JoinGroup and SyncGroup: it deals the partitions, evenly and stickily."""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.client.classic_group import Subscription
from campaigns.groups.member import Partition


def assign(
    members: Mapping[str, Subscription], counts: Mapping[str, int], *, cooperative: bool
) -> dict[str, list[Partition]]:
    """Deal every partition to who subscribes to it and has least, owners first as far as their fair share goes.

    Cooperative: what another still owns is withheld from its new owner, until that one has given it up.
    """
    dealt: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(members)}
    partitions = [(topic, index) for topic, count in sorted(counts.items()) for index in range(count)]
    owners = _owners(members)
    fair = len(partitions) // len(dealt) if dealt else 0
    left: list[Partition] = []
    for at in partitions:
        owner = owners.get(at)
        if owner is not None and at[0] in members[owner].topics and len(dealt[owner]) < fair:
            dealt[owner].append(at)
        else:
            left.append(at)
    for at in left:
        able = [member_id for member_id in dealt if at[0] in members[member_id].topics]
        if able:
            least = min(able, key=lambda member_id: (len(dealt[member_id]), member_id != owners.get(at)))
            dealt[least].append(at)
    if not cooperative:
        return dealt
    return {
        member_id: [at for at in given if owners.get(at, member_id) == member_id]
        for member_id, given in dealt.items()
    }


def _owners(members: Mapping[str, Subscription]) -> dict[Partition, str]:
    """Return the owner of each partition, by the newest generation that claims it."""
    owners: dict[Partition, str] = {}
    for member_id, member in sorted(members.items(), key=lambda item: (item[1].generation, item[0])):
        for at in sorted(member.owned):
            owners[at] = member_id
    return owners
