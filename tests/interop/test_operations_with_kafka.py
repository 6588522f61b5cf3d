"""One broker of each kind in a cluster: tools, groups, compression, compaction and transactions. Slow: starts Java.

Node 1 is a broker and the controller, by Apache Kafka 4.3.1. Node 2 is a broker of this build.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld_kit.cluster import Cluster
from campaigns.cluster.observer import Observer
from tests.interop.clients import WAIT_S, commit, committed, make_topic, produce, read, take, values, wait_for
from tests.interop.mixed_cluster import Member, mixed_cluster
from tests.kafka_peer import peer_script, tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KAFKA, OURS = 1, 2
SETTINGS = (
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=2",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=2",
    "transaction.state.log.min.isr=1",
    "group.initial.rebalance.delay.ms=0",
    "log.cleaner.backoff.ms=500",
)
TRANSACTIONS = "__transaction_state"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 5
"""Keys of the compacted topic; every round writes each of them."""


@attrs.frozen
class Mixture:
    """The running cluster, and what the tests do to it."""

    cluster: Cluster
    peer: str
    folder: Path

    @property
    def addresses(self) -> str:
        """``bootstrap.servers`` with both brokers."""
        return self.cluster.addresses

    def tool(self, name: str, *arguments: str, node: int = KAFKA) -> str:
        """Run one of Kafka's tools against a node; return what it prints."""
        address = self.cluster.node(node).place.address
        return tool(self.peer, name, "--bootstrap-server", address, *arguments)

    def make_topic(self, name: str, replicas: Sequence[Sequence[int]], **config: str) -> None:
        """Create a topic, and wait until its preferred leaders lead."""
        make_topic(self.addresses, name, replicas, config)
        self.await_leaders(name, [each[0] for each in replicas], replicas[0])

    def brokers(self) -> int:
        """Return the number of brokers that are alive."""
        return len(AdminClient({"bootstrap.servers": self.addresses}).list_topics(timeout=WAIT_S).brokers)

    def await_leaders(
        self, topic: str, leaders: Sequence[int], replicas: Sequence[int] = (KAFKA, OURS)
    ) -> None:
        """Wait until both brokers say that these nodes lead, with every replica in sync."""
        observer = Observer(self.cluster, topic)
        wanted = (tuple(leaders), (frozenset(replicas),) * len(leaders))

        def led() -> bool:
            states = [observer.topic_of(node) for node in self.cluster.brokers]
            return all(state is not None and (state.leaders, state.in_sync) == wanted for state in states)

        wait_for(led, lambda: f"{topic} led by {leaders}: {observer.describe()}")

    def lead(self, topic: str, node: int) -> None:
        """Make a node the leader of partition 0: its replicas in another order, then an election."""
        partition = ReassignablePartition(partition_index=0, replicas=[node, KAFKA + OURS - node])
        topics = [ReassignableTopic(name=topic, partitions=[partition])]
        with self.cluster.node(OURS).connect(WAIT_S) as connection:
            request = AlterPartitionReassignmentsRequest(topics=topics)
            answer = connection.ask(request, AlterPartitionReassignmentsResponse, 0)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
        observer = Observer(self.cluster, topic)
        wait_for(lambda: not observer.elect_preferred(1), lambda: f"no election: {observer.describe()}")
        self.await_leaders(topic, [node])


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixture]:
    """The cluster, with both brokers registered."""
    folder = tmp_path_factory.mktemp("mixture")
    peer = peer_script()
    members = [Member("kafka", ("broker", "controller"), SETTINGS), Member("blumfeld", ("broker",), SETTINGS)]
    cluster = mixed_cluster(members, Path(peer), folder)
    try:
        cluster.start()
        made = Mixture(cluster, peer, folder)
        wait_for(lambda: made.brokers() == 2, lambda: "a broker is absent")
        yield made
    finally:
        cluster.stop()


