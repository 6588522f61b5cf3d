"""A quorum of three whole nodes whose ports anybody may write to: every number of every request of a peer at its
extremes. No frame ends a leadership or a process, meets a defect, or changes what another node owns.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from blumfeld.testing.simulation.clients.client import connect
from blumfeld.testing.simulation.machine.host import address_of
from blumfeld.wire.api import ApiKey, request_class
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import produce
from blumfeld.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from blumfeld.wire.schema import Message
from tests.everyday import first
from tests.extreme_values import one_at_a_time
from tests.plugins.consensus_kraft.test_three_nodes import CONTROLLER_PORT, Cluster

PORTS = {"broker": 9092, "controller": CONTROLLER_PORT}
TOPIC = "letters"
ANSWER_S = 2.0
"""Virtual time for an answer. A fetch may wait for longer, as it asked."""
AT_ONCE = 32
PEERS = [
    ("controller", ApiKey.FETCH),
    ("controller", ApiKey.VOTE),
    ("controller", ApiKey.BEGIN_QUORUM_EPOCH),
    ("controller", ApiKey.END_QUORUM_EPOCH),
    ("controller", ApiKey.FETCH_SNAPSHOT),
    ("controller", ApiKey.ALTER_PARTITION),
    ("controller", ApiKey.BROKER_HEARTBEAT),
    ("controller", ApiKey.BROKER_REGISTRATION),
    ("controller", ApiKey.CONTROLLER_REGISTRATION),
    ("controller", ApiKey.ALLOCATE_PRODUCER_IDS),
    ("controller", ApiKey.ASSIGN_REPLICAS_TO_DIRS),
    ("controller", ApiKey.UPDATE_RAFT_VOTER),
    ("broker", ApiKey.FETCH),
    ("broker", ApiKey.OFFSET_FOR_LEADER_EPOCH),
    ("broker", ApiKey.WRITE_TXN_MARKERS),
]


class Attacked(Cluster):
    """Three nodes that serve a topic, and a client that writes frames to them."""

    def __init__(self) -> None:
        super().__init__()
        self.start()
        self.until(lambda: self.leader is not None)
        assert self.create(1, TOPIC, partitions=1, replicas=3) == ErrorCode.NONE
        self.until(lambda: self.produce() == ErrorCode.NONE)
        self.defects.clear()

    @property
    def image(self) -> Any:
        """The controller's image."""
        assert self.leader is not None
        return self.metadata(self.leader).image

    @property
    def partition(self) -> Any:
        """The topic's partition, as the controller knows it."""
        return self.image.topics[TOPIC].partitions[0]

    def state(self) -> tuple[object, ...]:
        """What no frame of a stranger may change."""
        epochs = {self.metadata(one).driver.raft.epoch for one in self.alive}
        voters = self.metadata(1).driver.raft.voters
        brokers = {
            one.broker_id: (one.epoch, one.fenced, one.in_controlled_shutdown)
            for one in self.image.brokers.values()
        }
        isr = sorted(self.partition.isr)
        return self.alive, self.leader, epochs, voters, brokers, self.partition.leader, isr

    def produce(self) -> int:
        """Write a record with acks=all. Return the error code."""
        data = produce.PartitionProduceData(index=0, records=bytes(build_batch([Record(value=b"a letter")])))
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=1_000,
            topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        answer: Any = self.ask(self.partition.leader, "broker", request, 9)
        return -1 if answer is None else answer.responses[0].partition_responses[0].error_code

    def ask(self, node_id: int, kind: str, request: Message, version: int) -> Message | None:
        """Send one request on a connection of its own. ``None``: no answer in time, or the connection was closed."""
        answer: Message | None = self.run(self._ask(node_id, kind, request, version))
        return answer

    async def _ask(self, node_id: int, kind: str, request: Message, version: int) -> Message | None:
        connection = await connect(self.network, (address_of(node_id), PORTS[kind]), "stranger")
        try:
            return await asyncio.wait_for(connection.send(request, version), ANSWER_S)
        except (TimeoutError, ConnectionError):
            return None
        finally:
            connection.close()

    def attack(
        self, kind: str, key: int, ordinary: dict[str, list[Any]], nodes: list[int], versions: str
    ) -> int:
        """Send every request with one extreme value to these nodes, in the lowest and the highest version or in all.
        Return their number.
        """
        low, high = self.machines[1].node.broker.advertised(kind)[key]  # type: ignore[union-attr]
        requests = [
            (node_id, request, version)
            for version in (range(low, high + 1) if versions == "all" else {low, high})
            for request in one_at_a_time(request_class(key), version, ordinary)
            if not self.is_leaders_word(request)
            for node_id in nodes
        ]

        async def some(part: list[tuple[int, Message, int]]) -> None:
            await asyncio.gather(
                *(self._ask(node_id, kind, request, version) for node_id, request, version in part)
            )

        for at in range(0, len(requests), AT_ONCE):
            self.run(some(requests[at : at + AT_ONCE]))
        return len(requests)

    def is_leaders_word(self, request: Message) -> bool:
        """Whether a request is what the quorum's leader would write itself. Without authentication it counts."""
        if not isinstance(request, EndQuorumEpochRequest):
            return False
        epoch = self.metadata(1).driver.raft.epoch
        ended = [one for topic in request.topics for one in topic.partitions]
        return any((one.leader_id, one.leader_epoch) == (self.leader, epoch) for one in ended)


