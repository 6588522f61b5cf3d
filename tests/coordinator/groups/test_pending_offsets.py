"""Offsets of open transactions: against a model that does what Kafka does, by the offsets of the records."""

from __future__ import annotations

import random
from typing import Any

import pytest

from blumfeld.coordinator.groups.offsets import CommittedOffset, offset_record, tombstone
from blumfeld.coordinator.groups.pending_offsets import ENDED_AT_ONCE, PendingOffsets, Place
from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.runtime.coordinator import RELOAD_DELAY_MS
from blumfeld.spi.groups import CoordinatorRecord, Producer
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinator.fakes import FakeLog
from tests.coordinator.groups.test_offsets import commit, delete, fetch
from tests.coordinator.groups_fixture import Groups
from tests.everyday import first

GROUPS, PLACES, PRODUCERS = ("g", "h"), (("t", 0), ("t", 1), ("u", 0)), (1, 2, 3)


def commit_record(group_id: str, place: Place, offset: int) -> CoordinatorRecord:
    """As the shard writes it."""
    committed = CommittedOffset(
        offset=offset,
        leader_epoch=-1,
        metadata="",
        commit_timestamp_ms=0,
        expire_timestamp_ms=-1,
        topic_id=bytes(16),
    )
    return offset_record(group_id, *place, committed)


