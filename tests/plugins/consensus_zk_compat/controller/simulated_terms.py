"""Several controllers on one simulated ZooKeeper, under faults from a seed, and what must never be.

``python -m tests.plugins.consensus_zk_compat.controller.simulated_terms FIRST LAST`` runs a range of seeds.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from blumfeld.metadata.partitions.directories import LOST_DIRECTORY, directory_of
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import Check, Create, Delete, Operation, OperationResult, Set, ZooKeeper
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from blumfeld.wire.messages.controlled_shutdown import ControlledShutdownRequest
from blumfeld.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_topics import StateNode, decode_state, decode_topic
from blumfeld_kit.fakes.znodes import Stamp
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from tests.plugins.consensus_zk_compat.controller.cluster import Cluster, Node, NotedPushes

NODES, BROKERS = 3, (1, 2, 3, 4)
NAMES = ("orders", "trades", "quotes")
FAULTS_MS = 40_000.0
REST_MS = 60_000.0
Key = tuple[bytes, int]


class Oracle:
    """Looks at every write that the ensemble decides, and at everything that a controller tells the brokers."""

    def __init__(self, cluster: SimulatedTerms) -> None:
        self.cluster = cluster
        self.winners: dict[int, int] = {}
        """Controller epoch → the session that was elected."""
        self.states: dict[Key, dict[int, StateNode]] = {}
        """Partition → version → state, of topics that are or were there."""
        self.leaders: dict[tuple[bytes, int, int], int] = {}
        """Partition and leader epoch → the leader that brokers were told of."""
        self.asked: dict[tuple[bytes, int, int], set[int]] = {}
        """Partition and leader epoch → members of the ISRs that its leader has asked for: they have everything."""
        self.blocks: dict[int, int] = {}
        """First producer id of a block → broker."""
        self._change = cluster.zookeeper.tree.change
        cluster.zookeeper.tree.change = self.change  # type: ignore[method-assign]

    def change(
        self, operations: Sequence[Operation], stamp: Stamp
    ) -> tuple[list[Operation], list[OperationResult]]:
        """A write is decided."""
        done, results = self._change(operations, stamp)
        for operation in done:
            self._look(operation, stamp)
        self.cluster.decided(stamp.session_id, done)
        return done, results

    def _look(self, operation: Operation, stamp: Stamp) -> None:
        tree = self.cluster.zookeeper.tree
        if isinstance(operation, Set) and operation.path == paths.CONTROLLER_EPOCH:
            epoch = int(operation.data)
            assert epoch not in self.winners, f"epoch {epoch} has two controllers"
            assert epoch == max(self.winners, default=0) + 1
            self.winners[epoch] = stamp.session_id
        is_of_a_controller = operation.path.startswith((paths.TOPICS + "/", paths.PRODUCER_IDS))
        if is_of_a_controller and stamp.session_id != self.cluster.by_hand.session_id:
            epoch = int(tree.get(paths.CONTROLLER_EPOCH).data)
            assert self.winners[epoch] == stamp.session_id, (
                f"{operation.path} was written by a deposed controller"
            )
        if isinstance(operation, Create | Set) and operation.path.endswith("/state"):
            self._state(operation, tree.get(operation.path).stat.version)

    def _state(self, operation: Create | Set, version: int) -> None:
        _, _, _, name, _, number, _ = operation.path.split("/")
        topic = decode_topic(name, self.cluster.zookeeper.tree.get(paths.topic(name)).data)
        assert topic.topic_id is not None
        state = decode_state(operation.path, operation.data)
        replicas = topic.partitions[int(number)]
        assert set(state.isr) <= set(replicas), f"{operation.path}: {state} of {replicas}"
        assert state.isr, f"{operation.path}: no replica has everything"
        assert state.leader == -1 or state.leader in state.isr, f"{operation.path}: {state}"
        history = self.states.setdefault((topic.topic_id, int(number)), {})
        assert version not in history, f"{operation.path}: version {version} twice"
        before = history.get(version - 1)
        if before is not None:
            assert state.leader_epoch >= before.leader_epoch, f"{operation.path}: {before} → {state}"
            if state.leader != before.leader:
                assert state.leader_epoch > before.leader_epoch, f"{operation.path}: {before} → {state}"
                asked = self.asked.get((topic.topic_id, int(number), before.leader_epoch), ())
                assert state.leader in (-1, *before.isr, *asked), f"{operation.path}: {before} → {state}"
        history[version] = state

    def told(self, pushes: NotedPushes, change: Change | None) -> None:
        """A controller tells the brokers."""
        if change is None:
            topics = pushes.image.topics.values()
            told = [
                (topic.topic_id, partition) for topic in topics for partition in topic.partitions.values()
            ]
        else:
            told = [(step.topic_id, step.after) for step in change.partitions if step.after is not None]
        for topic_id, partition in told:
            number = partition.partition
            if partition.partition_epoch < 0:
                continue
            state = self.states[topic_id, number].get(partition.partition_epoch)
            assert state is not None, "the brokers are told what the tree hasn't"
            assert (state.leader, tuple(state.isr)) == (partition.leader, partition.isr)
            assert state.leader_epoch == partition.leader_epoch
            key = (topic_id, number, partition.leader_epoch)
            assert self.leaders.setdefault(key, partition.leader) == partition.leader, (
                f"{key} has two leaders"
            )


class SimulatedTerms(Cluster):
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.oracle: Oracle | None = None
        self.crash_in = -1
        """The node whose write this is, counted from now, crashes behind it."""
        self.crashes = self.expiries = self.fenced = self.writes = 0
        self.waiting: list[tuple[Node, Message, Completion[Message]]] = []
        self.healing = False
        self.mute: set[int] = set()
        """Brokers that don't answer StopReplica."""
        self.lost_disks: set[int] = set()
        servers = self.random.choice((1, 3, 3))
        super().__init__(
            NODES,
            {"leader.imbalance.check.interval.seconds": "5"},
            servers=servers,
            seed=seed,
            # With little room in a request a change takes several, and a crash comes between them.
            request_bytes_max=self.random.choice((1_200, 1_200, 4_000, 0xFFFFF)),
        )
        self.oracle = Oracle(self)
        self.answer = self._answer

    # Hooks of the cluster

    def told(self, pushes: NotedPushes, change: Change | None) -> None:
        if self.oracle is not None:
            self.oracle.told(pushes, change)

    def decided(self, session_id: int, operations: Sequence[Operation]) -> None:
        self.writes += 1
        if self.crash_in < 0 or not any(isinstance(operation, Check) for operation in operations):
            return
        self.crash_in -= 1
        if self.crash_in < 0:
            for node in list(self.nodes):
                if node.session.session_id == session_id:
                    self.crash(node)

    def _answer(self, broker_id: int, at: TopicPartition) -> ErrorCode | None:
        if broker_id in self.mute and not self.healing:
            return None
        return ErrorCode.NONE

    def stop_replicas(
        self,
        pushes: NotedPushes,
        broker_id: int,
        partitions: Sequence[TopicPartition],
        answer: Completion[dict[TopicPartition, ErrorCode]],
        *,
        delete: bool,
    ) -> None:
        tree = self.zookeeper.tree
        assert pushes.controller is not None
        if delete and int(tree.get(paths.CONTROLLER_EPOCH).data) == pushes.controller.epoch:
            for at in partitions:
                assert self.there(paths.deletion(at.topic)), (
                    f"{at} is deleted on {broker_id}, and nobody asked for it"
                )
        super().stop_replicas(pushes, broker_id, partitions, answer, delete=delete)

    # Faults

    def crash(self, node: Node) -> None:
        """Its process is gone; its session stays until its timeout. The next process comes some seconds later."""
        self.crashes += 1
        self.fenced += node.candidate.counts.fenced_writes
        self.nodes.remove(node)
        node.runtime.crash(power_cut=False)
        self.runtime.call_later(self.random.uniform(10, 12_000), partial(self._start_node, node.id))

    def _start_node(self, node_id: int) -> None:
        node = self.make_node(node_id)
        self.nodes.append(node)
        node.begin()

    def renew(self, node: Node) -> None:
        """A node whose session is over begins another one, as the node does."""
        if node in self.nodes:
            self.fenced += node.candidate.counts.fenced_writes
            node.candidate.stop()
            node.new_session()
            node.begin()

    def fault(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._expire,
            self._pause,
            self._crash_soon,
            self._disconnect,
            self._lose_answer,
            self._slow,
            self._delete_controller,
            self._stop_broker,
            self._bounce_broker,
            self._mute_broker,
            self._ensemble,
            self._lose_replica,
            self._mark_by_hand,
        ]
        self.random.choice(kinds)()

    def _any_node(self) -> Node | None:
        """A node; the controller more often than the others."""
        works = [node for node in self.nodes if node.candidate.term is not None]
        if works and self.random.random() < 0.7:
            return works[0]
        return self.random.choice(self.nodes) if self.nodes else None

    def _expire(self) -> None:
        node = self._any_node()
        if node is not None and self.zookeeper.leader is not None:
            session_id = node.session.session_id
            if self.zookeeper.is_alive(session_id):
                self.expiries += 1
                self.zookeeper.expire(session_id)

    def _pause(self) -> None:
        node = self._any_node()
        if node is not None:
            node.session.pause()
            self.runtime.call_later(self.random.uniform(10, 15_000), node.session.resume)

    def _crash_soon(self) -> None:
        self.crash_in = self.random.randrange(6)

    def _disconnect(self) -> None:
        node = self._any_node()
        if node is not None:
            node.session.disconnect()

    def _lose_answer(self) -> None:
        node = self._any_node()
        if node is not None:
            node.session.lose_answers()

    def _slow(self) -> None:
        node = self._any_node()
        if node is not None:
            node.session.slow_ms = self.random.choice((0.0, 5.0, 200.0))

    def _delete_controller(self) -> None:
        if self.there(paths.CONTROLLER):
            self._by_hand(Delete(paths.CONTROLLER))

    def _by_hand(self, *operations: Operation) -> None:
        self.by_hand.multi(operations)

    def _stop_broker(self) -> None:
        if len(self.brokers) > 1 and self.zookeeper.leader is not None:
            broker = self.random.choice(sorted(self.brokers))
            self._end_broker(self.brokers.pop(broker))
            self.runtime.call_later(self.random.uniform(1, 10_000), partial(self._start_again, broker))

    def _end_broker(self, session: SimulatedSession) -> None:
        session.cut()
        if self.zookeeper.leader is not None and self.zookeeper.is_alive(session.session_id):
            self.zookeeper.expire(session.session_id)

    def _bounce_broker(self) -> None:
        if self.brokers and self.zookeeper.leader is not None:
            broker = self.random.choice(sorted(self.brokers))
            self._end_broker(self.brokers.pop(broker))
            self._start_again(broker)

    def _start_again(self, broker: int) -> None:
        if broker not in self.brokers:
            self.begin_broker(broker)

    def begin_broker(self, broker: int) -> None:
        """Register within the loop; again until it is done, and after each expiry."""
        session = self.brokers[broker] = self.zookeeper.session(self.runtime, timeout_ms=20_000.0)
        self.runtime.spawn(self.register(session, broker), f"broker {broker}")

    def _lose_replica(self) -> None:
        """A broker answers LeaderAndIsr with KAFKA_STORAGE_ERROR for one of its replicas."""
        works = [node for node in self.nodes if node.works and node.image.topics]
        if not works or works[0].pushes is None:
            return
        image = works[0].image
        topic = image.topics[self.random.choice(sorted(image.topics))]
        partition = topic.partitions[self.random.randrange(len(topic.partitions))]
        broker = self.random.choice(partition.replicas)
        if broker in image.brokers:
            self.lost_disks.add(broker)
            works[0].pushes.replica_failed(broker, [TopicPartition(topic.name, partition.partition)])

    def _mark_by_hand(self) -> None:
        self._by_hand(Create(paths.deletion(self.random.choice((*NAMES, "unknown")))))

    def _mute_broker(self) -> None:
        broker = self.random.choice(BROKERS)
        self.mute.symmetric_difference_update({broker})

    def _ensemble(self) -> None:
        kind = self.random.randrange(3)
        if kind == 0 and self.zookeeper.leader is not None:
            self.zookeeper.lose_leader()
        elif kind == 1:
            self.zookeeper.hang(self.random.uniform(1, 3_000))
        else:
            self.zookeeper.lag(
                self.random.randrange(len(self.zookeeper.servers)), self.random.uniform(0, 300)
            )

    # Work

    def work(self) -> None:
        controllers = [node for node in self.nodes if node.candidate.term is not None]
        if not controllers:
            return
        # Also a controller that is one no more, and doesn't know it.
        node = self.random.choice(controllers)
        command = self.random.choice(
            (
                self._create,
                self._create,
                self._delete,
                self._grow,
                self._reassign,
                self._alter_isr,
                self._alter_isr,
                self._alter_isr,
                self._shut_down,
                self._allocate,
            )
        )(node)
        if command is not None:
            reply = node.ask(command)
            self.waiting.append((node, command, reply))
            reply.when_done(partial(self._answered, command))

    def _answered(self, command: Message, reply: Completion[Message]) -> None:
        if reply.error is not None:
            assert isinstance(reply.error, BrokerError)
            return
        response = reply.result()
        if isinstance(response, CreateTopicsResponse):
            for topic in response.topics:
                if topic.error_code == ErrorCode.NONE:
                    key = (topic.topic_id, 0)
                    assert self.oracle is not None
                    assert key in self.oracle.states, "a topic that was promised is not in the tree"
        elif isinstance(response, AllocateProducerIdsResponse) and response.error_code == ErrorCode.NONE:
            assert self.oracle is not None
            assert isinstance(command, AllocateProducerIdsRequest)
            start = response.producer_id_start
            assert start not in self.oracle.blocks, "a block of producer ids was given twice"
            self.oracle.blocks[start] = command.broker_id
        elif isinstance(response, DeleteTopicsResponse):
            return

    def _create(self, _: Node) -> Message:
        topic = CreatableTopic(
            name=self.random.choice(NAMES),
            num_partitions=self.random.choice((1, 3)),
            replication_factor=self.random.choice((1, 2, 3)),
        )
        return CreateTopicsRequest(topics=[topic])

    def _delete(self, _: Node) -> Message | None:
        if self.random.random() < 0.5:
            return None
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=self.random.choice(NAMES))])

    def _grow(self, node: Node) -> Message | None:
        topics = sorted(node.image.topics)
        if not topics:
            return None
        name = self.random.choice(topics)
        count = len(node.image.topics[name].partitions) + 1
        if count > 8:
            return None
        return CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)]
        )

    def _reassign(self, node: Node) -> Message | None:
        topics = sorted(node.image.topics)
        if not topics:
            return None
        name = self.random.choice(topics)
        number = self.random.randrange(len(node.image.topics[name].partitions))
        brokers = sorted(node.image.brokers)
        replicas = self.random.sample(brokers, min(len(brokers), self.random.choice((1, 2, 3)))) or None
        partition = ReassignablePartition(partition_index=number, replicas=replicas)
        return AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=[partition])]
        )

    def _alter_isr(self, node: Node) -> Message | None:
        """A leader asks for an ISR with every live replica, or without one; it may know an older state."""
        topics = sorted(node.image.topics)
        if not topics:
            return None
        topic = node.image.topics[self.random.choice(topics)]
        partition = topic.partitions[self.random.randrange(len(topic.partitions))]
        leader = node.image.brokers.get(partition.leader)
        if leader is None:
            return None
        isr = [r for r in partition.replicas if r in node.image.brokers and not _is_lost(partition, r)]
        if self.random.random() < 0.2 and not self.healing:
            isr = [replica for replica in isr if replica == partition.leader or self.random.random() < 0.5]
        older = self.random.choice((0, 0, 0, 1)) if not self.healing else 0
        wanted = RequestPartitionData(
            partition_index=partition.partition,
            leader_epoch=partition.leader_epoch,
            new_isr=isr,
            partition_epoch=partition.partition_epoch - older,
        )
        self._asks(topic.topic_id, wanted)
        topics_wanted = [RequestTopicData(topic_id=topic.topic_id, partitions=[wanted])]
        return AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.epoch - self.random.choice((0, 0, 0, 1)) * (not self.healing),
            topics=topics_wanted,
        )

    def _asks(self, topic_id: bytes, wanted: RequestPartitionData) -> None:
        assert self.oracle is not None
        key = (topic_id, wanted.partition_index, wanted.leader_epoch)
        self.oracle.asked.setdefault(key, set()).update(wanted.new_isr)

    def _shut_down(self, node: Node) -> Message | None:
        brokers = sorted(node.image.brokers)
        if len(brokers) < 2:
            return None
        broker = self.random.choice(brokers)
        self.runtime.call_later(self.random.uniform(100, 2_000), partial(self._stop_this, broker))
        return ControlledShutdownRequest(broker_id=broker, broker_epoch=node.image.brokers[broker].epoch)

    def _stop_this(self, broker: int) -> None:
        session = self.brokers.pop(broker, None)
        if session is None:
            return
        self._end_broker(session)
        self.runtime.call_later(self.random.uniform(1, 5_000), partial(self._start_again, broker))

    def _allocate(self, node: Node) -> Message | None:
        brokers = sorted(node.image.brokers)
        if not brokers:
            return None
        broker = self.random.choice(brokers)
        return AllocateProducerIdsRequest(broker_id=broker, broker_epoch=node.image.brokers[broker].epoch)

    # The run

    def run(self) -> None:
        for broker in BROKERS:
            self.start_broker(broker)
        for node in self.nodes:
            node.begin()
        end_ms = self.runtime.monotonic_ms() + FAULTS_MS
        pace = self.random.choice((20.0, 100.0, 400.0))
        while self.runtime.monotonic_ms() < end_ms:
            self.advance(self.random.uniform(0, pace))
            if self.random.random() < 0.15:
                self.fault()
            self.work()
            self._care()
        self._heal()
        self._check_rest()

    def _care(self) -> None:
        """Sessions that are over are begun anew, by nodes and by brokers."""
        for node in list(self.nodes):
            session_id = node.session.session_id
            if node.session.state.value == "expired" and session_id:
                self.renew(node)
        for broker, session in list(self.brokers.items()):
            if session.state.value == "expired":
                self.begin_broker(broker)

    def _heal(self) -> None:
        self.healing = True
        self.crash_in = -1
        self.mute.clear()
        for broker in sorted(self.lost_disks & self.brokers.keys()):
            self._end_broker(self.brokers.pop(broker))
        for node in self.nodes:
            node.session.slow_ms = 0.0
            node.session.answers_to_lose = 0
        end_ms = self.runtime.monotonic_ms() + REST_MS
        while self.runtime.monotonic_ms() < end_ms:
            self.advance(500)
            self._care()
            for broker in BROKERS:
                self._start_again(broker)
            for node in self.nodes:
                if node.pushes is not None:
                    self._answer_held(node.pushes)
            self._leaders_work()

    def _answer_held(self, pushes: NotedPushes) -> None:
        held, pushes.held = pushes.held, []
        for _, answer in held:
            if not answer.done:
                answer.fail(OSError("lost with its connection"))

    def _leaders_work(self) -> None:
        """Each leader brings its live replicas back."""
        for node in self.nodes:
            if not node.works or node.candidate.term is None:
                continue
            for topic in list(node.image.topics.values()):
                for partition in topic.partitions.values():
                    leader = node.image.brokers.get(partition.leader)
                    if leader is None or set(partition.isr) == set(partition.replicas):
                        continue
                    wanted = RequestPartitionData(
                        partition_index=partition.partition,
                        leader_epoch=partition.leader_epoch,
                        new_isr=[
                            r
                            for r in partition.replicas
                            if node.image.is_active(r) and not _is_lost(partition, r)
                        ],
                        partition_epoch=partition.partition_epoch,
                    )
                    self._asks(topic.topic_id, wanted)
                    node.ask(
                        AlterPartitionRequest(
                            broker_id=leader.broker_id,
                            broker_epoch=leader.epoch,
                            topics=[RequestTopicData(topic_id=topic.topic_id, partitions=[wanted])],
                        )
                    )

    def _check_rest(self) -> None:
        """Everything that was begun has been finished by somebody."""
        works = [node for node in self.nodes if node.works]
        assert len(works) == 1, f"{len(works)} controllers at the end"
        tree = self.zookeeper.tree
        assert tree.children(paths.DELETIONS) == (), "a deletion was left"
        topics = tree.children(paths.TOPICS)
        assert tree.children("/config/topics") == topics, "a topic was half deleted, or half created"
        alive = {int(name) for name in tree.children(paths.BROKERS)}
        assert alive == set(BROKERS)
        for name in topics:
            node = decode_topic(name, tree.get(paths.topic(name)).data)
            assert node.adding == node.removing == {}, f"a reassignment of {name} was left"
            for number, replicas in node.partitions.items():
                state = self.state(name, number)
                assert state.leader in replicas, f"{name}-{number} has no leader: {state} of {replicas}"
        self.check_image()
        assert sorted(works[0].image.topics) == sorted(topics)
        for asked, command, reply in self.waiting:
            assert reply.done or asked.runtime.dead, f"nobody answered {command}"
        self.fenced += sum(node.candidate.counts.fenced_writes for node in self.nodes)

    async def register(self, session: SimulatedSession, broker_id: int) -> None:
        """A broker's process registers, again until its session is the node's owner."""
        await register_broker(self, session, broker_id)

    def wrapped(self, _node: Node, session: SimulatedSession) -> ZooKeeper:
        return session


