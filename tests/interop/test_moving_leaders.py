"""Leaders move about once a second under load: no answer of ours may make librdkafka begin a producer epoch. Slow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from blumfeld.testing.cluster import BROKER, COMBINED
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld_kit.cluster import Cluster
from campaigns.clients.load.load import TOPIC, Load
from campaigns.cluster.observer import Observer
from tests.interop.clients import WAIT_S, wait_for
from tests.interop.mixed_cluster import Member, mixed_cluster
from tests.interop.producer_epochs import EpochLog
from tests.kafka_peer import peer_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTITIONS = 6
RATE_PER_S = 2000
MOVES = 60
SETTLE_S = 0.3
"""Load between two elections, which the brokers learn of at different moments."""
KAFKAS = (Member("kafka", COMBINED),) * 3
OURS = (Member("blumfeld", COMBINED),) * 3


@pytest.mark.parametrize("controllers", [KAFKAS, OURS], ids=["kafka", "blumfeld"])
def test_our_brokers_begin_no_producer_epoch(controllers: Sequence[Member], tmp_path: Path) -> None:
    """Three nodes and a broker of ours. Nothing is lost, and nothing is doubled where only our brokers answer."""
    members = [*controllers, Member("blumfeld", BROKER)]
    cluster = mixed_cluster(members, Path(peer_script()), tmp_path)
    epochs = EpochLog()
    try:
        cluster.start()
        load = Load(cluster.addresses, PARTITIONS, RATE_PER_S, make_producer=epochs.producer)
        load.make_topic(len(members), {"min.insync.replicas": "2"})
        observer = Observer(cluster, TOPIC)
        assert observer.await_whole(WAIT_S), observer.describe()
        load.start()
        for turn in range(MOVES):
            move_leaders(cluster, observer, turn)
        load.finish()
        account = load.account()
    finally:
        cluster.stop()
    print(f"{dict(epochs.begun)}, {account}")
    assert not load.given_up
    assert account.acked == load.sent
    assert account.lost == 0
    assert not {node for node in epochs.brokers() if node < 0 or members[node - 1].kind == "blumfeld"}
    if controllers is OURS:
        assert not epochs.begun
        assert not load.wrong


def move_leaders(cluster: Cluster, observer: Observer, turn: int) -> None:
    """Give each partition to another preferred leader, and elect it."""
    brokers = [node.place.id for node in cluster.brokers]
    partitions = []
    for nth in range(PARTITIONS):
        first = (turn + nth) % len(brokers)
        partitions.append(
            ReassignablePartition(partition_index=nth, replicas=brokers[first:] + brokers[:first])
        )
    with cluster.brokers[0].connect(WAIT_S) as connection:
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=TOPIC, partitions=partitions)]
        )
        answer = connection.ask(request, AlterPartitionReassignmentsResponse, 0)
    assert not answer.error_code
    time.sleep(SETTLE_S)
    wait_for(lambda: not observer.elect_preferred(PARTITIONS), observer.describe)
    time.sleep(SETTLE_S)
