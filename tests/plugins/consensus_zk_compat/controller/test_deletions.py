from __future__ import annotations

from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_zk_compat.controller.deletions import Deletions, Effect, RemoveTopic, StopReplicas
from tests.plugins.consensus_zk_compat.controller.decided import Decided, topic


def image(name: str = "t") -> TopicImage:
    return Decided([], topic(name, (1, [1], [1, 2]), (2, [2], [2]))).state.image.topics[name]


def stop(broker_id: int, *numbers: int) -> StopReplicas:
    return StopReplicas(broker_id, tuple(TopicPartition("t", number) for number in numbers))


def answer(deletions: Deletions, order: StopReplicas, error: ErrorCode = ErrorCode.NONE) -> list[Effect]:
    return deletions.answered(order.broker_id, dict.fromkeys(order.partitions, error))


def test_a_topic_goes_when_each_of_its_replicas_was_deleted() -> None:
    deletions, deleted = Deletions(), image()
    assert deletions.begin([deleted], {1, 2}) == [stop(1, 0), stop(2, 0, 1)]
    assert answer(deletions, stop(1, 0)) == []
    assert answer(deletions, stop(2, 0)) == []
    assert answer(deletions, stop(2, 1)) == [RemoveTopic(deleted)]
    assert "t" in deletions, "its name is free only when the tree has nothing of it"
    deletions.removed("t")
    assert "t" not in deletions


def test_an_offline_replica_keeps_its_topic_until_its_broker_comes() -> None:
    deletions, deleted = Deletions(), image()
    assert deletions.begin([deleted], {1}) == [stop(1, 0)]
    assert answer(deletions, stop(1, 0)) == []
    assert deletions.ask_again(2, {1, 2}) == [stop(2, 0, 1)]
    assert answer(deletions, stop(2, 0, 1)) == [RemoveTopic(deleted)]


def test_a_replica_on_a_lost_disk_keeps_its_topic_until_its_brokers_next_process() -> None:
    deletions, deleted = Deletions(), image()
    deletions.begin([deleted], {1, 2})
    answer(deletions, stop(1, 0), ErrorCode.KAFKA_STORAGE_ERROR)
    assert answer(deletions, stop(2, 0, 1)) == []
    assert deletions.ask_again(1, {1, 2}) == [stop(1, 0)]
    assert answer(deletions, stop(1, 0)) == [RemoveTopic(deleted)]


def test_a_broker_is_not_asked_twice_at_once() -> None:
    deletions = Deletions()
    deletions.begin([image()], {1, 2})
    assert deletions.begin([image()], {1, 2}) == []
    assert deletions.ask_again(3, {1, 2, 3}) == []


def test_a_topic_without_replicas_goes_at_once() -> None:
    empty = TopicImage(name="t", topic_id=bytes(16), partitions={})
    assert Deletions().begin([empty], {1}) == [RemoveTopic(empty)]


def test_an_answer_about_another_topic_changes_nothing() -> None:
    assert answer(Deletions(), stop(1, 0)) == []
