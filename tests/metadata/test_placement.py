"""Replicas of new partitions on racks and brokers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.partitions.placement import place
from blumfeld.spi.cluster import BrokerImage
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.broker_registration import BrokerRegistrationResponse
from blumfeld.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tests.metadata.driven import CLUSTER_ID, Driven


def cluster(*brokers: tuple[str | None, bool]) -> MetadataImage:
    """Brokers from id 0 on, each with its rack and whether it is fenced."""
    image = MetadataImage(CLUSTER_ID)
    for broker_id, (rack, fenced) in enumerate(brokers):
        image.brokers[broker_id] = BrokerImage(
            broker_id=broker_id, epoch=1, incarnation_id=b"", endpoints=(), rack=rack, fenced=fenced
        )
    return image


def racks_of(*counts: int) -> MetadataImage:
    """Racks a, b, c… with so many active brokers."""
    return cluster(*((chr(ord("a") + nth), False) for nth, count in enumerate(counts) for _ in range(count)))


CLUSTERS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d", None]), st.booleans()), min_size=1, max_size=9
).filter(lambda brokers: any(not fenced for _, fenced in brokers))


@given(brokers=CLUSTERS, start=st.integers(0, 1_000), data=st.data())
def test_every_rack_before_a_rack_twice(
    brokers: list[tuple[str | None, bool]], start: int, data: st.DataObject
) -> None:
    image = cluster(*brokers)
    factor = data.draw(st.integers(1, len(brokers)))
    sizes = Counter(rack for rack, _ in brokers)
    for replicas in place(image, 12, factor, start):
        assert len(replicas) == len(set(replicas)) == factor
        assert image.is_active(replicas[0])
        used = Counter(brokers[replica][0] for replica in replicas)
        assert len(used) == min(factor, len(sizes))
        # A rack has two replicas fewer than another only if it has no more brokers.
        assert all(used[rack] == sizes[rack] or used[rack] >= max(used.values()) - 1 for rack in sizes)
        for rack in sizes:
            there = [replica for replica in replicas if brokers[replica][0] == rack]
            fenced = [brokers[replica][1] for replica in there]
            active = sum(not fenced for other, fenced in brokers if other == rack)
            assert sorted(fenced) == fenced, "a fenced broker before an active one of its rack"
            assert fenced.count(False) == min(active, len(there))


@given(start=st.integers(0, 1_000), racks=st.integers(1, 4), brokers=st.integers(1, 4), data=st.data())
def test_equal_racks_have_equal_load(start: int, racks: int, brokers: int, data: st.DataObject) -> None:
    """After one partition for each broker, each has led one and has the same number of replicas."""
    factor = data.draw(st.integers(1, racks * brokers))
    placed = place(racks_of(*[brokers] * racks), racks * brokers, factor, start)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {1}
    assert len({replicas[0] for replicas in placed}) == racks * brokers
    assert set(Counter(replica for replicas in placed for replica in replicas).values()) == {factor}


def test_stripes() -> None:
    """Three racks of three brokers: no two partitions have the same replicas."""
    placed = place(racks_of(3, 3, 3), 9, 3, 0)
    assert placed[:4] == [[0, 4, 8], [3, 7, 2], [6, 1, 5], [1, 5, 6]]
    assert len({tuple(replicas) for replicas in placed}) == 9


def test_a_rack_whose_brokers_are_fenced_follows() -> None:
    """It has its replica, and the other racks share the leaders."""
    image = cluster(("a", False), ("b", True), ("c", False))
    assert place(image, 3, 2, 0) == [[0, 1], [2, 0], [0, 1]]


def test_without_racks_brokers_go_round() -> None:
    image = cluster((None, False), (None, True), (None, False), (None, False))
    assert place(image, 3, 2, 0) == [[0, 2], [2, 3], [3, 0]]
    assert place(image, 1, 4, 0) == [[0, 2, 3, 1]]


@pytest.mark.parametrize("brokers", [[], [(None, True)], [("a", True), ("b", True)]])
def test_an_active_broker_must_lead(brokers: list[tuple[str | None, bool]]) -> None:
    with pytest.raises(BrokerError, match="All brokers are currently fenced") as refused:
        place(cluster(*brokers), 1, 1, 0)
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(BrokerError, match="factor of 4 cannot be reached because only 3 broker"):
        place(racks_of(2, 1), 1, 4, 0)


def test_a_broker_that_shuts_down_gets_no_replica() -> None:
    """When it has stopped, it is one of the fenced brokers."""
    driven = Driven()
    epochs = driven.join(1, 2)
    driven.create("led", 2, 1)
    driven.beat(2, epochs[1], want_shut_down=True)
    assert driven.image.brokers[2].in_controlled_shutdown
    assert not driven.image.brokers[2].fenced
    assert driven.create("t", 1, 2).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    driven.beat(1, epochs[0])
    driven.beat(2, epochs[1], want_fence=True)
    assert driven.create("t", 1, 2).error_code == 0
    assert driven.partition("t").replicas == (1, 2)


def test_racks_come_from_registrations() -> None:
    """CreateTopics and CreatePartitions place by rack."""
    driven = Driven()
    for broker_id, rack in ((1, "a"), (2, "a"), (3, "b")):
        request = driven.registration(broker_id)
        request.rack = rack
        driven.beat(broker_id, driven.do(request, BrokerRegistrationResponse).broker_epoch)
    driven.create("t", 4, 2)
    wanted = [CreatePartitionsTopic(name="t", count=8, assignments=None)]
    answer = driven.do(CreatePartitionsRequest(topics=wanted), CreatePartitionsResponse)
    assert answer.results[0].error_code == 0
    partitions = driven.image.topics["t"].partitions.values()
    assert len(partitions) == 8
    assert all(3 in partition.replicas for partition in partitions)
    assert {1, 2, 3} == {partition.leader for partition in partitions}
