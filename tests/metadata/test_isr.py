"""AlterPartition: each check in its order, and what a change makes of the partition (KIP-497, KIP-966)."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.metadata.partitions import isr
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
)
from blumfeld.wire.messages.metadata_records import PartitionChangeRecord
from tests.metadata.driven import Driven, assigned, isr_request, replayed


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
        states = more.pop("states", [BrokerState(b, self.epochs.get(b, -1)) for b in isr])
        wanted = RequestPartitionData(
            partition_index=more.pop("partition_index", 0),
            leader_epoch=more.pop("leader_epoch", partition.leader_epoch),
            partition_epoch=more.pop("partition_epoch", partition.partition_epoch),
            new_isr_with_epochs=states,
            **more,
        )
        request = isr_request(broker_id, self.epochs[broker_id], topic_id, wanted)
        return self.driven.do(request, AlterPartitionResponse).topics[0].partitions[0]


@pytest.fixture
def asker() -> Asker:
    return Asker()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic_id": bytes(16)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 9]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [1, 1]}, ErrorCode.INVALID_REQUEST),
        ({"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_leader_may_not_ask_for_writes_nothing(
    asker: Asker, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert asker.leader == 1
    before = len(asker.driven.log)
    assert asker.ask(**{"isr": [1], **fields}).error_code == code
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


def many(asker: Asker, numbers: list[int], **more: Any) -> AlterPartitionRequest:
    """A request of broker 1 to leave alone in the ISR of these partitions of topic beta."""
    topic = asker.driven.image.topics["beta"]
    wanted = [
        RequestPartitionData(
            partition_index=n,
            leader_epoch=topic.partitions[n].leader_epoch if n in topic.partitions else 0,
            partition_epoch=topic.partitions[n].partition_epoch if n in topic.partitions else 0,
            **(more or {"new_isr_with_epochs": [BrokerState(broker_id=1, broker_epoch=asker.epochs[1])]}),
        )
        for n in numbers
    ]
    return isr_request(1, asker.epochs[1], topic.topic_id, *wanted)


@pytest.mark.parametrize("slice_records", [3, 128])
def test_one_request_changes_many_partitions_in_parts(
    asker: Asker, slice_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr, "SLICE_RECORDS", slice_records)
    driven = asker.driven
    driven.create("beta", **assigned(*[[1, 2, 3]] * 8, [2, 1, 3]))
    request = many(asker, [*range(10), 5])
    parts = driven.decide(request)
    assert (parts.rest is None) == (slice_records == 128)
    answer = driven.do(request, AlterPartitionResponse)
    (results,) = [topic.partitions for topic in answer.topics]
    assert [r.partition_index for r in results] == [*range(10), 5]
    assert [r.error_code for r in results] == [0] * 8 + [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert {(tuple(r.isr), r.partition_epoch, r.leader_id) for r in results[:8]} == {((1,), 1, 1)}
    assert [driven.partition("beta", n).isr for n in range(8)] == [(1,)] * 8
    assert replayed(driven.log) == driven.image


def test_the_next_process_of_the_leader_ends_a_request_between_two_parts(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr, "SLICE_RECORDS", 3)
    driven = asker.driven
    driven.create("beta", **assigned(*[[1, 2, 3]] * 8))
    part = driven.decide(many(asker, [*range(8)]))
    driven.place(part.records)
    driven.now_ms += 60_000
    driven.register(1, incarnation=2)
    assert part.rest is not None
    last = part.rest(driven.controller.state, driven.moment())
    assert (last.records, last.rest) == ([], None)
    assert isinstance(last.response, AlterPartitionResponse)
    assert last.response.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_version_2_names_no_epochs(asker: Asker) -> None:
    asker.driven.create("beta", **assigned([1, 2, 3]))
    answer = asker.driven.do(many(asker, [0], new_isr=[1, 3]), AlterPartitionResponse)
    assert answer.topics[0].partitions[0].error_code == 0
    assert asker.driven.partition("beta").isr == (1, 3)


def test_a_leader_that_may_lack_records_says_when_it_has_recovered(asker: Asker) -> None:
    """Until then it is alone in the ISR."""
    driven = asker.driven
    change = PartitionChangeRecord(
        partition_id=0, topic_id=asker.topic_id, isr=[asker.leader], leader_recovery_state=1
    )
    driven.place([change])
    both = [asker.leader, asker.others[0]]
    assert asker.ask(both, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST
    assert asker.ask(both, leader_recovery_state=2).error_code == ErrorCode.INVALID_REQUEST
    kept = asker.ask([asker.leader], leader_recovery_state=1)
    assert (kept.error_code, kept.leader_recovery_state) == (0, 1)
    done = asker.ask(both, leader_recovery_state=0)
    assert (done.error_code, done.leader_recovery_state, done.isr) == (0, 0, both)
    assert driven.partition("alpha").leader_recovery_state == 0
    assert asker.ask(both, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST


def test_a_leader_that_shuts_down_loses_what_it_asks_for(asker: Asker) -> None:
    """The ISR that it asks for may not include it, so the answer names another leader."""
    asker.driven.beat(asker.leader, asker.epochs[asker.leader], want_shut_down=True)
    assert asker.ask(list(asker.others), broker_id=asker.leader).error_code == ErrorCode.INVALID_REQUEST
    assert asker.driven.partition("alpha").leader in asker.others
