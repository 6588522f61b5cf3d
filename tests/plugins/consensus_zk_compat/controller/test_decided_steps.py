from __future__ import annotations

import pytest

from blumfeld.wire.messages.metadata_records import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
from tests.plugins.consensus_zk_compat.controller.decided import Decided, topic, topic_id


def change(number: int = 0, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=number, topic_id=topic_id("t"), **fields)  # type: ignore[arg-type]


def cluster() -> Decided:
    return Decided([1, 2], topic("t", (1, [1, 2], [1, 2]), (2, [2, 1], [2, 1])))


def test_a_partition_that_a_decision_changes_twice_is_written_twice() -> None:
    changes = cluster().replay([change(isr=[1]), change(1, isr=[2]), change(isr=[1, 2])])
    epochs = [
        [(s.before.partition_epoch, s.after.partition_epoch) for s in c.partitions if s.before and s.after]
        for c in changes
    ]
    assert epochs == [[(5, 6), (5, 6)], [(6, 7)]]


def test_a_change_tells_of_a_deleted_topic_with_its_partitions() -> None:
    [made] = cluster().replay([RemoveTopicRecord(topic_id=topic_id("t"))])
    assert [topic.name for topic in made.topics_deleted] == ["t"]
    assert [(s.before is not None and s.before.partition, s.after) for s in made.partitions] == [
        (0, None),
        (1, None),
    ]


def test_a_change_tells_of_a_new_topic_without_a_before() -> None:
    driven = cluster()
    [made] = driven.replay(topic("u", (1, [1], [1])))
    assert [topic.name for topic in made.topics_created] == ["u"]
    assert [(s.topic, s.before) for s in made.partitions] == [("u", None)]


def test_what_the_images_parts_do_not_show_is_carried_as_records() -> None:
    block = ProducerIdsRecord(broker_id=1, broker_epoch=100, next_producer_id=1_000)
    [made] = cluster().replay([block])
    assert made.records == (block,)


@pytest.mark.parametrize("by_leader", [False, True])
def test_the_controllers_own_changes_of_an_isr_begin_a_leader_epoch(by_leader: bool) -> None:
    driven = cluster()
    driven.replay([change(isr=[1])], by_leader=by_leader)
    assert driven.partition("t").leader_epoch == (3 if by_leader else 4)
    assert driven.partition("t").leader == 1


def test_other_replicas_begin_a_leader_epoch_whoever_asked() -> None:
    driven = cluster()
    driven.replay([change(replicas=[1, 2, 3], adding_replicas=[3])], by_leader=True)
    assert driven.partition("t").leader_epoch == 4


def test_a_second_change_in_one_decision_keeps_the_leader_of_the_first() -> None:
    driven = cluster()
    driven.replay([change(leader=2), change(isr=[2])])
    assert (driven.partition("t").leader, driven.partition("t").leader_epoch) == (2, 5)
