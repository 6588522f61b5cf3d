"""Groups on a broker: their shards live where ``__consumer_offsets`` is led, and their word is what it holds."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.broker.coordination.led_topic import fitting
from blumfeld.coordinator.runtime.coordinator import RELOAD_DELAY_MS
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.spi.internal_topics import OFFSETS_TOPIC
from blumfeld.wire.api import ApiKey
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest
from blumfeld_groups_classic import ClassicGroupProtocol
from tests.broker.harness import NODE, BrokerHarness, refusal
from tests.broker.plain_storage import PlainLog, PlainStorage
from tests.coordinator.groups.test_offsets import commit_request


class Grouped(BrokerHarness):
    """A broker with classic groups, their topic of one partition, and a topic ``t``."""

    def __init__(self, storage: PlainStorage | None = None, codec: int = 0, **configs: str) -> None:
        config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.compression.codec": codec}
        super().__init__(config, group_protocols=[ClassicGroupProtocol()], storage=storage)
        self.create_topic(OFFSETS_TOPIC, 1, **configs)
        self.create_topic("t", 4)

    @property
    def offsets_log(self) -> PlainLog:
        return self.log_of(OFFSETS_TOPIC)

    def commit(self, offset: int) -> ErrorCode:
        response = self.ask(commit_request(offset=offset), 9)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def fetch(self) -> ErrorCode | list[int]:
        """Offsets committed, or why they can't be told."""
        response = self.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        if response.error_code:
            return ErrorCode(response.error_code)
        return [p.committed_offset for topic in response.topics for p in topic.partitions]

    def lead(self, leader: int, epoch: int) -> None:
        """The controller moves the leadership of the groups' partition."""
        self.change_partition(OFFSETS_TOPIC, leader=leader, epoch=epoch, partition_epoch=epoch)
        self.runtime.run_turn()


