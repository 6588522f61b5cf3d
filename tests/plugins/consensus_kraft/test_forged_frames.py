"""A quorum of three whole nodes whose ports anybody may write to: every number of every request of a peer at its
extremes. No frame ends a leadership or a process, meets a defect, changes what another node owns, or loses what was
acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from blumfeld.wire.api import ApiKey, request_class
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import (
    add_partitions_to_txn,
    alter_partition,
    broker_registration,
    end_quorum_epoch,
    end_txn,
    fetch,
    fetch_snapshot,
    find_coordinator,
    init_producer_id,
    list_offsets,
    produce,
    write_txn_markers,
)
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest
from blumfeld.wire.schema import Message, fields_of
from blumfeld_kit.simulation.clients.client import connect
from blumfeld_kit.simulation.machine.host import address_of
from tests.extreme_values import usual_request, varied
from tests.plugins.consensus_kraft.test_dynamic_voters import DynamicCluster
from tests.plugins.consensus_kraft.test_three_nodes import CONTROLLER_PORT

PORTS = {"broker": 9092, "controller": CONTROLLER_PORT}
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
TOPIC = "letters"
TRANSACTIONAL_ID = "typist"
STRANGER = 9
"""A broker that registers, and has nothing."""
LATEST, READ_COMMITTED = -1, 1
PRODUCE_MIN = 3
"""ApiVersions lists earlier ones, which are not served, as Kafka does (librdkafka asks for them)."""
ANSWER_S = 2.0
"""Virtual time for an answer. A fetch may wait for longer, as it asked."""
AT_ONCE = 32
SAMPLE_A_VERSION = 5
"""Requests to each node in one version of a sample."""
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
    ("broker", ApiKey.ADD_PARTITIONS_TO_TXN),
]


ENDS_OTHERS = (
    ApiKey.DELETE_TOPICS,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.REMOVE_RAFT_VOTER,
)
"""Requests behind which others meet their first check only."""


class Attacked(DynamicCluster):
    """Three voters that serve a topic, and a client that writes frames to them. A snapshot of the metadata is there."""

    def __init__(self) -> None:
        keys: Any = {"transaction.state.log.num.partitions": 1}
        super().__init__(**keys)
        self.grown()
        self.until(lambda: self.leader is not None)
        assert self.create(1, TOPIC, partitions=1, replicas=3) == ErrorCode.NONE
        self.acknowledged: list[bytes] = []
        self.producer_id = self.producer_epoch = -1
        self.until(lambda: self.produce() == ErrorCode.NONE)
        self.until(lambda: self.transaction() == ErrorCode.NONE)
        self.until(lambda: len(self.partition.isr) == 3)
        self.metadata(self.leader or 1).replica.snapshots.take()
        self.wait(1)
        self.defects.clear()

    @property
    def image(self) -> Any:
        assert self.leader is not None
        return self.metadata(self.leader).image

    def snapshot(self) -> tuple[int, int]:
        """End offset and epoch of the metadata's snapshot."""
        latest = self.metadata(self.leader or 1).replica.log.snapshots.latest
        assert latest is not None
        return latest.end_offset, latest.epoch

    @property
    def partition(self) -> Any:
        return self.image.topics[TOPIC].partitions[0]

    def state(self) -> tuple[object, ...]:
        """What no frame of a stranger may change."""
        rafts = {node_id: self.metadata(node_id).replica.driver.raft for node_id in self.alive}
        voters = [raft.voters for raft in rafts.values()]
        brokers = {
            broker.broker_id: replace(broker, log_dirs=tuple(sorted(broker.log_dirs)))
            for broker in self.image.brokers.values()
            if broker.broker_id in self.machines
        }
        controllers = {node_id: self.image.controllers.get(node_id) for node_id in self.machines}
        nobody = [broker_id for broker_id in self.image.brokers if broker_id < 0]
        partition = replace(self.partition, isr=tuple(sorted(self.partition.isr)), partition_epoch=0)
        epochs = {node_id: raft.epoch for node_id, raft in rafts.items()}
        return self.alive, self.leader, epochs, voters, brokers, controllers, nobody, partition

    def produce(self, **of_a_transaction: Any) -> int:
        """Write a record with acks=all, and note its acknowledgement. Return the error code."""
        value = b"letter %d" % len(self.acknowledged)
        batch = build_batch([Record(value=value)], **of_a_transaction)
        data = produce.PartitionProduceData(index=0, records=bytes(batch))
        request = produce.ProduceRequest(
            transactional_id=TRANSACTIONAL_ID if of_a_transaction else None,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        answer: Any = self.send(self.partition.leader, "broker", request, 9)
        code = -1 if answer is None else answer.responses[0].partition_responses[0].error_code
        if code == ErrorCode.NONE:
            self.acknowledged.append(value)
        return code

    def transaction(self) -> int:
        """Write a record in a transaction of the client's transactional id, and commit it. Return the error code."""
        find = find_coordinator.FindCoordinatorRequest(key_type=1, key=TRANSACTIONAL_ID)
        coordinator: Any = self.send(self.partition.leader, "broker", find, 3)
        if coordinator is None or coordinator.error_code:
            return -1 if coordinator is None else coordinator.error_code
        init = init_producer_id.InitProducerIdRequest(TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
        producer: Any = self.send(coordinator.node_id, "broker", init, 4)
        if producer is None or producer.error_code:
            return -1 if producer is None else int(producer.error_code)
        self.producer_id, self.producer_epoch = producer.producer_id, producer.producer_epoch
        begin = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])],
        )
        begun: Any = self.send(coordinator.node_id, "broker", begin, 3)
        if begun is None:
            return -1
        if code := begun.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code:
            return int(code)
        code = self.produce(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        if code:
            return code
        end = end_txn.EndTxnRequest(TRANSACTIONAL_ID, self.producer_id, self.producer_epoch, committed=True)
        ended: Any = self.send(coordinator.node_id, "broker", end, 3)
        if ended is None or ended.error_code:
            self.acknowledged.pop()
        return -1 if ended is None else int(ended.error_code)

    def read(self) -> list[bytes]:
        values: list[bytes] = []
        offset, end = 0, self.stable_end()
        while offset < end:
            part = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [fetch.FetchTopic(topic=TOPIC, partitions=[part])]
            request = fetch.FetchRequest(isolation_level=READ_COMMITTED, max_wait_ms=0, topics=topics)
            answer: Any = self.send(self.partition.leader, "broker", request, 11)
            for batch in split_batches(answer.responses[0].partitions[0].records, allow_partial=True):
                offset = batch.last_offset + 1
                if not batch.is_control:
                    values += [bytes(record.value or b"") for record in records(batch)]
        return values

    def stable_end(self) -> int:
        query = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[query])]
        request = list_offsets.ListOffsetsRequest(-1, isolation_level=READ_COMMITTED, topics=topics)
        answer: Any = self.send(self.partition.leader, "broker", request, 5)
        return int(answer.topics[0].partitions[0].offset)

    def send(self, node_id: int, kind: str, request: Message, version: int) -> Message | None:
        """Send one request on a connection of its own. ``None``: no answer in time, or the connection was closed."""
        answer: Message | None = self.run(self._send(node_id, kind, request, version))
        return answer

    async def _send(self, node_id: int, kind: str, request: Message, version: int) -> Message | None:
        connection = await connect(self.network, (address_of(node_id), PORTS[kind]), "stranger")
        try:
            return await asyncio.wait_for(connection.send(request, version), ANSWER_S)
        except (TimeoutError, ConnectionError):
            return None
        finally:
            connection.close()

    def versions(self, kind: str, key: int) -> range:
        """The versions of a request that every node has."""
        broker = self.machines[1].node.broker  # type: ignore[union-attr]
        low, high = broker.advertised(kind)[key]
        return range(max(low, PRODUCE_MIN) if key == ApiKey.PRODUCE else low, high + 1)

    def attack(self, kind: str, requests: list[tuple[Message, int]]) -> None:
        """Send requests, each in its version, to all nodes."""
        sent = [
            (node_id, request, version)
            for request, version in requests
            if not self.is_anothers_word(request)
            for node_id in self.alive
        ]

        async def some(part: list[tuple[int, Message, int]]) -> None:
            await asyncio.gather(
                *(self._send(node_id, kind, request, version) for node_id, request, version in part)
            )

        for at in range(0, len(sent), AT_ONCE):
            self.run(some(sent[at : at + AT_ONCE]))

    def is_anothers_word(self, request: Message) -> bool:
        """Whether a request is what the quorum's leader, or a transaction's coordinator, would write itself. Without
        authentication it counts.
        """
        if isinstance(request, end_quorum_epoch.EndQuorumEpochRequest):
            epoch = self.metadata(1).replica.driver.raft.epoch
            ended = [partition for topic in request.topics for partition in topic.partitions]
            return any(
                (partition.leader_id, partition.leader_epoch) == (self.leader, epoch) for partition in ended
            )
        if isinstance(request, write_txn_markers.WriteTxnMarkersRequest):
            fences = [
                (marker.producer_id, marker.producer_epoch > self.producer_epoch)
                for marker in request.markers
            ]
            return (self.producer_id, True) in fences
        return False

    def check(self, before: tuple[object, ...]) -> None:
        """The cluster is as it was, and works: it takes records and transactions, and has all that it acknowledged,
        also when its leader dies.
        """
        self.wait(5)  # those whose entries were changed have put them right
        assert not self.defects, self.defects[:3]
        assert self.state() == before
        self.check_records()
        first = self.controller
        self.machines[first].crash(power_cut=False)
        self.until(lambda: self.leader is not None, 10)
        self.until(lambda: self.partition.leader >= 0, 10)
        self.start(first)
        self.until(lambda: len(self.partition.isr) == 3, 30)
        self.check_records()
        assert not self.defects, self.defects[:3]

    def check_records(self) -> None:
        """What is acknowledged is what consumers read, and more can be written."""
        self.until(lambda: self.produce() == ErrorCode.NONE, 10)
        self.until(lambda: self.transaction() == ErrorCode.NONE, 20)
        self.until(lambda: self.read() == self.acknowledged, 5)