async def register_broker(cluster: SimulatedTerms, session: SimulatedSession, broker_id: int) -> None:
    """As a node does: an ephemeral node of an earlier session is waited for."""
    from blumfeld.spi.cluster import Endpoint
    from blumfeld.spi.zookeeper import NodeExistsError, SessionExpiredError, ZooKeeperError
    from blumfeld_consensus_zk_compat.tree.forms import BrokerNode, encode_broker

    node = BrokerNode(endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", 9092),))
    try:
        await session.connect(600_000)
    except (TimeoutError, ZooKeeperError):
        return
    while cluster.brokers.get(broker_id) is session:
        try:
            await session.create(paths.broker(broker_id), encode_broker(node), ephemeral=True)
        except NodeExistsError:
            if cluster.zookeeper.tree.exists(paths.broker(broker_id)) is not None:
                owner = cluster.zookeeper.tree.get(paths.broker(broker_id)).stat.ephemeral_owner
                if owner == session.session_id:
                    return
        except SessionExpiredError:
            return
        except ZooKeeperError:
            pass
        else:
            return
        pause: Completion[None] = Completion()
        cluster.runtime.call_later(500.0, lambda pause=pause: pause.complete(None))  # type: ignore[misc]
        await pause


def _is_lost(partition: PartitionImage, replica: int) -> bool:
    return bool(partition.directories) and directory_of(partition, replica) == LOST_DIRECTORY


def simulate(seed: int) -> SimulatedTerms:
    """One run; its world at the end."""
    terms = SimulatedTerms(seed)
    terms.run()
    return terms


def main(first: int, last: int) -> int:
    """Run seeds and print what was met."""
    totals: dict[str, Any] = {
        "seeds": 0,
        "failed": [],
        "crashes": 0,
        "expiries": 0,
        "fenced": 0,
        "elections": 0,
    }
    for seed in range(first, last):
        try:
            terms = simulate(seed)
        except (AssertionError, Exception) as error:
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            totals["failed"].append(seed)
            continue
        finally:
            totals["seeds"] += 1
        totals["crashes"] += terms.crashes
        totals["expiries"] += terms.expiries
        totals["fenced"] += terms.fenced
        totals["elections"] += 0 if terms.oracle is None else len(terms.oracle.winners)
        if not (seed + 1 - first) % 100:
            print(totals, flush=True)
    print(totals)
    return 1 if totals["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
