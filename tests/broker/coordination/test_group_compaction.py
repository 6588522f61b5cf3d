"""Compaction of ``__consumer_offsets``: it happens, and whoever replays what it left comes to the same groups."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from blumfeld.broker.coordination.led_topic import PartitionCoordinatorLog
from blumfeld.broker.upkeep.cleaner_choice import with_segments
from blumfeld.config.values import BrokerConfig
from blumfeld.coordinator.groups.shard import GroupsShard
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from blumfeld.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_storage_memory import MemoryStorage
from tests.broker.coordination.test_group_coordination import join_request
from tests.broker.fake_transactions import FakeTransactions
from tests.broker.handlers.marker_steps import marker, txn_commit
from tests.broker.harness import BrokerHarness
from tests.broker.upkeep.test_cleaner import BACKOFF_MS
from tests.coordinator.groups.test_offsets import commit_request
from tests.everyday import first

GROUPS = ("a", "b", "c")
PRODUCERS = (71, 72)


class Compacted(BrokerHarness):
    """A broker whose groups' topic has small segments, and tombstones that go in the round after the next."""

    def __init__(self) -> None:
        super().__init__(
            {"group.initial.rebalance.delay.ms": 0},
            group_protocols=[ClassicGroupProtocol()],
            transactions=FakeTransactions(),
            make_storage=MemoryStorage,
        )
        self.create_topic(OFFSETS_TOPIC, 1, cleanup_policy="compact", delete_retention_ms="1", **DIRTY)
        self.create_topic("t", 4)
        self.open: set[int] = set()

    @property
    def shard(self) -> GroupsShard:
        groups = self.broker.groups
        assert groups is not None
        (host,) = groups.coordinator.hosts
        assert isinstance(host.shard, GroupsShard)
        return host.shard

    def replayed(self) -> GroupsShard:
        """A shard built from what the log has now."""
        groups = self.broker.groups
        assert groups is not None
        groups.coordinator.elected(0, PartitionCoordinatorLog(self.hosted(OFFSETS_TOPIC), self.runtime))
        self.runtime.run_turn()
        return self.shard

    def one_thing(self, random: Random) -> None:
        """Something that is written to the groups' topic."""
        kind = random.randrange(10)
        group, partition, offset = random.choice(GROUPS), random.randrange(4), random.randrange(1_000)
        if kind < 4:
            self.ask(commit_request(group_id=group, partition=partition, offset=offset), 8)
        elif kind < 6:
            producer = random.choice(PRODUCERS)
            self.open.add(producer)
            self.ask(txn_commit(producer, group=group, partition=partition, offset=offset), 4)
        elif kind < 8 and self.open:
            self.end(self.open.pop(), commit=random.random() < 0.6)
        elif kind == 8:
            partitions = [OffsetDeleteRequestPartition(partition_index=partition)]
            topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
            self.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        else:
            self.ask(DeleteGroupsRequest(groups_names=[group]), 2)

    def end(self, producer: int, *, commit: bool) -> None:
        self.ask(WriteTxnMarkersRequest(markers=[marker(producer, commit=commit)]), 1)

    def compact(self) -> None:
        """Seal what there is, and let the cleaner look."""
        with_segments(self.hosted(OFFSETS_TOPIC)).roll()
        self.runtime.advance(BACKOFF_MS)


DIRTY: dict[str, Any] = {"min_cleanable_dirty_ratio": "0.0"}


def state(shard: GroupsShard) -> Any:
    """Offsets, what is pending and may still come, and groups; in no particular order. A group that had nothing but
    offsets, all of them gone, is there until somebody looks: compaction looks, as it were.
    """
    offsets = {group: dict(shard.offsets.of_group(group)) for group in shard.offsets.groups()}
    pending = {(group, place) for group in shard.pending.groups() for place in shard.pending.places(group)}
    gone = shard.offsets.emptied()
    left = [s for s in shard.summaries() if s.group_id not in gone or shard.owner(s.group_id)]
    return offsets, pending, sorted((s.group_id, s.group_type) for s in left)


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_what_compaction_leaves_gives_the_same_groups(seed: int) -> None:
    """Commits, transactions that are committed, aborted and open, tombstones; round after round of the cleaner."""
    random = Random(seed)
    broker = Compacted()
    log = broker.hosted(OFFSETS_TOPIC).log
    for _ in range(12):
        for _ in range(random.randrange(5, 30)):
            broker.one_thing(random)
        before = state(broker.shard)
        assert state(broker.replayed()) == before, "by the whole log"
        broker.compact()
        assert state(broker.replayed()) == before, "by what compaction left"
    while broker.open:
        broker.end(broker.open.pop(), commit=True)
    before = state(broker.shard)
    assert not before[1]
    for _ in range(4):
        broker.ask(commit_request(group_id="last", offset=1), 8)
        broker.compact()
    left = sum(batch.record_count for batch in log.batches(0) if not batch.is_control)
    assert left <= len(broker.shard.offsets) + 3, "all but the last of each is gone"
    assert state(broker.replayed())[0].items() >= before[0].items()


def test_a_classic_group_outlives_the_compaction_of_its_former_selves() -> None:
    """Generation after generation of one member that comes and goes: the last is left."""
    broker = Compacted()
    for _ in range(10):
        joined = broker.ask(join_request(), 9)
        leaving = MemberIdentity(member_id="", group_instance_id="one")
        broker.ask(LeaveGroupRequest(group_id="g", members=[leaving]), 5)
        assert joined.error_code == 0
    broker.ask(join_request(), 9)
    before = [(s.group_id, s.group_type) for s in broker.shard.summaries()]
    broker.compact()
    assert [(s.group_id, s.group_type) for s in broker.replayed().summaries()] == before
    assert broker.ask(join_request(), 9).generation_id > joined.generation_id


def test_the_groups_topic_is_made_to_be_compacted() -> None:
    """In segments of 100 MiB, of which all but the last are cleaned."""
    broker = BrokerHarness({"offsets.topic.num.partitions": 3}, group_protocols=[ClassicGroupProtocol()])
    broker.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
    broker.runtime.run_turn()
    config = broker.broker.cluster.topic_config(OFFSETS_TOPIC)
    assert config.compacts
    assert config.segment_bytes == 100 * 1024 * 1024 == BrokerConfig({}).int("offsets.topic.segment.bytes")
