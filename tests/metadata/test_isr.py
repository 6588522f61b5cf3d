"""AlterPartition: each check in its order, and what a change makes of the partition (KIP-497, KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from tests.metadata.driven import Driven, replayed


class Asker:
    """Three brokers, one partition of three replicas, and its leader."""

    def __init__(self) -> None:
        self.driven = Driven()
        self.epochs = dict(zip((1, 2, 3), self.driven.join(1, 2, 3), strict=True))
        self.topic_id = self.driven.create("alpha", 1, 3).topic_id
        self.leader = self.driven.partition("alpha").leader
        self.others = [b for b in (1, 2, 3) if b != self.leader]

    def ask(self, isr: list[int], **more: Any) -> ResponsePartitionData:
        """Ask for an ISR; the partition's answer."""
        partition = self.driven.partition("alpha")
        broker_id = more.pop("broker_id", self.leader)
        topic_id = more.pop("topic_id", self.topic_id)
        states = more.pop(
            "states", [BrokerState(broker_id=b, broker_epoch=self.epochs.get(b, -1)) for b in isr]
        )
        wanted = RequestPartitionData(
            partition_index=more.pop("partition_index", 0),
            leader_epoch=more.pop("leader_epoch", partition.leader_epoch),
            partition_epoch=more.pop("partition_epoch", partition.partition_epoch),
            new_isr_with_epochs=states,
            **more,
        )
        request = AlterPartitionRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            topics=[RequestTopicData(topic_id=topic_id, partitions=[wanted])],
        )
        return self.driven.do(request, AlterPartitionResponse).topics[0].partitions[0]


@pytest.fixture
def asker() -> Asker:
    """Ready to ask."""
    return Asker()


def test_the_isr_shrinks_and_grows_without_a_new_leader_epoch(asker: Asker) -> None:
    shrunk = asker.ask([asker.leader])
    assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch) == (0, [asker.leader], 1)
    grown = asker.ask([asker.leader, *asker.others])
    assert (grown.error_code, grown.partition_epoch, grown.leader_epoch) == (0, 2, 0)
    assert set(asker.driven.partition("alpha").isr) == {1, 2, 3}
    assert replayed(asker.driven.log) == asker.driven.image


def test_an_isr_that_is_there_already_writes_nothing(asker: Asker) -> None:
    before = len(asker.driven.log)
    same = asker.ask(list(asker.driven.partition("alpha").isr))
    assert (same.error_code, same.partition_epoch) == (0, 0)
    assert len(asker.driven.log) == before


def test_asks_that_are_refused(asker: Asker) -> None:
    isr = [asker.leader]
    before = len(asker.driven.log)
    assert asker.ask(isr, topic_id=bytes(16)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert asker.ask(isr, partition_index=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert asker.ask(isr, leader_epoch=9).error_code == ErrorCode.NOT_CONTROLLER
    assert asker.ask(isr, partition_epoch=9).error_code == ErrorCode.NOT_CONTROLLER
    assert asker.ask(isr, leader_epoch=-1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert asker.ask(isr, partition_epoch=-1).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert asker.ask(isr, broker_id=asker.others[0]).error_code == ErrorCode.INVALID_REQUEST
    assert asker.ask(asker.others).error_code == ErrorCode.INVALID_REQUEST
    assert asker.ask([asker.leader, 9]).error_code == ErrorCode.INVALID_REQUEST
    assert asker.ask([asker.leader] * 2).error_code == ErrorCode.INVALID_REQUEST
    assert asker.ask(isr, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST
    assert len(asker.driven.log) == before


def test_a_member_that_is_fenced_or_of_another_process_may_not_join(asker: Asker) -> None:
    other = asker.others[0]
    asker.ask([asker.leader])
    stale = [BrokerState(broker_id=asker.leader), BrokerState(broker_id=other, broker_epoch=1)]
    assert asker.ask([], states=stale).error_code == ErrorCode.INELIGIBLE_REPLICA
    asker.driven.beat(other, asker.epochs[other], want_fence=True)
    assert asker.ask([asker.leader, other]).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_a_stale_leader_is_refused_as_a_whole(asker: Asker) -> None:
    request = AlterPartitionRequest(broker_id=asker.leader, broker_epoch=99)
    response = asker.driven.do(request, AlterPartitionResponse)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