class Model:
    """Kafka's rule, word for word: of what is committed, the record with the higher offset stays."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, Place], tuple[int, int]] = {}
        """→ (offset of its record, committed offset)."""
        self.pending: dict[int, dict[tuple[str, Place], tuple[int, int]]] = {}

    def end(self, producer_id: int, committed: bool) -> None:
        for where, written in self.pending.pop(producer_id, {}).items():
            if committed and (where not in self.committed or written[0] > self.committed[where][0]):
                self.committed[where] = written

    def forget(self, where: tuple[str, Place]) -> None:
        self.committed.pop(where, None)
        for places in self.pending.values():
            places.pop(where, None)

    def unstable(self) -> set[tuple[str, Place]]:
        return {where for places in self.pending.values() for where in places}


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_what_counts_is_what_kafka_says_counts(seed: int) -> None:
    """Plain commits, pending ones, deletions, and markers of both kinds, in any order; and the same from the log."""
    rng = random.Random(seed)
    model, groups = Model(), Groups(log=FakeLog(), transactions=True)
    for at in range(80):
        where = (rng.choice(GROUPS), rng.choice(PLACES))
        producer_id = rng.choice(PRODUCERS)
        what = rng.choices(("pending", "plain", "marker", "delete"), (6, 2, 3, 1))[0]
        item = commit_record(*where, at)
        if what == "pending":
            groups.log.append([item], Producer(producer_id, 0))
            groups.shard.replay_transactional(item, Producer(producer_id, 0))
            model.pending.setdefault(producer_id, {})[where] = (at, at)
        elif what == "marker":
            committed = rng.random() < 0.7
            groups.end_transaction(producer_id, committed)
            model.end(producer_id, committed)
        else:
            if what == "delete":
                item = tombstone(where[0], *where[1])
                model.forget(where)
            else:
                model.committed[where] = (at, at)
            groups.log.append([item])
            groups.shard.replay(item)
        _compare(groups, model)
    groups.reload()
    _compare(groups, model)


@pytest.mark.parametrize("seed", first(12, range(60)))
def test_large_transactions_that_end_turn_by_turn_come_to_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blumfeld.coordinator.groups.pending_offsets.ENDED_AT_ONCE", 1)
    rng = random.Random(seed)
    model, groups = Model(), Groups(log=FakeLog(), transactions=True)
    shard = groups.shard
    for at in range(120):
        where = (rng.choice(GROUPS), rng.choice(PLACES))
        producer_id = rng.choice(PRODUCERS)
        what = rng.choices(("pending", "plain", "marker", "delete", "more"), (8, 2, 2, 1, 3))[0]
        item = commit_record(*where, at)
        if what == "pending":
            shard.replay_transactional(item, Producer(producer_id, 0))
            model.pending.setdefault(producer_id, {})[where] = (at, at)
        elif what == "marker":
            committed = rng.random() < 0.7
            shard.end_transaction(producer_id, committed)
            model.end(producer_id, committed)
        elif what == "more":
            shard.end_more()
        elif what == "delete":
            model.forget(where)
            shard.replay(tombstone(where[0], *where[1]))
        else:
            model.committed[where] = (at, at)
            shard.replay(item)
        pending = shard.pending
        assert model.unstable() <= {
            (group_id, place) for group_id in pending.groups() for place in pending.places(group_id)
        }
    while shard.end_more():
        pass
    _compare(groups, model)


def test_a_large_transaction_ends_in_pieces() -> None:
    """The end of a transaction with 10,000 offsets took 28 ms in one step."""
    pending = PendingOffsets()
    for index in range(2 * ENDED_AT_ONCE + 1):
        pending.add(1, "g", ("t", index), commit_record("g", ("t", index), 1))
    pieces = [len(pending.end(1, True))]
    while pending.is_ending:
        pieces.append(len(pending.go_on()))
    assert pieces == [0, ENDED_AT_ONCE, ENDED_AT_ONCE, 1]
    assert vars(pending) == vars(PendingOffsets())


def shown(pending: PendingOffsets) -> Any:
    """What a marker finds: the records of each partition, in their order, with their producers."""
    return {
        group_id: {
            place: [(producer.producer_id, item) for producer, item in by_producer.items()]
            for place, by_producer in places.items()
        }
        for group_id, places in pending._groups.items()
    }, {producer_id: writer.places for producer_id, writer in pending._producers.items()}


def _compare(groups: Groups, model: Model) -> None:
    offsets = {
        (group_id, place): committed.offset
        for group_id in GROUPS
        for place, committed in groups.shard.offsets.of_group(group_id).items()
    }
    assert offsets == {where: offset for where, (_, offset) in model.committed.items()}
    pending = groups.shard.pending
    unstable = {(group_id, place) for group_id in pending.groups() for place in pending.places(group_id)}
    assert unstable == model.unstable()
    assert bool(pending) == bool(unstable)
    for group_id in GROUPS:
        assert pending.has_group(group_id) == any(group == group_id for group, _ in unstable)
        for place in PLACES:
            assert pending.is_pending(group_id, place) == ((group_id, place) in unstable)


def test_nothing_is_left_of_what_has_ended() -> None:
    """Neither of a committed transaction, nor of an aborted or a deleted one: a broker runs for years."""
    pending = PendingOffsets()
    for producer_id in PRODUCERS:
        pending.add(producer_id, "g", ("t", 0), commit_record("g", ("t", 0), 1))
    assert list(pending.places_of_topics(("t", "u"))) == [("g", ("t", 0))]
    assert list(pending.places_of_topics(("u",))) == []
    pending.end(1, True)
    pending.end(2, False)
    pending.forget("g", ("t", 0))
    pending.forget("g", ("t", 0))
    pending.overtake("g", ("t", 0))
    assert pending.end(3, True) == []
    assert not pending
    assert vars(pending) == vars(PendingOffsets())


def test_records_of_a_transaction_that_are_no_commits_count_at_once() -> None:
    groups = Groups(log=FakeLog([commit_record("g", ("t", 0), 5)]))
    member = record(GroupMetadataKey(group="h"), GroupMetadataValue(protocol_type="consumer"), 3)
    groups.shard.replay_transactional(member, Producer(1, 0))
    groups.shard.replay_transactional(tombstone("g", "t", 0), Producer(1, 0))
    assert fetch(groups) == {}
    assert groups.shard.owner("h") is not None
    unknown = CoordinatorRecord(b"\x7f\xff", b"\0\0")
    groups.shard.replay_transactional(unknown, Producer(1, 0))
    assert not groups.shard.pending


def test_an_old_brokers_pending_offset_is_one_too() -> None:
    """Key type 0."""
    groups = Groups(log=FakeLog())
    old = record(LegacyOffsetCommitKey(group="g", topic="t", partition=1), OffsetCommitValue(offset=7), 0)
    groups.shard.replay_transactional(old, Producer(1, 0))
    assert fetch(groups) == {}
    groups.end_transaction(1, True)
    assert fetch(groups) == {("t", 1): (7, -1, "")}


@pytest.mark.parametrize("seed", first(8, range(25)))
def test_the_log_gives_the_same_state_again(seed: int) -> None:
    """Whatever clients ask, and whichever append fails: a new shard knows from the log what the old one knew."""
    rng = random.Random(seed)
    groups = Groups(log=FakeLog(), transactions=True)
    for offset in range(60):
        group_id, (topic, partition) = rng.choice(GROUPS), rng.choice(PLACES)
        what = rng.choices(("txn", "commit", "marker", "uncommit", "delete", "fail"), (8, 4, 4, 2, 1, 1))[0]
        if what == "txn":
            partitions = [TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
            groups.ask(
                TxnOffsetCommitRequest(
                    group_id=group_id,
                    producer_id=rng.choice(PRODUCERS),
                    topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
                )
            )
        elif what == "commit":
            commit(groups, group_id=group_id, topic=topic, partition=partition, offset=offset)
        elif what == "marker":
            groups.end_transaction(rng.choice(PRODUCERS), rng.random() < 0.7)
        elif what == "uncommit":
            delete(groups, topic, partition, group_id)
        elif what == "delete":
            groups.ask(DeleteGroupsRequest(groups_names=[group_id]))
        else:
            groups.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR
            commit(groups, group_id=group_id)
            groups.runtime.advance(RELOAD_DELAY_MS)
    live = groups.shard
    groups.reload()
    assert groups.shard is not live
    for group_id in GROUPS:
        assert dict(groups.shard.offsets.of_group(group_id)) == dict(live.offsets.of_group(group_id))
    assert shown(groups.shard.pending) == shown(live.pending)