@pytest.fixture
def cluster() -> Attacked:
    """Three nodes that serve a topic."""
    return Attacked()


def ordinary(cluster: Attacked, kind: str, key: int) -> dict[str, list[Any]]:
    """The values of an ordinary request of a peer, by the names of its fields."""
    leader = cluster.leader
    assert leader is not None
    epoch = cluster.metadata(leader).driver.raft.epoch
    partition, topic = cluster.partition, cluster.image.topics[TOPIC]
    other = next(one for one in cluster.alive if one not in (leader, partition.leader))
    sender = partition.leader if key == ApiKey.ALTER_PARTITION else other
    broker_epoch = cluster.image.brokers[sender].epoch
    metadata = kind == "controller" and key in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)
    return {
        "cluster_id": ["4L6g3nShT-eMCtK--X86sw"],
        "topic_name": [CLUSTER_METADATA_TOPIC],
        "name": [CLUSTER_METADATA_TOPIC if metadata else TOPIC],
        "topic": [CLUSTER_METADATA_TOPIC if metadata else TOPIC],
        "topic_id": [CLUSTER_METADATA_TOPIC_ID if metadata else topic.topic_id],
        "replica_id": [other],
        "voter_id": [-1],
        "leader_id": [leader],
        "candidate_id": [other],
        "leader_epoch": [partition.leader_epoch if key == ApiKey.ALTER_PARTITION else epoch],
        "partition_epoch": [partition.partition_epoch],
        "current_leader_epoch": [epoch if metadata else partition.leader_epoch],
        "replica_epoch": [epoch if key == ApiKey.VOTE else broker_epoch],
        "last_fetched_epoch": [0],
        "partition_max_bytes": [1_000],
        "max_bytes": [1_000],
        "broker_id": [sender],
        "broker_epoch": [broker_epoch],
        "incarnation_id": [b"stranger" * 2],
        "new_isr": [1],
        "host": ["localhost"],
        "port": [9092],
        "producer_id": [77],
        "partition_indexes": [0],
    }


@pytest.mark.parametrize("versions", first(1, ["ends", "all"]))
@pytest.mark.parametrize(("kind", "key"), PEERS, ids=[f"{kind}-{key.name}" for kind, key in PEERS])
def test_no_number_in_a_peers_request_changes_what_others_own(
    cluster: Attacked, kind: str, key: ApiKey, versions: str
) -> None:
    """Every extreme value of every field, all other fields being ordinary."""
    before = cluster.state()
    sent = cluster.attack(kind, key, ordinary(cluster, kind, key), [1, 2, 3], versions)
    cluster.wait(3)
    assert sent > 10
    assert not cluster.defects, cluster.defects[:3]
    assert cluster.state() == before
    assert cluster.produce() == ErrorCode.NONE
