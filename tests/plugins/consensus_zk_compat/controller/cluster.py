"""Candidates on one simulated ZooKeeper, with brokers that are znodes and pushes that are lists."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.spi.cluster import Endpoint, PartitionImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import NodeExistsError, Operation, ZooKeeper
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.controller.candidate import Candidate
from blumfeld_consensus_zk_compat.ports import Pushes, ReplicaFailed, StaleController
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import BrokerNode, encode_broker
from blumfeld_consensus_zk_compat.tree.forms_topics import StateNode, decode_state
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from blumfeld_kit.fakes.zookeeper_session import SimulatedSession
from tests.broker.harness import Quiet

TIMEOUT_MS = 6_000.0
M = TypeVar("M", bound=Message)
StopAnswer = Callable[[int, TopicPartition], ErrorCode | None]


class NotedPushes:
    """``Pushes`` that notes its calls. A broker answers StopReplica unless the test holds its answer."""

    def __init__(self, node: Node, replica_failed: ReplicaFailed, stale_controller: StaleController) -> None:
        self.node = node
        self.replica_failed = replica_failed
        self.stale_controller = stale_controller
        self.controller: ControllerId | None = None
        self.image = MetadataImage()
        self.begun_with: dict[str, dict[int, PartitionImage]] = {}
        self.changes: list[Change] = []
        self.changed_before: list[Change] = []
        self.calls: list[tuple[Any, ...]] = []
        self.held: list[tuple[int, Completion[dict[TopicPartition, ErrorCode]]]] = []
        self.stopped = False

    def begin(self, controller: ControllerId, image: MetadataImage, changes: Sequence[Change] = ()) -> None:
        self.controller, self.image = controller, image
        self.changed_before = list(changes)
        self.begun_with = {name: dict(topic.partitions) for name, topic in image.topics.items()}
        self.calls.append(("begin",))
        self.node.cluster.told(self, None)

    def committed(self, change: Change) -> None:
        assert self.controller is not None, "nothing is pushed before the take-over has ended"
        assert not self.stopped
        self.changes.append(change)
        self.node.cluster.told(self, change)

    def broker_came(self, broker_id: int) -> None:
        assert broker_id in self.image.brokers
        self.calls.append(("came", broker_id))

    def broker_went(self, broker_id: int) -> None:
        assert broker_id not in self.image.brokers
        self.calls.append(("went", broker_id))
        held, self.held = self.held, [(to, stop) for to, stop in self.held if to != broker_id]
        for to, stop in held:
            if to == broker_id:
                stop.fail(OSError("the broker is gone"))

    def resend(self, broker_id: int) -> None:
        self.calls.append(("resend", broker_id))

    def stop_replicas(
        self, broker_id: int, partitions: Sequence[TopicPartition], *, delete: bool
    ) -> Completion[dict[TopicPartition, ErrorCode]]:
        assert self.controller is not None
        self.calls.append(("stop", broker_id, tuple(partitions), delete))
        answer: Completion[dict[TopicPartition, ErrorCode]] = Completion()
        self.node.cluster.stop_replicas(self, broker_id, partitions, answer, delete=delete)
        return answer

    def pushed(self, broker_id: int) -> Completion[None]:
        return Completion.of(None)

    def stop(self) -> None:
        self.stopped = True
        held, self.held = self.held, []
        for _, stop in held:
            stop.fail(OSError("the controller has ended"))


def _give(
    answer: Completion[dict[TopicPartition, ErrorCode]], given: dict[TopicPartition, ErrorCode]
) -> None:
    if not answer.done:
        answer.complete(given)


class Log(Quiet):
    """An event log that finds its defects."""

    def defects(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Events of defects: errors with an exception."""
        return [event for event in self.events if "exc_info" in event[2]]