@pytest.fixture
def cluster() -> Attacked:
    return Attacked()


def ordinary(cluster: Attacked, kind: str, key: int) -> dict[str, list[Any]]:
    """The values of an ordinary request of a peer, by the names of its fields."""
    leader = cluster.controller
    raft = cluster.metadata(leader).replica.driver.raft
    epoch = raft.epoch
    partition, topic = cluster.partition, cluster.image.topics[TOPIC]
    other = next(node_id for node_id in cluster.alive if node_id not in (leader, partition.leader))
    sender = partition.leader if key == ApiKey.ALTER_PARTITION else other
    broker = cluster.image.brokers[sender]
    directory = raft.voters.key_of(other).directory_id
    metadata = kind == "controller" and key in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT)
    name = CLUSTER_METADATA_TOPIC if metadata else TOPIC
    epoch_of_a_replica = epoch if key == ApiKey.VOTE else broker.epoch
    return {
        "cluster_id": [CLUSTER_ID],
        "topic_name": [CLUSTER_METADATA_TOPIC],
        "name": [{ApiKey.UPDATE_RAFT_VOTER: "CONTROLLER"}.get(ApiKey(key), name)],
        "topic": [name],
        "topic_id": [CLUSTER_METADATA_TOPIC_ID if metadata else topic.topic_id],
        "replica_id": [other],
        "voter_id": [other if key == ApiKey.UPDATE_RAFT_VOTER else -1],
        "voter_directory_id": [directory if key == ApiKey.UPDATE_RAFT_VOTER else bytes(16)],
        "replica_directory_id": [directory],
        "leader_id": [leader],
        "candidate_id": [other],
        "leader_epoch": [partition.leader_epoch if key == ApiKey.ALTER_PARTITION else epoch],
        "partition_epoch": [partition.partition_epoch],
        "current_leader_epoch": [partition.leader_epoch if kind == "broker" else epoch],
        "replica_epoch": [epoch_of_a_replica],
        "last_fetched_epoch": [0],
        "partition_max_bytes": [1_000],
        "max_bytes": [1_000],
        "broker_id": [STRANGER if key == ApiKey.BROKER_REGISTRATION else sender],
        "broker_epoch": [broker.epoch],
        "id": [broker.log_dirs[0]],
        "log_dirs": [b"strangers" + bytes(7)],
        "incarnation_id": [b"stranger" * 2],
        "controller_id": [STRANGER],
        "host": [address_of(other)],
        "port": [CONTROLLER_PORT],
        "max_supported_version": [1],
        "producer_id": [cluster.producer_id],
        "producer_epoch": [cluster.producer_epoch],
        "v3_and_below_producer_id": [cluster.producer_id],
        "v3_and_below_producer_epoch": [cluster.producer_epoch],
        "transactional_id": [TRANSACTIONAL_ID],
        "v3_and_below_transactional_id": [TRANSACTIONAL_ID],
        "partition_indexes": [0],
        "acks": [-1],
        "partitions": [0],
    }


