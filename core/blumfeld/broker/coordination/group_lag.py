"""The lag of groups, on demand. Any node answers: it asks a group's coordinator for the offsets, and the
leaders of partitions for their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.coordinator.groups.offsets import CommittedOffset
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.coordinator.runtime.coordinator import Coordinator, leader_for_key
from blumfeld.coordinator.runtime.host import HostState
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.spi.peers import PeerChannel
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from blumfeld.wire.schema import Message

PARTITIONS_MAX = 1_000
"""Partitions in one answer, so that it holds the loop for a few ms at most."""
TIMEOUT_MS = 2_000
"""Time for the answer of another node. Its partitions are left out after that."""
TOPIC_NAMES_TO = 9
"""Last version of OffsetFetch whose answer names topics. Later ones have ids, also of topics that were deleted."""
LATEST = -1

Place = tuple[str, int]
"""(topic, partition)."""


class GroupLag(NamedTuple):
    """The lag of one group."""

    by_partition: dict[Place, int]
    """High watermark less committed offset, at least 0."""
    left_out: int
    """Partitions with a committed offset that are not in ``by_partition``: no leader said its end, or the bound was
    reached."""


class Lags(NamedTuple):
    """The lag of one or several groups."""

    groups: dict[str, GroupLag]
    left_out: int
    """Groups that are not in ``groups``, because the bound was reached before them."""


class _Asked(NamedTuple):
    """Offsets whose lag is asked for."""

    offsets: dict[Place, int]
    total: int
    """All that the group has committed."""


class GroupLags:
    """Finds out the lag of groups.

    :param channel: gives the channel to a node by its id
    """

    def __init__(
        self,
        coordinator: Coordinator,
        hosted: PartitionManager,
        image: Callable[[], ClusterImage],
        node_id: int,
        channel: Callable[[int], PeerChannel],
    ) -> None:
        self._coordinator = coordinator
        self._hosted = hosted
        self._image = image
        self._node_id = node_id
        self._channel = channel

    async def of(self, group_id: str | None) -> Lags:
        """Returns the lag of a group; ``None``: of the groups that this node coordinates. Groups without offsets are
        left out.

        :raises BrokerError: the group's coordinator isn't known, or didn't say the offsets
        :raises OSError: it can't be reached
        """
        if group_id is None:
            groups, left_out = self._own_groups()
        else:
            committed = await self._offsets_of(group_id)
            groups, left_out = ({group_id: _bounded(committed, PARTITIONS_MAX)} if committed else {}), 0
        ends = await self._ends({place for group in groups.values() for place in group.offsets})
        return Lags({group: _lag(group_offsets, ends) for group, group_offsets in groups.items()}, left_out)

    # Committed offsets

    def _own_groups(self) -> tuple[dict[str, _Asked], int]:
        """Returns the groups that this node coordinates, and the number of those beyond the bound."""
        by_group: dict[str, _Asked] = {}
        left, groups = PARTITIONS_MAX, 0
        for host in self._coordinator.hosts:
            if host.state is not HostState.ACTIVE or not isinstance(host.shard, GroupsShard):
                continue
            names = host.shard.offsets.groups()
            groups += len(names)
            for group_id in islice(names, left):
                by_group[group_id] = _bounded(host.shard.offsets.of_group(group_id), left)
                left -= len(by_group[group_id].offsets)
                if left <= 0:
                    break
        return by_group, groups - len(by_group)

    async def _offsets_of(self, group_id: str) -> Mapping[Place, CommittedOffset | int]:
        host = self._coordinator.host_of(group_id)
        if host is not None and host.state is HostState.ACTIVE and isinstance(host.shard, GroupsShard):
            return host.shard.offsets.of_group(group_id)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        channel = self._channel(self._coordinator_of(group_id))
        answer = await channel.send(request, TIMEOUT_MS, version_max=TOPIC_NAMES_TO)
        assert isinstance(answer, OffsetFetchResponse)
        (group,) = answer.groups
        if group.error_code:
            raise BrokerError(known_code(group.error_code))
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0
        }

    def _coordinator_of(self, group_id: str) -> int:
        leader = leader_for_key(self._image(), OFFSETS_TOPIC, group_id)
        if leader < 0 or leader == self._node_id:  # this node leads it, and hasn't loaded the groups yet
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    # Ends of partitions

    async def _ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Returns the high watermarks that this node and the leaders elsewhere know."""
        ends: dict[Place, int] = {}
        elsewhere: dict[int, list[Place]] = {}
        for topic, index in places:
            partition = self._hosted.find(topic, index)
            if partition is not None and partition.leader is not None:
                ends[topic, index] = partition.high_watermark
            elif (leader := self._leader_of(topic, index)) >= 0:
                elsewhere.setdefault(leader, []).append((topic, index))
        answers = [
            self._channel(leader).send(_latest(their), TIMEOUT_MS)
            for leader, their in sorted(elsewhere.items())
        ]
        for answer in answers:
            ends |= await _ends_in(answer)
        return ends

    def _leader_of(self, topic: str, index: int) -> int:
        image = self._image().topics.get(topic)
        partition = None if image is None else image.partitions.get(index)
        return -1 if partition is None or partition.leader == self._node_id else partition.leader


def _bounded(committed: Mapping[Place, CommittedOffset | int], bound: int) -> _Asked:
    offsets = {
        place: value if isinstance(value, int) else value.offset
        for place, value in islice(committed.items(), bound)
    }
    return _Asked(offsets, len(committed))


def _lag(group_offsets: _Asked, ends: Mapping[Place, int]) -> GroupLag:
    known = {
        place: max(0, ends[place] - offset)
        for place, offset in group_offsets.offsets.items()
        if place in ends
    }
    return GroupLag(known, group_offsets.total - len(known))


def _latest(places: Iterable[Place]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in sorted(places):
        partitions = topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions
        partitions.append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    return ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))


async def _ends_in(answer: Completion[Message]) -> dict[Place, int]:
    """Returns the ends in a leader's answer; none if it can't be reached."""
    try:
        response = await answer
    except (OSError, BrokerError):
        return {}
    assert isinstance(response, ListOffsetsResponse)
    return {
        (topic.name, partition.partition_index): partition.offset
        for topic in response.topics
        for partition in topic.partitions
        if not partition.error_code and partition.offset >= 0
    }