def test_kafkas_tools_see_one_cluster(mixture: Mixture) -> None:
    """Topics are made at one broker and looked at by the other; both know the quorum."""
    topics = "org.apache.kafka.tools.TopicCommand"
    for node in (KAFKA, OURS):
        mixture.tool(
            topics, "--create", "--topic", f"by-{node}", "--replica-assignment", "1:2,2:1", node=node
        )
        mixture.await_leaders(f"by-{node}", [KAFKA, OURS])
    described = [
        mixture.tool(topics, "--describe", "--topic", "by-1,by-2", node=node) for node in (KAFKA, OURS)
    ]
    assert described[0] == described[1]
    assert described[0].count("Isr: 1,2") + described[0].count("Isr: 2,1") == 4
    quorum = "org.apache.kafka.tools.MetadataQuorumCommand"
    status = mixture.tool(quorum, "describe", "--status", node=OURS)
    assert ["LeaderId:", str(KAFKA)] in [line.split() for line in status.splitlines()]
    replication = mixture.tool(quorum, "describe", "--replication", node=OURS)
    assert {line.split()[0]: line.split()[-1] for line in replication.splitlines()[1:]} == {
        "1": "Leader",
        "2": "Observer",
    }
    mixture.tool(topics, "--delete", "--topic", "by-1", node=OURS)
    mixture.tool(topics, "--delete", "--topic", "by-2", node=KAFKA)
    gone = [Observer(mixture.cluster, f"by-{node}") for node in (KAFKA, OURS)]
    wait_for(
        lambda: not any(observer.topic_of(node) for observer in gone for node in mixture.cluster.brokers),
        lambda: "a topic is still there",
    )


def test_a_partition_moves_from_kafkas_broker_to_ours_and_back(mixture: Mixture) -> None:
    """Its only replica moves by Kafka's tool. The broker that gave it up has no directory of it."""
    mixture.make_topic("moved", [[KAFKA]])
    written = [f"value {number}" for number in range(2000)]
    produce(mixture.addresses, "moved", written)
    move = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    observer = Observer(mixture.cluster, "moved")
    for turn, (to, by) in enumerate([(OURS, KAFKA), (KAFKA, OURS)]):
        plan = mixture.folder / f"move-{turn}.json"
        partition = {"topic": "moved", "partition": 0, "replicas": [to]}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        arguments = ("--reassignment-json-file", str(plan))
        mixture.tool(move, *arguments, "--execute", node=by)
        left = mixture.folder / f"node{KAFKA + OURS - to}" / "data" / "moved-0"
        wait_for(lambda left=left: not left.exists(), observer.describe)  # type: ignore[misc]
        assert "is completed" in mixture.tool(move, *arguments, "--verify", node=by)
        assert values(mixture.addresses, "moved") == written
        written.append(f"after move {turn}")
        produce(mixture.addresses, "moved", written[-1:])
    assert values(mixture.addresses, "moved") == written


def test_kafkas_tool_elects_the_preferred_leader(mixture: Mixture) -> None:
    """The leader that a stopped node gave away comes back to it, at the word of either broker."""
    mixture.make_topic("preferred", [[OURS, KAFKA]])
    node = mixture.cluster.node(OURS)
    node.terminate()
    assert node.await_end(WAIT_S)
    node.launch()
    node.await_ready()
    observer = Observer(mixture.cluster, "preferred")
    assert observer.await_whole(WAIT_S)
    elect = (
        "org.apache.kafka.tools.LeaderElectionCommand",
        "--election-type",
        "preferred",
        "--all-topic-partitions",
    )
    mixture.tool(*elect, node=OURS)
    mixture.await_leaders("preferred", [OURS])


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_batches_are_replicated_both_ways(mixture: Mixture, codec: str) -> None:
    """Each broker leads, takes batches of the codec, and is then read as the follower that took over."""
    topic = f"codec-{codec}"
    mixture.make_topic(topic, [[KAFKA, OURS]])
    written: list[str] = []
    for leader in (KAFKA, OURS, KAFKA):
        mixture.lead(topic, leader)
        assert values(mixture.addresses, topic) == written
        written += [f"{len(written) + nth} " + "x" * 50 for nth in range(300)]
        produce(mixture.addresses, topic, written[-300:], **{"compression.type": codec})
        assert values(mixture.addresses, topic) == written
    logs = [mixture.folder / f"node{node}/data/{topic}-0/00000000000000000000.log" for node in (KAFKA, OURS)]
    wait_for(lambda: _same_bytes(logs), lambda: f"replicas differ: {logs}")


