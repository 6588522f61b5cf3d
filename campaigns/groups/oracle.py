"""The oracle of groups: promises that hold whatever goes wrong, checked by members' claims and by the log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from blumfeld.coordinator.groups.records import decode_record
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.spi.groups import CoordinatorRecord, GroupShard
from blumfeld.wire.messages.group_coordinator_records import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld_kit.groups.model import compacted
from blumfeld_kit.groups.states import difference, state_of
from campaigns.groups.consumer_member import ConsumerMember
from campaigns.groups.member import Member, Partition
from campaigns.groups.node import GroupsNode

VOLATILE = frozenset(
    (
        "joining",
        "syncing",
        "is_new",
        "must_sync",
        "pending",
        "delaying",
        "delay_left_ms",
        "arrived",
        "protocols",
        "_tokens",
        "_candidates",
    )
)
"""Fields of classic groups that no record has: a rebalance in flight (ADR 0006); ``protocols``: the log has one."""
CLASSIC_GROUP = 2
GROUP_EPOCH = 3
REGEX = 16
"""Record types."""
OVERTAKEN = 0
"""Version of a resolution that topics or rights have overtaken, so that it is done again."""
SETTLED = ("Stable", "Empty")


class ViolationError(AssertionError):
    """A promise is broken."""


class Oracle:
    """Knows who claims which partition, and what was committed."""

    def __init__(self, node: GroupsNode, group_id: str) -> None:
        self._node = node
        self._group_id = group_id
        self._claims: dict[Partition, dict[str, Member]] = {}
        self._mirror = node.fresh_shard()
        self._mirrored = 0
        self.checks = 0
        self.rebalances = 0
        """Group epochs and generations that the log tells of."""
        self.resolutions = 0
        """Expressions that the log has topics for."""
        self.overtaken = 0
        """Those of them that are done again."""

    # One owner at a time

    def owns(self, name: str, member: Member, now_ms: int) -> None:
        """A member reads what it owns from now on."""
        self.gone(name)
        for at in sorted(member.owned):
            self._claims.setdefault(at, {})[name] = member
        self.alone(name, member, now_ms)

    def gone(self, name: str) -> None:
        """It is dead: it reads nothing any more."""
        for claims in self._claims.values():
            claims.pop(name, None)

    def alone(self, name: str, member: Member, now_ms: int) -> None:
        """:raises ViolationError: two members, whose sessions can't be over, read the same partition"""
        self.checks += 1
        if isinstance(member, ConsumerMember) and member.went_back is not None:
            raise ViolationError(
                f"{name} was in epoch {member.went_back[0]}, and was told {member.went_back[1]}"
            )
        if member.lease_ms <= now_ms:
            return
        for at in sorted(member.owned):
            for other_name, other in self._claims[at].items():
                if other is not member and other.lease_ms > now_ms:
                    raise ViolationError(
                        f"{at[0]}-{at[1]} has two owners: {name} in epoch {member.epoch}, {other_name} in {other.epoch}"
                    )

    # The log

    def placed(self, items: Sequence[CoordinatorRecord]) -> None:
        """:raises ViolationError: a committed offset goes back, or an expression has other topics than those that it
        matches and that clients may describe now
        """
        shard = self._node.shard
        assert shard is not None
        for item in items:
            kind = int.from_bytes(item.key[:2])
            self.rebalances += kind in (CLASSIC_GROUP, GROUP_EPOCH) and item.value is not None
            if kind == 1 and item.value is not None:
                decoded = decode_record({1: (OffsetCommitKey, OffsetCommitValue)}, item)
                assert decoded is not None
                self._committed(shard, decoded[1], decoded[2])
            elif kind == REGEX and item.value is not None:
                types = {REGEX: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue)}
                decoded = decode_record(types, item)
                assert decoded is not None
                self._resolved(decoded[1], decoded[2])

    def _resolved(self, key: object, value: object) -> None:
        assert isinstance(key, ConsumerGroupRegularExpressionKey)
        assert isinstance(value, ConsumerGroupRegularExpressionValue)
        self.checks += 1
        self.resolutions += 1
        self.overtaken += value.version == OVERTAKEN
        hidden = self._node.rights.hidden
        matched = (name for name in self._node.cluster.topics if re.fullmatch(key.regular_expression, name))
        wanted = sorted(name for name in matched if name not in hidden)
        if value.version != OVERTAKEN and value.topics != wanted:
            raise ViolationError(f"{key.regular_expression} has {value.topics}, and matches {wanted}")

    def _committed(self, shard: GroupsShard, key: object, value: object) -> None:
        assert isinstance(key, OffsetCommitKey)
        assert isinstance(value, OffsetCommitValue)
        before = shard.offsets.of_group(key.group).get((key.topic, key.partition))
        self.checks += 1
        if before is not None and before.offset > value.offset:
            raise ViolationError(
                f"the offset of {key.topic}-{key.partition} went from {before.offset} to {value.offset}"
            )

    def cut(self) -> None:
        """The log has lost its end: what was replayed of it is void."""
        self._mirror, self._mirrored = self._node.fresh_shard(), 0

    def live_is_replayed(self) -> None:
        """:raises ViolationError: commands have written state that no record tells of"""
        items = self._node.log.items
        for item in items[self._mirrored :]:
            self._mirror.replay(item)
        self._mirrored = len(items)
        self._same("a command wrote state", self._mirror)

    def reload_is_the_same(self) -> None:
        """:raises ViolationError: the log, or what compaction leaves of it, gives another state"""
        self._same("the log replays to another state", self._node.replayed(self._node.log.items))
        shorter = self._node.replayed(compacted(self._node.log.items))
        self._same("the compacted log replays to another state", shorter, ordered=False)

    def _same(self, what: str, other: GroupsShard, *, ordered: bool = True) -> None:
        live = self._node.shard
        assert live is not None
        self.checks += 1
        skip = in_flight(live)
        mismatch = difference(self.state(other, skip, ordered), self.state(live, skip, ordered))
        if mismatch:
            raise ViolationError(f"{what}: {mismatch}")

    def state(self, shard: GroupsShard, skip: frozenset[str], ordered: bool = True) -> dict[str, object]:
        """All of a shard, what is volatile apart."""
        without = (self._node.config, self._node.cluster, self._node.runtime, shard)
        offsets = {
            group_id: dict(shard.offsets.of_group(group_id)) for group_id in sorted(shard.offsets.groups())
        }
        fields: dict[str, object] = {
            "offsets": state_of(offsets, ordered=False),
            "pending": state_of(shard.pending, without=without, ordered=False),
        }
        for name, of_type in shard._types.items():
            groups = getattr(of_type, "groups", of_type)
            if isinstance(groups, dict):
                groups = {group_id: group for group_id, group in groups.items() if group_id not in skip}
            fields[name] = state_of(groups, VOLATILE, without=without, ordered=ordered)
        return fields


def in_flight(shard: GroupsShard) -> frozenset[str]:
    """Classic groups of which no record tells all."""
    return in_flight_of(shard.shard_of("classic"))


def in_flight_of(classic: GroupShard | None) -> frozenset[str]:
    """The same, of the type's own shard."""
    groups = getattr(classic, "groups", {})
    return frozenset(
        group_id
        for group_id, group in groups.items()
        if not group.persisted or group.state.value not in SETTLED
    )
