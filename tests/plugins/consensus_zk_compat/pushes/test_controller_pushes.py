"""The requests that a controller sends to brokers: which, to whom, in what order, and again until one is answered."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.partitions.directories import LOST_DIRECTORY
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from blumfeld.wire.messages.metadata_records import TopicRecord
from blumfeld.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from blumfeld.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep
from blumfeld_consensus_zk_compat.pushes import plan
from blumfeld_consensus_zk_compat.pushes.channel import RETRY_MS
from blumfeld_consensus_zk_compat.pushes.controller_pushes import ControllerPushes
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.kernel.fakes import silent_logs
from tests.plugins.consensus_zk_compat.images import (
    LISTENER,
    ORDERS,
    TRADES,
    broker,
    changed,
    created,
    deleted,
    image_of,
    partition,
    small,
)

CONTROLLER = Controller(1, 7)


class Brokers:
    """Notes the requests, and answers each at once unless it is told to hold them."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.sent: list[tuple[int, Any]] = []
        self.held: list[Completion[Message]] | None = None
        self.answers: list[Message | BaseException] = []
        """For the next requests, in place of a success."""
        self.failed: list[tuple[int, list[TopicPartition]]] = []
        self.stale = 0
        self.pushes = ControllerPushes(
            runtime=self.runtime,
            events=silent_logs().named("controller"),
            listener=LISTENER,
            send=self._send,
            replica_failed=lambda broker_id, at: self.failed.append((broker_id, list(at))),
            stale_controller=self._is_stale,
        )

    def _is_stale(self) -> None:
        self.stale += 1

    def _send(self, broker_id: int, request: Message, timeout_ms: float) -> Completion[Message]:
        assert timeout_ms > 0
        self.sent.append((broker_id, request))
        answer: Completion[Message] = Completion()
        if self.held is not None:
            self.held.append(answer)
            return answer
        given = self.answers.pop(0) if self.answers else _success(request)
        if isinstance(given, BaseException):
            answer.fail(given)
        else:
            answer.complete(given)
        return answer

    def begin(self, image: MetadataImage) -> None:
        self.pushes.begin(CONTROLLER, image)
        self.runtime.run_turn()

    def commit(self, change: Change) -> None:
        """The tree has a change; what was sent before is forgotten."""
        self.sent.clear()
        self.pushes.committed(change)
        self.runtime.run_turn()

    def take(self, broker_id: int) -> list[Any]:
        """What was sent to a broker; all is forgotten."""
        taken = [message for to, message in self.sent if to == broker_id]
        self.sent.clear()
        return taken


def _success(request: Message) -> Message:
    if isinstance(request, StopReplicaRequest):
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=state.partition_index)
                for topic in request.topic_states
                for state in topic.partition_states
            ]
        )
    return LeaderAndIsrResponse() if isinstance(request, LeaderAndIsrRequest) else UpdateMetadataResponse()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    made = Brokers()
    yield made
    made.pushes.stop()
    made.runtime.run_turn()


def leads(*messages: Any) -> list[tuple[str, int, int, bool]]:
    """(topic, partition, leader epoch, is new) of all LeaderAndIsr."""
    return [
        (topic.topic_name, state.partition_index, state.leader_epoch, state.is_new)
        for message in messages
        if isinstance(message, LeaderAndIsrRequest)
        for topic in message.topic_states
        for state in topic.partition_states
    ]


def shows(*messages: Any) -> list[tuple[str, int, int]]:
    """(topic, partition, leader) of all UpdateMetadata."""
    return [
        (topic.topic_name, state.partition_index, state.leader)
        for message in messages
        if isinstance(message, UpdateMetadataRequest)
        for topic in message.topic_states
        for state in topic.partition_states
    ]