class Node:
    """One candidate with its session."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        # Chance of its own for each process: it makes the ids of topics.
        self.runtime = FakeRuntime(next(cluster.process_seeds), loop=cluster.loop)
        self.log = Log()
        self.pushes: NotedPushes | None = None
        self.terms: list[NotedPushes] = []
        self.seen: list[int | None] = []
        self.refused: list[str] = []
        self.unreadable: dict[str, str] = {}
        self.session: SimulatedSession
        self.candidate: Candidate
        self.new_session()

    def new_session(self) -> None:
        """Make a session and its candidate, as a node does at its start and after an expiry."""
        self.session = self.cluster.zookeeper.session(self.runtime, timeout_ms=TIMEOUT_MS)
        self.candidate = Candidate(
            zookeeper=self.cluster.wrapped(self, self.session),
            runtime=self.runtime,
            events=self.log,
            node_id=self.id,
            config=BrokerConfig(self.cluster.config),
            make_pushes=self._make_pushes,
            seen=self.seen.append,
            refused=self.refused.append,
            unreadable=self.unreadable.__setitem__,
            section_kinds=self.cluster.section_kinds,
        )

    def _make_pushes(self, *, replica_failed: ReplicaFailed, stale_controller: StaleController) -> Pushes:
        self.pushes = NotedPushes(self, replica_failed, stale_controller)
        self.terms.append(self.pushes)
        return self.pushes

    def begin(self) -> None:
        self.runtime.spawn(self._begin(), "begin")

    async def _begin(self) -> None:
        await self.session.connect(60_000)
        self.candidate.begin()

    @property
    def works(self) -> bool:
        """Whether it is the controller, and has taken over."""
        return self.pushes is not None and self.pushes.controller is not None and not self.pushes.stopped

    @property
    def image(self) -> MetadataImage:
        assert self.candidate.term is not None
        return self.candidate.term.active.state.image

    def ask(self, command: Message) -> Completion[Message]:
        reply: Completion[Message] = Completion()
        self.candidate.submit(command, reply)
        return reply


class Cluster:
    """A simulated ZooKeeper, candidates, and a session for each broker's znode."""

    def __init__(
        self,
        nodes: int = 1,
        config: dict[str, Any] | None = None,
        *,
        servers: int = 1,
        seed: int = 0,
        request_bytes_max: int = 0xFFFFF,
        section_kinds: SectionKinds = NO_SECTIONS,
    ) -> None:
        self.process_seeds = itertools.count(seed * 1_000 + 1)
        self.runtime = FakeRuntime(seed)
        self.loop = self.runtime.loop
        self.config = config
        self.section_kinds = section_kinds
        self.zookeeper = SimulatedZooKeeper(
            self.runtime, servers=servers, request_bytes_max=request_bytes_max
        )
        self.brokers: dict[int, SimulatedSession] = {}
        self.answer: StopAnswer = lambda _, __: ErrorCode.NONE
        """What a broker answers to StopReplica; ``None``: it doesn't, until the test does."""
        self.by_hand = self.zookeeper.session(self.runtime, timeout_ms=600_000)
        self.runtime.run(self._prepare())
        self.nodes = [self.make_node(number + 1) for number in range(nodes)]

    def make_node(self, node_id: int) -> Node:
        return Node(self, node_id)

    def wrapped(self, _node: Node, session: SimulatedSession) -> ZooKeeper:
        """The session as a candidate has it."""
        return session

    def told(self, pushes: NotedPushes, change: Change | None) -> None:
        """A controller tells the brokers: of everything (``None``), or of a change."""
        if change is None:
            for name, topic in pushes.image.topics.items():
                for number, partition in topic.partitions.items():
                    assert partition.partition_epoch <= self.version(name, number), (
                        f"{name}-{number} is ahead"
                    )

    async def _prepare(self) -> None:
        await self.by_hand.connect(10_000)
        for path in paths.PERSISTENT:
            for above in (*paths.above(path), path):
                try:
                    await self.by_hand.create(above)
                except NodeExistsError:
                    continue

    # What a test does

    def advance(self, ms: float = 200.0) -> None:
        """Let time pass, in steps, so that an escaped error is raised near its cause."""
        self.runtime.advance(ms)
        for node in self.nodes:
            for where, error in node.runtime.defects:
                raise AssertionError(f"defect in {where}") from error
            for _, event, values in node.log.defects():
                raise AssertionError(event) from values["exc_info"]

    def begin(self, *brokers: int) -> Node:
        """Start brokers 1, 2 and 3, or these; then the candidates. The controller, when it is at work."""
        for broker in brokers or (1, 2, 3):
            self.start_broker(broker)
        self.advance()
        for node in self.nodes:
            node.begin()
        self.advance(500)
        return self.controller

    @property
    def controller(self) -> Node:
        [node] = [node for node in self.nodes if node.works]
        return node

    def do(self, *operations: Operation) -> None:
        """Write by hand."""

        async def write() -> None:
            await self.by_hand.multi(operations)

        self.runtime.run(write())

    def start_broker(self, broker_id: int, port: int = 9092) -> SimulatedSession:
        """A broker's process registers."""
        session = self.brokers[broker_id] = self.zookeeper.session(self.runtime, timeout_ms=TIMEOUT_MS)

        async def register() -> None:
            await session.connect(60_000)
            node = BrokerNode(endpoints=(Endpoint("PLAINTEXT", "127.0.0.1", port),))
            await session.create(paths.broker(broker_id), encode_broker(node), ephemeral=True)

        self.runtime.run(register())
        return session

    def stop_broker(self, broker_id: int) -> None:
        """Its session ends."""
        self.zookeeper.expire(self.brokers.pop(broker_id).session_id)

    def ask(self, command: Message, expected: type[M], ms: float = 300.0) -> M:
        """Have the controller do something, and return its answer."""
        reply = self.controller.ask(command)
        self.advance(ms)
        response = reply.result()
        assert isinstance(response, expected)
        return response

    def create(self, name: str, *replicas: Sequence[int]) -> ErrorCode:
        """Create a topic with these replicas."""
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(replicas)
        ]
        wanted = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        response = self.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse)
        return ErrorCode(response.topics[0].error_code)

    def delete(self, name: str) -> ErrorCode:
        """Delete a topic."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        return ErrorCode(self.ask(request, DeleteTopicsResponse).responses[0].error_code)

    def stop_replicas(
        self,
        pushes: NotedPushes,
        broker_id: int,
        partitions: Sequence[TopicPartition],
        answer: Completion[dict[TopicPartition, ErrorCode]],
        *,
        delete: bool,
    ) -> None:
        """A broker is asked to stop replicas."""
        answers = {at: self.answer(broker_id, at) for at in partitions}
        given = {at: error for at, error in answers.items() if error is not None}
        if len(given) < len(answers):
            pushes.held.append((broker_id, answer))
        else:
            self.runtime.call_later(5.0, partial(_give, answer, given))

    # What the tree has

    def there(self, path: str) -> bool:
        return self.zookeeper.tree.exists(path) is not None

    def state(self, topic: str, partition: int = 0) -> StateNode:
        path = paths.state(topic, partition)
        return decode_state(path, self.zookeeper.tree.get(path).data)

    def version(self, topic: str, partition: int = 0) -> int:
        return self.zookeeper.tree.get(paths.state(topic, partition)).stat.version

    def check_image(self) -> None:
        """The controller's image is what the tree says."""
        for name, topic in self.controller.image.topics.items():
            for number, partition in topic.partitions.items():
                state = self.state(name, number)
                found = (state.leader, tuple(state.isr), state.leader_epoch, self.version(name, number))
                epochs = (partition.leader_epoch, partition.partition_epoch)
                assert found == (partition.leader, partition.isr, *epochs), (name, number)
