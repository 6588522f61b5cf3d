"""Assignment for members with one common subscription: partition counts of any two members differ by at most
one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice

from blumfeld.spi.assignors import Assignment
from blumfeld_groups_kip848.assignors.holdings import Holdings, Pace, Steps


def deal_evenly(holdings: Holdings) -> Steps[Assignment]:
    """Deal the partitions evenly and move as few as possible.

    A member gives up only partitions beyond its quota and receives only what it lacks. The larger quotas go
    to members that already hold that many, then to the first members by id.
    """
    quotas = _quotas(holdings)
    pace = Pace()
    for member_id, quota in quotas.items():
        if (excess := holdings.load[member_id] - quota) > 0:
            for topic_id, partition in islice((yield from _least_wanted(holdings, member_id, pace)), excess):
                holdings.take(member_id, topic_id, partition)
                yield from pace.look()
    yield from deal_free(holdings, {m: quota - holdings.load[m] for m, quota in quotas.items()})
    return (yield from holdings.assignment())


def _quotas(holdings: Holdings) -> Mapping[str, int]:
    spec = holdings.spec
    total = sum(topic.partition_count for topic in spec.topics.values())
    base, larger = divmod(total, len(spec.members))
    by_load = sorted(spec.members, key=lambda member_id: holdings.load[member_id] <= base)
    with_one_more = set(by_load[:larger])
    return {member_id: base + (member_id in with_one_more) for member_id in spec.members}


def _least_wanted(holdings: Holdings, member_id: str, pace: Pace) -> Steps[Iterator[tuple[bytes, int]]]:
    """Yield the partitions that the member should give up first. Partitions outside its rack come first, then
    those of the topic with most partitions here, from the highest index.
    """
    topics, rack_id = holdings.spec.topics, holdings.spec.members[member_id].rack_id
    far: dict[bytes, list[int]] = {}
    rest: dict[bytes, list[int]] = {}
    for topic_id, partitions in holdings.of(member_id).items():
        topic = topics[topic_id]
        for partition in sorted(partitions):
            is_far = rack_id is not None and topic.racks and rack_id not in topic.racks[partition]
            (far if is_far else rest).setdefault(topic_id, []).append(partition)
            yield from pace.look()
    return chain(_from_largest(far), _from_largest(rest))


def _from_largest(piles: dict[bytes, list[int]]) -> Iterator[tuple[bytes, int]]:
    sizes = [(-len(pile), topic_id) for topic_id, pile in piles.items()]
    heapify(sizes)
    while sizes:
        size, topic_id = sizes[0]
        yield topic_id, piles[topic_id].pop()
        if piles[topic_id]:
            heapreplace(sizes, (size + 1, topic_id))
        else:
            heappop(sizes)


def deal_free(holdings: Holdings, lacking: Mapping[str, int]) -> Steps[None]:
    """Give free partitions to members that lack some: partitions with a replica in the member's rack first,
    then the rest in turn, topic by topic.

    ``lacking``: the number of partitions that each member lacks. All of these members must subscribe to all
    free topics.
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
    """Deal partitions to members in the same rack. Partitions with the fewest eligible racks come first;
    among these racks, the one that lacks most receives.
    """
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