def stops(*messages: Any) -> list[tuple[str, int, int, bool]]:
    """(topic, partition, leader epoch, delete) of all StopReplica."""
    return [
        (topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
        for message in messages
        if isinstance(message, StopReplicaRequest)
        for topic in message.topic_states
        for state in topic.partition_states
    ]


def test_a_controller_begins_with_all_replicas_of_a_broker_and_the_whole_cluster(brokers: Brokers) -> None:
    brokers.begin(small())
    to_two = brokers.take(2)
    assert leads(*to_two) == [("orders", 0, 0, False), ("orders", 1, 0, False)]
    assert shows(*to_two) == [("orders", 0, 1), ("orders", 1, 2)]
    assert [(b.id, b.rack, b.endpoints[0].port) for b in to_two[0].live_brokers] == [
        (1, "rack-1", 9001),
        (2, "rack-2", 9002),
        (3, "rack-3", 9003),
    ]
    for message in to_two:
        assert (message.controller_id, message.controller_epoch, message.broker_epoch) == (1, 7, 100)
    live_leaders = next(m for m in to_two if isinstance(m, LeaderAndIsrRequest)).live_leaders
    assert [(leader.broker_id, leader.port) for leader in live_leaders] == [(1, 9001), (2, 9002)]


def test_a_broker_hears_of_the_leaders_of_its_own_replicas_only(brokers: Brokers) -> None:
    brokers.begin(small())
    assert leads(*brokers.take(1)) == [("orders", 0, 0, False)]


def test_an_election_is_told_to_the_replicas_and_shown_to_all(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.commit(changed(image, "orders", 0, leader=2, leader_epoch=1, isr=(2,)))
    assert [(to, leads(m)) for to, m in brokers.sent if leads(m)] == [
        (1, [("orders", 0, 1, False)]),
        (2, [("orders", 0, 1, False)]),
    ]
    shown = [(to, shows(m)) for to, m in brokers.sent if shows(m)]
    assert sorted(shown) == [(to, [("orders", 0, 2)]) for to in (1, 2, 3)]


def test_a_change_of_the_isr_alone_is_shown_and_told_to_no_replica(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.commit(changed(image, "orders", 0, isr=(1,), partition_epoch=1))
    assert [to for to, m in brokers.sent if leads(m)] == []
    assert sorted(to for to, m in brokers.sent if shows(m)) == [1, 2, 3]


def test_a_new_topic_is_new_for_its_replicas(brokers: Brokers) -> None:
    brokers.begin(small())
    brokers.commit(created("trades", TRADES, (3, 1)))
    assert leads(*brokers.take(3)) == [("trades", 0, 0, True)]


def test_a_new_topic_is_shown_whole_also_to_a_broker_with_a_replica_of_some_partition(
    brokers: Brokers,
) -> None:
    """A broker that knew partition 1 and not 0 would take the topic for one of another size."""
    brokers.begin(small())
    brokers.sent.clear()
    brokers.commit(created("trades", TRADES, (1, 2), (2, 3), (3, 1)))
    for broker_id in (1, 2, 3):
        first = next(shows(message) for to, message in brokers.sent if to == broker_id and shows(message))
        assert first == [("trades", 0, 1), ("trades", 1, 2), ("trades", 2, 3)]


def test_a_topic_that_is_being_deleted_is_shown_with_the_leader_of_a_deletion(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.commit(deleted(image, "orders"))
    to_three = brokers.take(3)
    assert shows(*to_three) == [("orders", 0, -2), ("orders", 1, -2)]
    assert not leads(*to_three)


def test_a_topic_that_is_created_again_comes_in_another_request_than_its_deletion(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.sent.clear()
    brokers.pushes.committed(deleted(image, "orders"))
    brokers.pushes.committed(created("orders", TRADES, (1, 2)))
    brokers.runtime.run_turn()
    ids = [
        (topic.topic_id, [state.leader for state in topic.partition_states])
        for message in brokers.take(3)
        for topic in message.topic_states
    ]
    assert ids == [(ORDERS, [-2, -2]), (TRADES, [1])]


def test_the_replica_that_a_reassignment_removed_is_deleted(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.commit(changed(image, "orders", 0, replicas=(1, 3), isr=(1, 3), leader_epoch=1))
    assert [(to, stops(m)) for to, m in brokers.sent if stops(m)] == [(2, [("orders", 0, 1, True)])]
    assert [to for to, m in brokers.sent if leads(m)] == [1, 3]


def test_a_replica_that_comes_back_is_placed_behind_its_deletion(brokers: Brokers) -> None:
    """Joined into one request the deletion would come last."""
    image = small()
    brokers.begin(image)
    brokers.sent.clear()
    away = changed(image, "orders", 0, replicas=(1, 3), isr=(1,), leader_epoch=1)
    brokers.pushes.committed(away)
    before = away.partitions[0].after
    assert before is not None
    back = PartitionStep("orders", ORDERS, before, replace(before, replicas=(1, 2), leader_epoch=2))
    brokers.pushes.committed(Change(partitions=(back,)))
    brokers.runtime.run_turn()
    order = ["stop" if stops(m) else "lead" for m in brokers.take(2) if stops(m) or leads(m)]
    assert order == ["stop", "lead"]


def test_what_waits_is_joined_and_one_request_is_under_way(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.held = []
    brokers.commit(changed(image, "orders", 0, leader=2, leader_epoch=1))
    assert leads(*brokers.take(1)) == [("orders", 0, 1, False)]
    for epoch in (2, 3):
        brokers.commit(changed(image, "orders", 0, leader=1, leader_epoch=epoch))
    assert brokers.take(1) == []
    held, brokers.held = brokers.held, None
    for answer in held:
        answer.complete(LeaderAndIsrResponse())
    brokers.runtime.run_turn()
    assert leads(*brokers.take(1)) == [("orders", 0, 3, False)]


def test_a_request_is_sent_again_until_it_is_answered(brokers: Brokers) -> None:
    brokers.answers = [OSError("refused"), TimeoutError("late")]
    brokers.begin(image_of(broker(1)))
    assert len(brokers.sent) == 1
    brokers.runtime.advance(RETRY_MS)
    assert len(brokers.sent) == 2
    brokers.runtime.advance(RETRY_MS)
    assert [type(message) for _, message in brokers.sent] == [UpdateMetadataRequest] * 3


def test_a_broker_that_is_gone_is_sent_nothing_more(brokers: Brokers) -> None:
    brokers.answers = [OSError("refused")] * 5
    brokers.begin(image_of(broker(1)))
    pushed = brokers.pushes.pushed(1)
    stopped = brokers.pushes.stop_replicas(1, [TopicPartition("orders", 0)], delete=True)
    brokers.pushes.broker_went(1)
    assert pushed.done
    assert isinstance(stopped.error, OSError)
    brokers.sent.clear()
    brokers.runtime.advance(10 * RETRY_MS)
    assert brokers.sent == []
    assert isinstance(brokers.pushes.stop_replicas(1, [], delete=True).error, OSError)


def test_a_broker_that_came_is_sent_everything_and_the_others_its_address(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.sent.clear()
    step = ImageStep(image)
    step.replay(broker(3, 200))
    step.finish(1, 0)
    brokers.pushes.broker_came(3)
    brokers.runtime.run_turn()
    to_three = [m for to, m in brokers.sent if to == 3]
    assert leads(*to_three) == [("orders", 1, 0, False)]
    assert {m.broker_epoch for m in to_three} == {200}
    assert [type(m) for to, m in brokers.sent if to == 1] == [UpdateMetadataRequest]


def test_a_full_set_has_only_what_the_tree_has(brokers: Brokers) -> None:
    """The controller's image has decisions whose write is under way, and may fail."""
    image = small()
    brokers.begin(image)
    brokers.sent.clear()
    step = ImageStep(image)
    step.replay(partition(ORDERS, 0, (1, 2), leader=2, leader_epoch=9))
    step.finish(1, 0)
    brokers.pushes.broker_came(2)
    brokers.runtime.run_turn()
    assert leads(*brokers.take(2)) == [("orders", 0, 0, False), ("orders", 1, 0, False)]


def test_a_full_set_has_what_was_committed_while_it_waited(brokers: Brokers) -> None:
    image = small()
    brokers.pushes.begin(CONTROLLER, image)
    brokers.pushes.committed(changed(image, "orders", 0, leader=2, leader_epoch=4))
    brokers.pushes.committed(created("trades", TRADES, (1,)))
    brokers.runtime.run_turn()
    assert leads(*brokers.take(1)) == [("orders", 0, 4, False), ("trades", 0, 0, False)]


def test_a_later_controller_is_told_and_nothing_counts_as_taken(brokers: Brokers) -> None:
    brokers.answers = [UpdateMetadataResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)]
    brokers.begin(image_of(broker(1)))
    assert brokers.stale == 1
    assert not brokers.pushes.pushed(1).done


def test_replicas_that_are_offline_are_told(brokers: Brokers) -> None:
    brokers.pushes.begin(CONTROLLER, small())
    error = LeaderAndIsrPartitionError(partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    answer = LeaderAndIsrResponse(topics=[LeaderAndIsrTopicError(topic_id=ORDERS, partition_errors=[error])])
    brokers.answers = [UpdateMetadataResponse(), answer]
    brokers.runtime.run_turn()
    (failed,) = brokers.failed
    assert failed[1] == [TopicPartition("orders", 1)]


def test_an_order_to_stop_completes_with_the_answer_of_each_partition(brokers: Brokers) -> None:
    brokers.begin(small())
    brokers.sent.clear()
    at, gone = TopicPartition("orders", 0), TopicPartition("gone", 3)
    stopped = brokers.pushes.stop_replicas(2, [at, gone], delete=False)
    brokers.runtime.run_turn()
    assert stopped.result() == {at: ErrorCode.NONE, gone: ErrorCode.NONE}
    assert stops(*brokers.take(2)) == [("orders", 0, 0, False), ("gone", 3, -2, False)]


def test_a_broker_that_does_not_know_a_request_does_not_hold_up_the_rest(brokers: Brokers) -> None:
    brokers.answers = [BrokerError(ErrorCode.UNSUPPORTED_VERSION)]
    brokers.begin(image_of(broker(1)))
    assert brokers.pushes.pushed(1).done


def test_pushed_waits_for_what_was_committed_before(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    brokers.held = []
    brokers.pushes.committed(changed(image, "orders", 0, leader=2, leader_epoch=1))
    pushed = brokers.pushes.pushed(2)
    brokers.runtime.run_turn()
    assert not pushed.done
    while brokers.held:
        brokers.held.pop().complete(LeaderAndIsrResponse())
        brokers.runtime.run_turn()
    assert pushed.done


def test_a_large_set_goes_in_slices(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld_consensus_zk_compat.pushes.channel.SLICE_PARTITIONS", 4)
    monkeypatch.setattr(plan, "LOOKS", 3)
    partitions = [partition(ORDERS, index, (1,)) for index in range(10)]
    brokers.begin(image_of(broker(1), TopicRecord(name="orders", topic_id=ORDERS), *partitions))
    messages = brokers.take(1)
    assert [len(leads(m)) for m in messages if leads(m)] == [4, 4, 2]
    assert [index for _, index, _, _ in leads(*messages)] == list(range(10))
    assert [index for _, index, _ in shows(*messages)] == list(range(10))


def test_a_broker_that_lost_a_disk_is_sent_its_replicas_again(brokers: Brokers) -> None:
    brokers.begin(small())
    brokers.take(2)
    brokers.pushes.resend(2)
    brokers.pushes.resend(9)
    brokers.runtime.run_turn()
    assert leads(*brokers.take(2)) == [("orders", 0, 0, False), ("orders", 1, 0, False)]


def test_a_partition_without_a_state_is_told_of_when_it_has_one(brokers: Brokers) -> None:
    bare = partition(TRADES, 0, (1, 2), leader=-1, isr=[], leader_epoch=-1, partition_epoch=-1)
    image = image_of(broker(1), broker(2), TopicRecord(name="trades", topic_id=TRADES), bare)
    brokers.begin(image)
    assert shows(*brokers.take(2)) == []
    brokers.commit(changed(image, "trades", 0, leader=2, isr=(2,), leader_epoch=0, partition_epoch=0))
    assert leads(*brokers.take(2)) == [("trades", 0, 0, True)]


def test_a_replica_on_a_lost_disk_is_shown_offline(brokers: Brokers) -> None:
    image = small()
    brokers.begin(image)
    lost = (bytes(16), LOST_DIRECTORY)
    brokers.commit(changed(image, "orders", 0, isr=(1,), directories=lost, partition_epoch=1))
    [message] = [m for m in brokers.take(3) if isinstance(m, UpdateMetadataRequest)]
    assert [state.offline_replicas for topic in message.topic_states for state in topic.partition_states] == [
        [2]
    ]


def test_a_replica_in_a_directory_that_its_broker_has_no_more_is_shown_offline(brokers: Brokers) -> None:
    """In a migration the controller is KRaft's: a broker of the quorum tells which directories it has online."""
    online, failed = b"a" * 16, b"b" * 16
    records = [broker(1), replace(broker(2), log_dirs=[online])]
    on = [
        partition(ORDERS, index, (1, 2), directories=[bytes(16), directory])
        for index, directory in enumerate((online, failed))
    ]
    brokers.begin(image_of(*records, TopicRecord(name="orders", topic_id=ORDERS), *on))
    states = [
        state.offline_replicas
        for message in brokers.take(1)
        if isinstance(message, UpdateMetadataRequest)
        for topic in message.topic_states
        for state in topic.partition_states
    ]
    assert states == [[], [2]]


def test_a_queue_that_is_sent_at_once_is_no_end_of_the_channel(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This node's own pushes may be obeyed before the call that began to send them returns."""

    def run(_: object, steps: Any, finished: Any, **__: object) -> Any:
        for waited in steps:
            assert waited is None or waited.done
        finished(None, None)
        return SimpleNamespace(cancel=lambda: None)

    monkeypatch.setattr(brokers.runtime.scheduler, "run", run)
    image = small()
    brokers.begin(image)
    brokers.commit(changed(image, "orders", 0, leader=2, leader_epoch=1))
    assert leads(*brokers.take(1)) == [("orders", 0, 1, False)]


def take_over(brokers: Brokers, image: MetadataImage, *changes: Change) -> None:
    """A controller begins whose take-over made these changes."""
    step = ImageStep(image)
    for changed_partition in (change.partitions[0] for change in changes):
        after = changed_partition.after
        assert after is not None
        fields = {name: getattr(after, name) for name in ("isr", "leader", "leader_epoch", "partition_epoch")}
        step.replay(partition(ORDERS, after.partition, after.replicas, **fields))
    step.finish(1, 0)
    brokers.pushes.begin(CONTROLLER, image, changes)
    brokers.runtime.run_turn()


def test_a_take_over_tells_first_what_it_has_changed(brokers: Brokers) -> None:
    """A partition whose leader died is served by nobody before its replicas hear of the next one."""
    partitions = [partition(ORDERS, index, (1, 2)) for index in range(6)]
    image = image_of(broker(1), broker(2), TopicRecord(name="orders", topic_id=ORDERS), *partitions)
    elected = changed(image, "orders", 4, leader=2, leader_epoch=1, isr=(2,))
    take_over(brokers, image, elected)
    told = [(leads(m), shows(m)) for m in brokers.take(2) if leads(m) or shows(m)]
    rest = [0, 1, 2, 3, 5]
    assert told == [
        ([("orders", 4, 1, False)], []),
        ([], [("orders", 4, 2)]),
        ([("orders", index, 0, False) for index in rest], []),
        ([], [("orders", index, 1) for index in rest]),
    ]


def test_a_broker_hears_first_of_what_it_leads_and_each_slice_is_shown_behind(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blumfeld_consensus_zk_compat.pushes.channel.SLICE_PARTITIONS", 2)
    partitions = [partition(ORDERS, index, (3, 1, 2)) for index in range(4)]
    image = image_of(broker(1), broker(2), TopicRecord(name="orders", topic_id=ORDERS), *partitions)
    leaders = {0: 1, 1: 2, 2: 1, 3: 2}
    elections = [changed(image, "orders", at, leader=to, leader_epoch=1) for at, to in leaders.items()]
    take_over(brokers, image, *elections)
    told = [(to, [at for _, at, _, _ in leads(m)] or [at for _, at, _ in shows(m)]) for to, m in brokers.sent]
    assert [partitions for to, partitions in told if to == 2 and partitions] == [
        [1, 3],
        [1, 3],
        [0, 2],
        [0, 2],
    ]
    assert [partitions for to, partitions in told if to == 1 and partitions] == [
        [0, 2],
        [0, 2],
        [1, 3],
        [1, 3],
    ]


def test_a_partition_that_has_lost_its_leader_comes_before_one_that_has_lost_a_follower(
    brokers: Brokers,
) -> None:
    """A broker's end changes the ISR of every partition that it had, and clients wait for those that it led."""
    partitions = [partition(ORDERS, index, (1, 2, 3)) for index in range(3)]
    image = image_of(broker(1), broker(2), TopicRecord(name="orders", topic_id=ORDERS), *partitions)
    brokers.begin(image)
    brokers.sent.clear()
    for at, leader in ((0, 1), (1, 2), (2, 1)):
        brokers.pushes.committed(changed(image, "orders", at, leader=leader, leader_epoch=1, isr=(1, 2)))
    brokers.runtime.run_turn()
    to_one = brokers.take(1)
    assert [at for _, at, _, _ in leads(*to_one)] == [1, 0, 2]
    assert [at for _, at, _ in shows(*to_one)] == [1, 0, 2]


def test_the_broker_that_leads_most_of_a_take_over_is_told_first(brokers: Brokers) -> None:
    image = small()
    take_over(brokers, image, changed(image, "orders", 1, leader=3, leader_epoch=1))
    assert brokers.sent[0][0] == 3


def test_a_replica_that_a_take_over_removes_is_deleted(brokers: Brokers) -> None:
    image = small()
    take_over(brokers, image, changed(image, "orders", 0, replicas=(1, 3), isr=(1, 3), leader_epoch=1))
    assert stops(*brokers.take(2)) == [("orders", 0, 1, True)]


def test_what_changes_behind_a_take_over_is_in_its_full_set(brokers: Brokers) -> None:
    image = small()
    brokers.pushes.begin(CONTROLLER, image, [changed(image, "orders", 0, leader=2, leader_epoch=1)])
    brokers.pushes.committed(changed(image, "orders", 0, leader=1, leader_epoch=2))
    brokers.runtime.run_turn()
    assert leads(*brokers.take(1)) == [("orders", 0, 1, False), ("orders", 0, 2, False)]
