"""Groups on a broker: their shards live where ``__consumer_offsets`` is led, and their word is what it holds."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.broker.group_coordination import OFFSETS_TOPIC
from blumfeld.coordinator.coordinator import RELOAD_DELAY_MS
from blumfeld.spi.cluster import PartitionImage
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest
from blumfeld_groups_classic import ClassicGroupProtocol
from tests.broker.harness import NODE, BrokerHarness
from tests.broker.plain_storage import PlainLog, PlainStorage
from tests.coordinator.test_offsets import commit_request


class Grouped(BrokerHarness):
    """A broker with classic groups, their topic of one partition, and a topic ``t``."""

    def __init__(self, storage: PlainStorage | None = None) -> None:
        config = {"group.initial.rebalance.delay.ms": 0}
        super().__init__(config, group_protocols=[ClassicGroupProtocol()], storage=storage)
        self.create_topic(OFFSETS_TOPIC)
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
        image = PartitionImage(
            partition=0,
            replicas=(NODE,),
            isr=(NODE,),
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch,
        )
        self.metadata.change_partition(OFFSETS_TOPIC, image)
        self.runtime.run_turn()


def join_request() -> JoinGroupRequest:
    """A static member: it is in at once, and waits for others where there are any."""
    return JoinGroupRequest(
        group_id="g",
        group_instance_id="one",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_a_commit_is_a_record_of_the_groups_topic() -> None:
    """Answered in the turn in which it is written and committed."""
    broker = Grouped()
    assert broker.commit(5) is ErrorCode.NONE
    assert broker.offsets_log.written_end_offset == 1
    assert broker.fetch() == [5]


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


def test_a_restart_finds_what_was_committed() -> None:
    """Loaded from the log before anyone asks."""
    storage = PlainStorage()
    broker = Grouped(storage)
    broker.commit(7)
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
    waiting = broker.send(JoinGroupRequest(**{**_fields(join_request()), "group_instance_id": "two"}), 9)
    assert not waiting.settled
    broker.lead(leader, 1)
    assert broker.response(waiting, join_request(), 9).error_code == ErrorCode.NOT_COORDINATOR
    assert broker.fetch() == ([4] if leader == NODE else ErrorCode.NOT_COORDINATOR)


def _fields(request: JoinGroupRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__struct_fields__}


def test_a_change_within_the_epoch_leaves_the_shard_alone() -> None:
    """An ISR that grows is no reason to send everyone away."""
    broker = Grouped()
    broker.ask(join_request(), 9)
    waiting = broker.send(JoinGroupRequest(**{**_fields(join_request()), "group_instance_id": "two"}), 9)
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
    broker.create_topic("t", 4)
    assert broker.fetch() == []
    broker.stop()
    assert Grouped(storage).fetch() == []