def join_request(instance: str = "one") -> JoinGroupRequest:
    """A static member: it is in at once, and waits for others where there are any."""
    return JoinGroupRequest(
        group_id="g",
        group_instance_id=instance,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_build_without_kip_848_refuses_its_clients_instead_of_leaving_them_to_wait() -> None:
    """librdkafka says nothing where the API isn't advertised; both it and Java end where the answer is this one."""
    broker = Grouped()
    key = int(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    assert broker.broker.advertised("broker")[key] == (0, 1)
    for version in (0, 1):
        answer = broker.ask(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m" * 22), version)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.protocol=classic" in answer.error_message


def test_a_commit_is_not_answered_before_it_is_written() -> None:
    """Nor is a read that saw it."""
    broker = Grouped()
    broker.offsets_log.hold_writes = True
    committing = broker.send(commit_request(), 9)
    reading = broker.send(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert not committing.settled
    assert not reading.settled
    broker.offsets_log.let_write()
    broker.runtime.run_turn()
    assert committing.settled
    assert reading.settled


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_offsets_have_the_codec_of_the_configuration(codec: Codec) -> None:
    """offsets.topic.compression.codec; and a start reads what it wrote."""
    storage = PlainStorage()
    broker = Grouped(storage, codec)
    broker.commit(7)
    assert [batch.codec for batch in broker.offsets_log.batches(0)] == [codec]
    broker.stop()
    assert Grouped(storage).fetch() == [7]


def test_a_failed_write_costs_the_shard_but_not_what_was_committed() -> None:
    """NOT_COORDINATOR until it is rebuilt."""
    broker = Grouped()
    broker.commit(1)
    broker.offsets_log.fail_next_write = True
    assert broker.commit(2) is ErrorCode.NOT_COORDINATOR
    assert broker.fetch() is ErrorCode.NOT_COORDINATOR
    broker.runtime.advance(RELOAD_DELAY_MS)
    assert broker.fetch() == [1]
    assert broker.commit(3) is ErrorCode.NONE


@pytest.mark.parametrize("leader", [-1, NODE])
def test_who_waits_is_told_when_leadership_changes(leader: int) -> None:
    """Also when it comes back to this node in a new epoch: then the shard is a new one."""
    broker = Grouped()
    broker.commit(4)
    first: Any = broker.ask(join_request(), 9)
    assert first.error_code == 0
    waiting = broker.send(join_request("two"), 9)
    assert not waiting.settled
    broker.lead(leader, 1)
    assert broker.response(waiting, join_request(), 9).error_code == ErrorCode.NOT_COORDINATOR
    assert broker.fetch() == ([4] if leader == NODE else ErrorCode.NOT_COORDINATOR)


def test_a_change_within_the_epoch_leaves_the_shard_alone() -> None:
    """An ISR that grows is no reason to send everyone away."""
    broker = Grouped()
    broker.ask(join_request(), 9)
    waiting = broker.send(join_request("two"), 9)
    broker.lead(NODE, 0)
    assert not waiting.settled


def test_without_its_topic_nobody_coordinates() -> None:
    """It is deleted, and made anew: groups begin anew, too."""
    broker = Grouped()
    broker.commit(4)
    broker.metadata.delete_topic(OFFSETS_TOPIC)
    assert broker.fetch() is ErrorCode.NOT_COORDINATOR
    broker.create_topic(OFFSETS_TOPIC)
    assert broker.fetch() == []


def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    """So that a topic of the same name is read from its beginning, also after a restart."""
    storage = PlainStorage()
    broker = Grouped(storage)
    broker.commit(9)
    broker.metadata.delete_topic("t")
    broker.runtime.advance(10)  # a consensus brings the next change when this one is applied
    broker.create_topic("t", 4)
    assert broker.fetch() == []
    broker.stop()
    assert Grouped(storage).fetch() == []


def item(size: int) -> CoordinatorRecord:
    """A record of so many bytes in its value."""
    return CoordinatorRecord(b"key", bytes(size))


def test_records_that_fit_are_one_batch() -> None:
    """A decision is atomic, then."""
    items = [item(10)] * 20
    assert fitting(items, 10_000) == [items]


@pytest.mark.parametrize("bytes_max", [300, 1_000, 5_000])
def test_records_that_do_not_fit_are_as_few_batches_as_take_them(bytes_max: int) -> None:
    """In their order, none of them larger than allowed."""
    items = [item(size) for size in (0, 1, 63, 64, 200, 5, 150, 199) * 12]
    parts = fitting(items, bytes_max)
    assert [one for part in parts for one in part] == items
    assert all(parts)
    built = [
        len(build_batch([Record(one.key, one.value, offset=at) for at, one in enumerate(part)]))
        for part in parts
    ]
    assert max(built) <= bytes_max
    assert len(parts) <= 2 * sum(built) / bytes_max + 1


def test_a_record_that_never_fits_is_refused() -> None:
    """Whatever stands before it: nothing may be placed, then."""
    with refusal(ErrorCode.MESSAGE_TOO_LARGE):
        fitting([item(1), item(300)], 300)


def large_commit(partitions: int) -> Any:
    """A commit of ``t`` with much to say."""
    rows = [
        OffsetCommitRequestPartition(partition_index=at, committed_offset=at, committed_metadata="m" * 500)
        for at in range(partitions)
    ]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=rows)])


def test_a_commit_larger_than_a_batch_is_several_batches() -> None:
    """Answered once the last is committed. Kafka refuses it with UNKNOWN_SERVER_ERROR."""
    storage = PlainStorage()
    broker = Grouped(storage, max_message_bytes="1400")
    response = broker.ask(large_commit(4), 8)
    assert [p.error_code for p in response.topics[0].partitions] == [0] * 4
    batches = list(broker.offsets_log.batches(0))
    assert [batch.record_count for batch in batches] == [2, 2]
    assert all(batch.size_bytes <= 1_400 for batch in batches)
    assert broker.fetch() == [0, 1, 2, 3]
    broker.stop()
    assert Grouped(storage).fetch() == [0, 1, 2, 3]


def test_a_record_larger_than_a_batch_is_refused_for_good() -> None:
    """Not with NOT_COORDINATOR, after which a client would try for ever. Others don't feel it."""
    broker = Grouped(max_message_bytes="500")
    response = broker.ask(large_commit(1), 8)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.fetch() == []
    assert broker.commit(3) is ErrorCode.NONE
