"""Members that all subscribe to the same topics: each gets as many partitions as any other, or one more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from blumfeld.spi.assignors import Assignment
from blumfeld_groups_kip848.assignors.holdings import Holdings, Pace, Steps, is_near


def deal_evenly(holdings: Holdings) -> Steps[Assignment]:
    """Move as few partitions as can be.

    A member gives up only what it holds beyond its quota, and gets only what it lacks. The larger quotas go to
    members that hold that much already, then to the first in order of their ids.
    """
    quotas = _quotas(holdings)
    pace = Pace()
    for member_id, quota in quotas.items():
        while holdings.load[member_id] > quota:
            holdings.take(member_id, *_least_wanted(holdings, member_id))
            yield from pace.look(len(holdings.of(member_id)))
    yield from deal_free(holdings, {m: quota - holdings.load[m] for m, quota in quotas.items()})
    return holdings.assignment()


def _quotas(holdings: Holdings) -> Mapping[str, int]:
    spec = holdings.spec
    total = sum(topic.partition_count for topic in spec.topics.values())
    base, larger = divmod(total, len(spec.members))
    by_load = sorted(spec.members, key=lambda member_id: holdings.load[member_id] <= base)
    with_one_more = set(by_load[:larger])
    return {member_id: base + (member_id in with_one_more) for member_id in spec.members}


def _least_wanted(holdings: Holdings, member_id: str) -> tuple[bytes, int]:
    """Of the topic that it holds most of, a partition that is not in its rack, from the end."""
    held, topics = holdings.of(member_id), holdings.spec.topics
    rack_id = holdings.spec.members[member_id].rack_id
    if rack_id is not None:
        far = [
            (len(partitions), topic_id, partition)
            for topic_id, partitions in held.items()
            if topics[topic_id].racks
            for partition in partitions
            if not is_near(topics[topic_id], partition, rack_id)
        ]
        if far:
            return max(far)[1:]
    topic_id = max(held, key=lambda topic_id: (len(held[topic_id]), topic_id))
    return topic_id, max(held[topic_id])


def deal_free(holdings: Holdings, lacking: Mapping[str, int]) -> Steps[None]:
    """Give what is free to members that lack partitions: near ones first, else in turn, topic by topic.

    ``lacking``: how many each member lacks. All of these members may have all that is free.
    """
    lacks = {member_id: count for member_id, count in lacking.items() if count > 0}
    pace = Pace()
    yield from _deal_near(holdings, lacks, pace)
    turns = deque(lacks)
    for topic_id, partition in _free(holdings):
        if not turns:
            return
        member_id = turns.popleft()
        holdings.give(member_id, topic_id, partition)
        lacks[member_id] -= 1
        if lacks[member_id]:
            turns.append(member_id)
        yield from pace.look()


def _free(holdings: Holdings) -> Iterator[tuple[bytes, int]]:
    for topic_id in holdings.spec.topics:
        for partition in sorted(holdings.free[topic_id]):
            yield topic_id, partition


def _deal_near(holdings: Holdings, lacks: dict[str, int], pace: Pace) -> Steps[None]:
    """Partitions with the fewest racks that anybody is in come first; of these racks that which lacks most."""
    spec = holdings.spec
    racks: dict[str, deque[str]] = {}
    for member_id in lacks:
        rack_id = spec.members[member_id].rack_id
        if rack_id is not None:
            racks.setdefault(rack_id, deque()).append(member_id)
    if not racks:
        return
    rack_lacks = {rack_id: sum(lacks[m] for m in members) for rack_id, members in racks.items()}
    choices: dict[int, list[tuple[bytes, int, list[str]]]] = {}
    for topic_id, partition in _free(holdings):
        topic = spec.topics[topic_id]
        near = sorted(topic.racks[partition] & racks.keys()) if topic.racks else []
        if near:
            choices.setdefault(len(near), []).append((topic_id, partition, near))
        yield from pace.look()
    for _, partitions in sorted(choices.items()):
        for topic_id, partition, near in partitions:
            rack_id = max(near, key=lambda rack_id: rack_lacks[rack_id])
            if rack_lacks[rack_id]:
                rack_lacks[rack_id] -= 1
                holdings.give(_next_in_turn(racks[rack_id], lacks), topic_id, partition)
            yield from pace.look()


def _next_in_turn(turns: deque[str], lacks: dict[str, int]) -> str:
    member_id = turns.popleft()
    lacks[member_id] -= 1
    if lacks[member_id]:
        turns.append(member_id)
    else:
        del lacks[member_id]
    return member_id
