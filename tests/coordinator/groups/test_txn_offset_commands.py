"""TxnOffsetCommit through its handler: who may, what is written, and errors by version. The rules are in traces."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.coordinator.groups.records import record
from blumfeld.coordinator.runtime.host import REPLAY_STEP_RECORDS
from blumfeld.coordinator.runtime.shard_contract import TransactionalRecord
from blumfeld.spi.groups import Producer
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.group_coordinator_records import GroupMetadataKey
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.coordinator.fakes import FakeContext, FakeLog, topic_id
from tests.coordinator.groups.test_offsets import fetch
from tests.coordinator.groups_fixture import Groups


def txn_request(*topics: str, producer_id: int = 7, producer_epoch: int = 3) -> TxnOffsetCommitRequest:
    """Offset 5 of partition 0 of each topic, in group ``g``."""
    return TxnOffsetCommitRequest(
        transactional_id="app",
        group_id="g",
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        committed_offset=5, committed_leader_epoch=2, committed_metadata="m"
                    )
                ],
            )
            for topic in topics or ("t",)
        ],
    )


def codes(response: Any) -> list[ErrorCode]:
    return [ErrorCode(p.error_code) for topic in response.topics for p in topic.partitions]


@pytest.fixture
def groups() -> Groups:
    return Groups(transactions=True)


@pytest.mark.parametrize("version", range(6))
def test_every_version_commits_in_the_producers_batch(groups: Groups, version: int) -> None:
    assert codes(groups.ask(txn_request(), version)) == [ErrorCode.NONE]
    (item,) = groups.log.items
    assert isinstance(item, TransactionalRecord)
    assert item.producer == Producer(7, 3)
    groups.end_transaction(7, True)
    assert fetch(groups) == {("t", 0): (5, 2 if version >= 2 else -1, "m")}
    committed = groups.shard.offsets.of_group("g")["t", 0]
    assert (committed.expire_timestamp_ms, committed.topic_id) == (-1, topic_id("t"))
    assert committed.commit_timestamp_ms == groups.runtime.now_ms()


@pytest.mark.parametrize("version", [3, 5])
def test_a_topic_that_is_not_there_has_its_own_error_where_the_group_refuses(version: int) -> None:
    request = txn_request("t", "nowhere")
    request.generation_id, request.member_id = 3, "m"  # of a group that is gone
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    groups = Groups(transactions=True)
    assert codes(groups.ask(request, version)) == [ErrorCode.ILLEGAL_GENERATION, unknown]
    del request.topics[0]
    assert codes(groups.ask(request, version)) == [unknown]


def test_deciding_changes_nothing(groups: Groups) -> None:
    decision = groups.shard.command(txn_request(), FakeContext(28, 5), 0)
    assert decision.producer == Producer(7, 3)
    assert not groups.shard.pending
    nothing = groups.shard.command(txn_request("nowhere"), FakeContext(28, 5), 0)
    assert (nothing.records, nothing.producer) == ([], None)


def test_only_a_build_with_transactions_serves_it() -> None:
    assert 28 not in Groups().handlers
    handler = Groups(transactions=True).handlers[28]
    assert (handler.min_version, handler.max_version) == (0, 5)


@pytest.mark.parametrize(
    ("forbidden", "code"),
    [
        (("Write", "TransactionalId", "app"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (("Read", "Group", "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_use_the_transaction_or_the_group_is_refused(
    groups: Groups, forbidden: tuple[str, str, str], code: ErrorCode
) -> None:
    response = groups.ask(txn_request("t", "u"), denied=lambda *resource: resource == forbidden)
    assert codes(response) == [code, code]
    assert groups.log.items == []


def test_who_may_not_read_a_topic_is_refused_for_that_topic_only(groups: Groups) -> None:
    response = groups.ask(txn_request("u", "t"), denied=lambda *resource: resource == ("Read", "Topic", "u"))
    assert [topic.name for topic in response.topics] == ["u", "t"]
    assert codes(response) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE]
    assert len(groups.log.items) == 1


@pytest.mark.parametrize(
    ("producer_id", "producer_epoch", "code"),
    [(-1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING), (7, -1, ErrorCode.INVALID_PRODUCER_EPOCH)],
)
def test_a_producer_that_can_not_be_is_refused(
    groups: Groups, producer_id: int, producer_epoch: int, code: ErrorCode
) -> None:
    request = txn_request(producer_id=producer_id, producer_epoch=producer_epoch)
    assert codes(groups.ask(request)) == [code]
    assert groups.log.items == []


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_old_producers_do_not_hear_of_loading(version: int, code: ErrorCode) -> None:
    """They break at it (KAFKA-7296)."""
    tombstone = record(GroupMetadataKey(group="g"), None)
    groups = Groups(log=FakeLog([tombstone] * (REPLAY_STEP_RECORDS + 1)), transactions=True)
    assert codes(groups.ask(txn_request(), version)) == [code]
    groups.runtime.run_turn()
    groups.runtime.run_turn()
    assert codes(groups.ask(txn_request(), version)) == [ErrorCode.NONE]


@pytest.mark.parametrize("version", [0, 5])
def test_other_errors_are_the_same_in_every_version(groups: Groups, version: int) -> None:
    groups.coordinator.stop()
    assert codes(groups.ask(txn_request(), version)) == [ErrorCode.NOT_COORDINATOR]