def served_apis(cluster: Attacked, kind: str) -> list[int]:
    """The APIs of a kind of listener."""
    return list(cluster.machines[1].node.broker.advertised(kind))  # type: ignore[union-attr]


def usual(cluster: Attacked, kind: str, key: int, version: int) -> Any:
    """A request that a peer could send now."""
    request: Any = usual_request(request_class(key), version, ordinary(cluster, kind, key))
    if key == ApiKey.BROKER_REGISTRATION:
        request.features = [
            broker_registration.Feature(name, level, level) for name, level in cluster.image.features.items()
        ]
    if key == ApiKey.ALTER_PARTITION:
        (part,) = request.topics[0].partitions
        isr = cluster.partition.isr
        part.new_isr = list(isr) if version < 3 else []
        part.new_isr_with_epochs = [
            alter_partition.BrokerState(broker_id, cluster.image.brokers[broker_id].epoch)
            for broker_id in isr
            if version >= 3
        ]
    if key == ApiKey.FETCH_SNAPSHOT:
        (part,) = request.topics[0].partitions
        part.snapshot_id = fetch_snapshot.SnapshotId(*cluster.snapshot())
    return request


def error_codes(part: Any) -> Iterator[int]:
    for field in fields_of(type(part)):
        value = getattr(part, field.name)
        if field.name.endswith("error_code"):
            yield value
        if field.type.struct is not None and value is not None:
            for element in value if field.type.array else [value]:
                yield from error_codes(element)


