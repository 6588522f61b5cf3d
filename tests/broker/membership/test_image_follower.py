"""How deltas of the image are applied: in slices, in order, to the end; and what a stop or a defect leaves of it."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.spi.cluster import ImageDelta, TopicImage
from blumfeld.spi.completion import Completion
from tests.broker.harness import BrokerHarness, failing, partition_image

PARTITIONS = 12


def tell(broker: BrokerHarness, delta: ImageDelta) -> Completion[None]:
    """The delta as the consensus brings it, and what the consensus waits for."""
    (listener,) = broker.metadata._listeners
    applied = listener(broker.metadata.image, delta)
    assert applied is not None
    return applied


def changed(broker: BrokerHarness, leader_epoch: int, name: str = "many") -> ImageDelta:
    """Every partition of a topic, in this leader epoch."""
    topic = broker.metadata.image.topics[name]
    images = {
        at: partition_image(at, epoch=leader_epoch, partition_epoch=leader_epoch) for at in topic.partitions
    }
    topic = TopicImage(name=name, topic_id=topic.topic_id, partitions=images)
    broker.metadata.image.topics[name] = topic
    return ImageDelta(partitions_changed=tuple((topic, one) for one in images.values()))


def in_epoch(broker: BrokerHarness, leader_epoch: int) -> int:
    return sum(one.leader_epoch == leader_epoch for one in broker.broker.partitions)


@pytest.fixture
def broker() -> BrokerHarness:
    harness = BrokerHarness()
    harness.create_topic("many", PARTITIONS)
    harness.runtime.advance(100)
    assert harness.broker.partitions.settled().done
    harness.hook.events.clear()
    return harness


def test_a_large_delta_is_applied_in_slices_and_announced_at_its_end(broker: BrokerHarness) -> None:
    applied = tell(broker, changed(broker, 1))
    seen = [in_epoch(broker, 1)]
    while not applied.done:
        assert broker.hook.events == []
        broker.runtime.loop._one_turn()
        seen.append(in_epoch(broker, 1))
        assert len(seen) < 20
    assert seen == list(range(1, PARTITIONS + 1)), "on virtual time each turn applies one"
    assert len(broker.hook.events) == PARTITIONS
    assert len(set(broker.hook.events)) == PARTITIONS, "each once"


def test_a_topic_is_removed_in_slices(broker: BrokerHarness) -> None:
    topic = broker.metadata.image.topics.pop("many")
    applied = tell(broker, ImageDelta(topics_deleted=(topic,)))
    left = [len(list(broker.broker.partitions))]
    while not applied.done:
        broker.runtime.loop._one_turn()
        left.append(len(list(broker.broker.partitions)))
        assert len(left) < 200
    assert left == list(range(PARTITIONS - 1, -1, -1)), "on virtual time each turn removes one"
    assert broker.hook.events == [("deleted", "many")]
    assert len(broker.storage.deleted) == PARTITIONS


def test_requests_are_served_between_two_slices(broker: BrokerHarness) -> None:
    applied = tell(broker, changed(broker, 1))
    assert not applied.done
    assert broker.produced(topic="many").name == "NONE"


def test_a_stop_between_two_slices_applies_no_more_and_lets_the_consensus_go_on(
    broker: BrokerHarness,
) -> None:
    applied = tell(broker, changed(broker, 1))
    broker.broker._follower.stop()
    assert applied.done
    for _ in range(5):
        broker.runtime.run_turn()
    assert in_epoch(broker, 1) == 1
    (listener,) = broker.metadata._listeners
    assert listener(broker.metadata.image, changed(broker, 2)) is None
    assert in_epoch(broker, 2) == 0


@pytest.mark.parametrize(
    "hook", ["blumfeld_topic_created", "blumfeld_leader_changed", "blumfeld_topic_deleted"]
)
def test_a_hook_that_raises_holds_up_no_image(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    """The consensus brings the next delta when this one is applied, so the node's metadata would stand still."""
    monkeypatch.setattr(broker.hook, hook, failing(RuntimeError("a defect of a plug-in")))
    broker.create_topic("t")
    broker.change_partition(epoch=3)
    assert broker.hosted().leader_epoch == 3
    assert broker.produced().name == "NONE"
    broker.metadata.delete_topic("t")
    assert broker.broker._follower.applied().done
    assert ("error", "a hook failed") in [event[:2] for event in broker.log.events]


def test_a_replication_that_raises_leaves_one_replica_without_a_role(
    broker: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    replication = broker.broker.composition.replication
    lead = replication.become_leader

    def become_leader(host: Any, *arguments: Any) -> Any:
        if host.partition.partition == 5:
            raise RuntimeError("a defect of the replication")
        return lead(host, *arguments)

    monkeypatch.setattr(replication, "become_leader", become_leader)
    applied = tell(broker, changed(broker, 1))
    broker.runtime.advance(10)
    assert applied.done
    assert in_epoch(broker, 1) == PARTITIONS
    without = [one.partition.partition for one in broker.broker.partitions if one.leader is None]
    assert without == [5]
    monkeypatch.undo()
    tell(broker, changed(broker, 2))
    broker.runtime.advance(10)
    assert all(one.leader is not None for one in broker.broker.partitions)
