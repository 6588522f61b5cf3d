"""Assignment for members with different subscriptions: the fairest loads that the subscriptions allow, with
few moves.

Members with the same subscription are interchangeable, so the search goes over *kinds* of members, one kind
for each subscription. A chain begins at the fullest member. Each member in the chain gives a partition to a
member of a kind that subscribes to its topic; the last member must have at least two fewer than the first.
The shortest chain is taken. Each chain lowers the sum of the squared loads, so the search ends. When no chain
is left, no other assignment has fairer loads (Harvey et al., "Semi-matchings for bipartite graphs", 2003).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from blumfeld.spi.assignors import Assignment
from blumfeld_groups_kip848.assignors.holdings import Holdings, Pace, Steps, is_near

Hop = tuple[str, bytes]
"""One step of a chain: (id of the member that gives, id of the topic whose partition it gives)."""


def deal_fairly(holdings: Holdings) -> Steps[Assignment]:
    """Deal the free partitions, topics with the fewest subscribers first, then even out the loads."""
    kinds, pace = Kinds(holdings), Pace()
    yield from kinds.find_readers(pace)
    yield from _deal_free(holdings, kinds, pace)
    yield from _even_out(holdings, kinds, pace)
    return (yield from holdings.assignment())


class Kinds:
    """Members grouped by subscription. Each kind has its members ordered by load."""

    def __init__(self, holdings: Holdings) -> None:
        self._load = holdings.load
        self._members = holdings.spec.members
        numbers: dict[frozenset[bytes], int] = {}
        self.members: list[list[str]] = []
        """Member ids of each kind, sorted."""
        self.kind_of: dict[str, int] = {}
        for member_id, member in holdings.spec.members.items():
            kind = numbers.setdefault(member.topics, len(numbers))
            if kind == len(self.members):
                self.members.append([])
            self.members[kind].append(member_id)
            self.kind_of[member_id] = kind
        self.readers: dict[bytes, list[int]] = {topic_id: [] for topic_id in holdings.spec.topics}
        """Topic id → the kinds that subscribe to it. Filled by :meth:`find_readers`."""
        self._subscriptions = list(numbers)
        self._least: dict[tuple[int, str | None], list[tuple[int, str]]] = {}
        for member_id in self.kind_of:
            for heap in self._heaps(member_id):
                heap.append((self._load[member_id], member_id))
        for heap in self._least.values():
            heapify(heap)

    def find_readers(self, pace: Pace) -> Steps[None]:
        """Fill ``readers``. Call this before any other method."""
        for kind, topics in enumerate(self._subscriptions):
            for topic_id in topics & self.readers.keys():
                self.readers[topic_id].append(kind)
            yield from pace.look(len(topics))

    def _heaps(self, member_id: str) -> Iterable[list[tuple[int, str]]]:
        """The two heaps that hold the member: its kind's, and its kind's for its rack."""
        kind, rack_id = self.kind_of[member_id], self._members[member_id].rack_id
        for where in {None: 0, rack_id: 0}:
            yield self._least.setdefault((kind, where), [])

    def changed(self, member_id: str) -> None:
        """Record that the member's load changed. Outdated heap entries are dropped when they surface."""
        load = self._load[member_id]
        for heap in self._heaps(member_id):
            heappush(heap, (load, member_id))

    def least_of(self, kinds: Iterable[int], racks: Iterable[str | None] = (None,)) -> tuple[int, str] | None:
        """Returns (load, member) for the least loaded member of several kinds; with ``racks``, only among
        members in these racks.
        """
        return min((top for k in kinds for rack in racks if (top := self._top(k, rack))), default=None)

    def _top(self, kind: int, rack_id: str | None) -> tuple[int, str] | None:
        heap = self._least.get((kind, rack_id))
        if heap is None:
            return None
        while heap[0][0] != self._load[heap[0][1]]:
            heappop(heap)
        return heap[0]


def _deal_free(holdings: Holdings, kinds: Kinds, pace: Pace) -> Steps[None]:
    topics = holdings.spec.topics
    readers_of = {
        topic_id: sum(len(kinds.members[kind]) for kind in readers)
        for topic_id, readers in kinds.readers.items()
    }
    for topic_id in sorted(topics, key=lambda topic_id: readers_of[topic_id]):
        topic, readers = topics[topic_id], kinds.readers[topic_id]
        if not readers:
            continue
        for partition in sorted(holdings.free[topic_id]):
            least = kinds.least_of(readers)
            assert least is not None, "each kind has members"
            near = kinds.least_of(readers, sorted(topic.racks[partition])) if topic.racks else None
            _, member_id = near if near is not None and near[0] == least[0] else least
            holdings.give(member_id, topic_id, partition)
            kinds.changed(member_id)
            yield from pace.look(len(readers))