def sample(cluster: Attacked, random: Random, kind: str, key: int) -> Iterator[tuple[Message, int]]:
    """Some requests of every version, with one number or two at an extreme."""
    for version in cluster.versions(kind, key):
        for _ in range(SAMPLE_A_VERSION):
            request = usual(cluster, kind, key, version)
            for _ in range(random.choice((1, 1, 2))):
                request = random.choice(list(varied(request, version)))
            yield request, version


def with_one_changed(request: Any, version: int, random: Random) -> tuple[Any, Any]:
    """A request, and the same with one number at an extreme."""
    return request, random.choice([*varied(request, version), request])


def sweep(cluster: Attacked, kind: str, key: int, version: int) -> list[tuple[Message, int]]:
    """One request for each extreme value of each field in a version, all others being ordinary, and then the ordinary
    one. What that one changes might keep the others from getting far.
    """
    request = usual(cluster, kind, key, version)
    return [(variant, version) for variant in (*varied(request, version), request)]


def test_no_number_in_the_newest_version_of_a_peers_request_changes_what_others_own(
    cluster: Attacked,
) -> None:
    """The slow tests have the other versions, and two numbers at once."""
    before = cluster.state()
    for kind, key in PEERS:
        cluster.attack(kind, sweep(cluster, kind, key, cluster.versions(kind, key)[-1]))
    cluster.check(before)