def _same_bytes(paths: Sequence[Path]) -> bool:
    first, *others = (path.read_bytes().rstrip(b"\0") for path in paths)
    return bool(first) and all(other == first for other in others)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_committed_offsets_go_with_the_coordinator(mixture: Mixture, protocol: str) -> None:
    """A member reads and commits while __consumer_offsets is led by Kafka's broker, by ours and by Kafka's again."""
    topic, group = f"read-{protocol}", f"group-{protocol}"
    mixture.make_topic(topic, [[KAFKA, OURS]])
    config = {"bootstrap.servers": mixture.addresses, "group.id": group, "group.protocol": protocol}
    member = Consumer({**config, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    seen = 0
    try:
        for turn, leader in enumerate((KAFKA, OURS, KAFKA, OURS)):
            if turn:
                mixture.lead("__consumer_offsets", leader)
            produce(mixture.addresses, topic, [f"turn {turn} record {nth}" for nth in range(100)])
            seen += len(take(member, 100))
            commit(member)
            assert seen == 100 * (turn + 1), "the member read again what it had, or not all"
            assert committed(mixture.addresses, group, topic) == seen
        mixture.lead("__consumer_offsets", KAFKA)
        said = mixture.tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--describe",
            "--group",
            group,
            node=OURS,
        )
        row = next(line.split() for line in said.splitlines() if line.startswith(group))
        assert row[1:6] == [topic, "0", str(seen), str(seen), "0"]
    finally:
        member.close()


def test_a_compacted_topic_is_led_by_each_side(mixture: Mixture) -> None:
    """Each broker cleans its own log. The newest value of every key stays at its offset, whichever one leads."""
    topic = "compacted"
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "1000",
        "delete.retention.ms": "60000",
    }
    mixture.make_topic(topic, [[KAFKA, OURS]], **config)
    keys = [f"key {nth}" for nth in range(KEYS)]
    newest: dict[str, tuple[int, str]] = {}
    written = 0
    for turn, leader in enumerate((KAFKA, OURS, KAFKA)):
        mixture.lead(topic, leader)
        for part in range(3):
            latest = [f"turn {turn} part {part} {key}" for key in keys]
            produce(mixture.addresses, topic, latest, keys)
            newest |= {key: (written + nth, latest[nth]) for nth, key in enumerate(keys)}
            written += KEYS
            time.sleep(1.1)  # segment.ms: the next batch begins a segment, and this one can be cleaned
        produce(mixture.addresses, topic, ["the last one"], ["rolls"])
        newest["rolls"] = (written, "the last one")
        written += 1

        wait_for(
            lambda: len(read(mixture.addresses, topic)) <= 2 * KEYS,
            lambda: f"the leader did not clean: {read(mixture.addresses, topic)}",
        )
    for leader in (KAFKA, OURS):
        mixture.lead(topic, leader)
        records = read(mixture.addresses, topic)
        assert {key: (offset, value) for offset, key, value in records} == newest


@pytest.mark.parametrize("coordinator", [KAFKA, OURS], ids=["by-kafka", "by-ours"])
def test_transactions_end_in_a_partition_that_changes_sides(mixture: Mixture, coordinator: int) -> None:
    """The follower of an open transaction leads when its marker comes, whichever broker coordinates."""
    topic = f"paid-{coordinator}"
    mixture.make_topic(topic, [[KAFKA, OURS]])
    config = {"bootstrap.servers": mixture.addresses, "transactional.id": topic, "log_level": 0}
    producer = Producer({**config, "transaction.timeout.ms": 120_000})
    producer.init_transactions(WAIT_S)  # makes the coordinators' topic
    mixture.lead(TRANSACTIONS, coordinator)
    kept: list[str] = []
    for turn, leader in enumerate((OURS, KAFKA, OURS, KAFKA)):
        producer.begin_transaction()
        producer.produce(topic, f"turn {turn}", partition=0)
        assert producer.flush(WAIT_S) == 0
        mixture.lead(topic, leader)
        assert values(mixture.addresses, topic) == kept, "the transaction is open"
        if turn < 2:
            producer.commit_transaction(WAIT_S)
            kept.append(f"turn {turn}")
        else:
            producer.abort_transaction(WAIT_S)
        produce(mixture.addresses, topic, [f"plain {turn}"])
        kept.append(f"plain {turn}")
        wait_for(
            lambda: values(mixture.addresses, topic) == kept,
            lambda: f"{values(mixture.addresses, topic)}, not {kept}",
        )