def _even_out(holdings: Holdings, kinds: Kinds, pace: Pace) -> Steps[None]:
    settled: set[int] = set()
    offers = Offers(holdings)
    fullest = [(-load, member_id) for member_id, load in holdings.load.items()]
    heapify(fullest)
    while fullest:
        load, source = heappop(fullest)
        yield from pace.look()
        if -load != holdings.load[source] or kinds.kind_of[source] in settled:
            continue
        reached: dict[int, Hop] = {}
        target = yield from _search(holdings, kinds, source, reached, settled, pace)
        if target is None:
            settled.update(reached)
            continue
        yield from _pass_on(offers, kinds, source, target, reached, pace)
        for member_id in (source, target):
            kinds.changed(member_id)
            heappush(fullest, (-holdings.load[member_id], member_id))


def _search(
    holdings: Holdings, kinds: Kinds, source: str, reached: dict[int, Hop], settled: set[int], pace: Pace
) -> Steps[str | None]:
    """Returns the last member of the shortest chain from ``source``, ``None`` if there is none. ``reached``
    receives the hop to each kind.

    Settled kinds lead nowhere: no member that can be reached from them can take another partition fairly.
    """
    load_max = holdings.load[source] - 2
    givers, offered = [source], set[bytes]()
    while givers:
        reached_now: list[int] = []
        for giver in givers:
            for topic_id in holdings.of(giver):
                if topic_id in offered:
                    continue
                offered.add(topic_id)
                for kind in kinds.readers[topic_id]:
                    if kind not in reached and kind not in settled:
                        reached[kind] = (giver, topic_id)
                        reached_now.append(kind)
                yield from pace.look(len(kinds.readers[topic_id]))
            yield from pace.look(len(holdings.of(giver)))
        least = kinds.least_of(reached_now)
        if least is not None and least[0] <= load_max:
            return least[1]
        givers = [member_id for kind in reached_now for member_id in kinds.members[kind]]
    return None


def _pass_on(
    offers: Offers, kinds: Kinds, source: str, target: str, reached: dict[int, Hop], pace: Pace
) -> Steps[None]:
    receiver = target
    while True:
        giver, topic_id = reached[kinds.kind_of[receiver]]
        yield from offers.pass_on(giver, receiver, topic_id, pace)
        if giver == source:
            break
        receiver = giver


class Offers:
    """The order in which a member gives up partitions of a topic: those it did not hold before, then those
    outside its rack, from the highest index.
    """

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._offers: dict[tuple[str, bytes], list[tuple[bool, bool, int]]] = {}

    def pass_on(self, giver: str, receiver: str, topic_id: bytes, pace: Pace) -> Steps[None]:
        """Move one partition of the topic from giver to receiver. A partition that the receiver held before
        is preferred.
        """
        holdings = self._holdings
        held = holdings.of(giver)[topic_id]
        was_received = holdings.spec.members[receiver].assigned.get(topic_id, frozenset()) & held
        if was_received:
            partition = max(was_received)
        else:
            offers = yield from self._of(giver, topic_id, pace)
            while -offers[0][2] not in held:
                heappop(offers)
            partition = -offers[0][2]
        holdings.take(giver, topic_id, partition)
        holdings.give(receiver, topic_id, partition)
        known = self._offers.get((receiver, topic_id))
        if known is not None:
            heappush(known, self._offer(receiver, topic_id, partition))

    def _of(self, giver: str, topic_id: bytes, pace: Pace) -> Steps[list[tuple[bool, bool, int]]]:
        offers = self._offers.get((giver, topic_id))
        if offers is None:
            offers = self._offers[giver, topic_id] = []
            for partition in self._holdings.of(giver)[topic_id]:
                offers.append(self._offer(giver, topic_id, partition))
                yield from pace.look()
            heapify(offers)
        return offers

    def _offer(self, member_id: str, topic_id: bytes, partition: int) -> tuple[bool, bool, int]:
        spec = self._holdings.spec
        member, topic = spec.members[member_id], spec.topics[topic_id]
        was_its_own = partition in member.assigned.get(topic_id, ())
        return was_its_own, is_near(topic, partition, member.rack_id), -partition