def test_a_broker_whose_id_a_stranger_registers_serves_again(cluster: Attacked) -> None:
    """UnregisterBroker, and one registration of its id, which no heartbeat follows. Its process goes on."""
    leader, before = cluster.leader, cluster.state()
    assert leader is not None
    victim = next(node_id for node_id in cluster.alive if node_id not in (leader, cluster.partition.leader))
    broker = cluster.image.brokers[victim]
    request = usual(cluster, "controller", ApiKey.BROKER_REGISTRATION, 4)
    request.broker_id = victim
    request.log_dirs = list(broker.log_dirs)
    cluster.send(leader, "controller", UnregisterBrokerRequest(broker_id=victim), 0)
    answer: Any = cluster.send(leader, "controller", request, 4)
    assert answer.error_code == ErrorCode.NONE
    cluster.until(lambda: cluster.image.brokers[victim].incarnation_id == broker.incarnation_id, 10)
    cluster.until(lambda: len(cluster.partition.isr) == 3, 30)
    assert cluster.alive == before[0]
    cluster.check(cluster.state())


def test_every_ordinary_request_of_a_peer_is_served(cluster: Attacked) -> None:
    """Otherwise its numbers would meet the first check, and no other. EndQuorumEpoch would end the leadership."""
    for kind, key in PEERS:
        version = cluster.versions(kind, key)[-1]
        request = usual(cluster, kind, key, version)
        if key != ApiKey.END_QUORUM_EPOCH:
            answers = [cluster.send(node_id, kind, request, version) for node_id in cluster.alive]
            assert any(answer is not None and not any(error_codes(answer)) for answer in answers), (
                kind,
                key,
                answers,
            )


def test_every_request_that_is_served_is_answered_whatever_its_numbers(cluster: Attacked) -> None:
    """Every API and version of both kinds of listener: its answer, mostly an error, can be encoded, and no handler ends
    in a defect. What the requests may change is not looked at.
    """
    random = Random(1)
    served = [(kind, key) for kind in PORTS for key in served_apis(cluster, kind)]
    served.sort(key=lambda entry: entry[1] in ENDS_OTHERS)
    requests = [
        (kind, request, version)
        for kind, key in served
        for version in cluster.versions(kind, key)
        for request in with_one_changed(usual(cluster, kind, key, version), version, random)
    ]
    assert len(requests) > 500
    for kind, request, version in requests:
        answer = cluster.send(random.choice(cluster.alive), kind, request, version)
        assert answer is not None or getattr(request, "acks", -1) == 0, (kind, version, request)
        assert not cluster.defects, (kind, version, request, cluster.defects)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "key"), PEERS, ids=[f"{kind}-{key.name}" for kind, key in PEERS])
def test_no_number_in_a_peers_request_changes_what_others_own(
    cluster: Attacked, kind: str, key: ApiKey
) -> None:
    """Every extreme value of every field in every version."""
    before = cluster.state()
    for version in cluster.versions(kind, key):
        cluster.attack(kind, sweep(cluster, kind, key, version))
    cluster.check(before)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_two_numbers_in_a_peers_request_change_what_others_own(cluster: Attacked, seed: int) -> None:
    random = Random(seed)
    before = cluster.state()
    for kind, key in PEERS:
        cluster.attack(kind, list(sample(cluster, random, kind, key)))
    cluster.check(before)
