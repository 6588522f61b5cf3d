"""Three nodes that hold all replicas: one is killed, and produce is asked of each partition until it is served.

First the controller is killed, which is a broker, too, and leads partitions; then another broker. The metadata lies in
KRaft, or in a real ZooKeeper.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.testing.cluster import COMBINED, LOOPBACK, node_places
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld.wire.primitives import DecodeError
from blumfeld_kit.cluster import Cluster, Node
from campaigns.cluster.contenders import (
    KAFKA,
    Contender,
    kafka,
    kafka_on_zookeeper,
    this_build,
)
from campaigns.consensus import KRAFT, ZOOKEEPER
from campaigns.metadata_scale.directories import PARTITIONS_PER_TOPIC, REPLICAS, topic_of
from campaigns.metadata_scale.points import NotReachedError, active_voter
from campaigns.zookeeper_server import running, zookeeper_ensemble, zookeeper_settings

KILLED = ("controller", "broker")
NODES = 3
ASK_S = 30.0
POLL_S = 0.01
CHUNK_MIN, CHUNK_MAX = 20, 500
"""Partitions of one request: few while none of them serves, so that asking costs the nodes nothing."""
METADATA_VERSION, PRODUCE_VERSION, CREATE_VERSION, ELECT_VERSION = 9, 9, 5, 2
HEARTBEATS_PER_SESSION = 4.5
"""Kafka's defaults are 9 s and 2 s."""
SETTLE_S = 3.0
RECOVERY: Mapping[str, str] = {"num.recovery.threads.per.data.dir": "8"}
"""A killed broker of Apache Kafka recovers each of its logs before it is back. With one thread (the default of 3.9)
10,000 logs took more than three minutes. No figure contains this time: the clock stops before the broker starts."""
_AT_WORK = re.compile(r"(load_ms|take_over_ms)=(\d+)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+")
PHASES: Mapping[str, str] = {
    "elected": "elected as controller",
    "at work": "controller at work",
    "seen gone": "a broker went",
    "quorum leader": "leader of the metadata quorum",
    "process gone": "a broker's process is gone",
    "fell silent": "a broker fell silent and is fenced",
}
"""Lines of this build's log: the first of each, behind the kill, ends a phase."""
NOTICED = ("process gone", "fell silent")
"""Phases that are the detection in KRaft of this build."""

Partition = tuple[str, int]


class FailOver(msgspec.Struct, frozen=True):
    """One kill. Times are seconds from the kill."""

    killed: str
    """``controller`` or ``broker``."""
    gone_s: float
    """The detection: until its ephemeral node went. In KRaft, until the controller of this build says so, or another
    broker's metadata names it no more; at the latest when its first partition was served."""
    first_s: float
    """Until the first of its partitions was served."""
    served_s: float
    """Until all were."""
    led: int
    """Partitions that it led."""
    phases_s: dict[str, float]
    """Lines of this build's logs, by :data:`PHASES`."""
    at_work: str
    """The line in the next controller's log about its start."""
    main_cpu_s: float
    """CPU time of the main threads of those that live."""
    threads_cpu_s: float
    """CPU time of all their other threads."""

    @property
    def behind_s(self) -> float:
        """Until all were served, from the detection on."""
        return self.served_s - self.gone_s

    @property
    def take_over_s(self) -> dict[str, float]:
        """The next controller's ``load_ms`` and ``take_over_ms``, in seconds; nothing if it named none."""
        return {name: int(value) / 1000 for name, value in _AT_WORK.findall(self.at_work)}


class Serving(msgspec.Struct, frozen=True):
    """One contender with one consensus at one size."""

    contender: str
    consensus: str
    partitions: int
    session_timeout_ms: int
    created_s: float
    """From the first request for topics until all partitions were served."""
    failovers: tuple[FailOver, ...]


@contextmanager
def zookeeper_for(consensus: str, folder: Path) -> Iterator[str]:
    """Give the address of a ZooKeeper that runs, where the consensus needs one, else nothing."""
    with running(zookeeper_ensemble(folder)) if consensus == ZOOKEEPER else nullcontext("") as address:
        yield address


def contender_on(consensus: str, peer: Path | None, connect: str, session_timeout_ms: int) -> Contender:
    """Return the nodes of one contender.

    :param peer: the script that starts Apache Kafka; ``None``: nodes of this build
    :param connect: ``HOST:PORT/CHROOT`` of the ZooKeeper
    """
    heartbeat_ms = int(session_timeout_ms / HEARTBEATS_PER_SESSION)
    timeouts = {
        "broker.session.timeout.ms": str(session_timeout_ms),
        "broker.heartbeat.interval.ms": str(heartbeat_ms),
    }
    if peer is None:
        if consensus == ZOOKEEPER:
            return this_build(settings=zookeeper_settings(connect, session_timeout_ms))
        return this_build(settings=tuple(f'config."{name}"={value}' for name, value in timeouts.items()))
    if consensus == KRAFT:
        return kafka(peer, {**timeouts, **RECOVERY})
    more = tuple(f"{name}={value}" for name, value in RECOVERY.items())
    return Contender(KAFKA, {COMBINED: (*kafka_on_zookeeper(peer, connect, session_timeout_ms), *more)})


def measure_serving(
    consensus: str,
    peer: Path | None,
    folder: Path,
    partitions: int,
    *,
    rounds: int,
    session_timeout_ms: int,
    limit_s: float,
) -> Serving:
    """Measure one point. All processes have ended when this returns.

    :raises NotReachedError: a step took longer than ``limit_s``
    :raises NodeError: a node ended
    """
    with zookeeper_for(consensus, folder / "zookeeper") as address:
        connect = address and f"{address}/scale"
        contender = contender_on(consensus, peer, connect, session_timeout_ms)
        cluster = Cluster(contender.commands, node_places([LOOPBACK] * NODES), folder)
        scene = _Scene(cluster, connect, partitions, limit_s)
        try:
            cluster.start()
            created_s = scene.create()
            kills = [killed for _ in range(rounds) for killed in KILLED]
            last = len(kills) - 1
            failovers = tuple([scene.fail_over(killed, again=at < last) for at, killed in enumerate(kills)])
            return Serving(contender.name, consensus, partitions, session_timeout_ms, created_s, failovers)
        finally:
            for node in cluster.nodes:
                if node.is_up:
                    node.kill()


class _Scene:
    """Three nodes, and the partitions that they hold."""

    def __init__(self, cluster: Cluster, connect: str, partitions: int, limit_s: float) -> None:
        self._cluster = cluster
        self._connect = connect
        self._limit_s = limit_s
        self._partitions = [
            (topic_of(number // PARTITIONS_PER_TOPIC), number % PARTITIONS_PER_TOPIC)
            for number in range(partitions)
        ]

    def create(self) -> float:
        """Create all topics; return the time until each partition was served."""
        began = time.monotonic()
        counts: dict[str, int] = {}
        for topic, _ in self._partitions:
            counts[topic] = counts.get(topic, 0) + 1
        for topic, count in counts.items():
            self._until(partial(self._created, topic, count), f"the creation of {topic}")
        probe = Probe(self._cluster.nodes, self._partitions)
        self._until(probe.ask, "the first produce to all partitions")
        return time.monotonic() - began

    def _created(self, topic: str, count: int) -> bool:
        wanted = CreatableTopic(name=topic, num_partitions=count, replication_factor=REPLICAS)
        with _connect(self._controller(), self._limit_s) as connection:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(self._limit_s * 1000))
            answer = connection.ask(request, CreateTopicsResponse, CREATE_VERSION)
        error = answer.topics[0].error_code
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER):
            raise NotReachedError(f"{topic} was not created: {ErrorCode(error).name}")
        return error != ErrorCode.NOT_CONTROLLER

    def fail_over(self, killed: str, *, again: bool) -> FailOver:
        """Kill a node, behind the time when all replicas are in sync.

        :param again: start it again: another kill follows
        """
        self._settle()
        controller = self._controller()
        victim = controller
        if killed == "broker":
            victim = next(node for node in self._cluster.nodes if node is not controller)
        living = [node for node in self._cluster.nodes if node is not victim]
        led = [at for at, leader in self._leaders(controller).items() if leader == victim.place.id]
        cpu_before = _cpu(living)
        marks = {node: node.log_path.stat().st_size for node in living}
        with self._gone(victim, living[0]) as gone:
            began, began_at = time.monotonic(), time.time()
            victim.kill()
            probe = Probe(living, led)
            self._until(lambda: gone.look() and probe.ask(), "produce to the killed node's partitions")
            served_s = time.monotonic() - began
            self._until(lambda: gone.look() and gone.at_s > 0, "the others' notice that a node is gone")
        killed_led = set(led)
        rest = [at for at in self._partitions if at not in killed_led]
        self._until(Probe(living, rest).ask, "produce to the partitions that others led")
        cpu = [after - before for before, after in zip(cpu_before, _cpu(living), strict=True)]
        logs = [line for node in living for line in _lines(node.log_path, marks[node])]
        phases = phases_of(logs, began_at)
        at_work = next((line for line in logs if PHASES["at work"] in line), "")
        if again:
            victim.launch()
            victim.await_ready(self._limit_s)
        first_s = probe.first_s - began
        noticed = [phases[name] for name in NOTICED if name in phases]
        gone_s = min(gone.at_s - began, first_s, *noticed)
        return FailOver(killed, gone_s, first_s, served_s, len(led), phases, at_work, *cpu)

    def _settle(self) -> None:
        """All replicas are in sync, and the preferred ones lead."""
        count = len(self._partitions)

        def in_sync() -> bool:
            answer = _metadata(self._controller(), topics=True)
            of = [len(at.isr_nodes) for topic in answer.topics for at in topic.partitions]
            if len(answer.brokers) == NODES and of.count(REPLICAS) >= count:
                return True
            time.sleep(0.5)
            return False

        self._until(in_sync, "replicas in sync")
        with _connect(self._controller(), self._limit_s) as connection:
            request = ElectLeadersRequest(topic_partitions=None, timeout_ms=int(self._limit_s * 1000))
            connection.ask(request, ElectLeadersResponse, ELECT_VERSION)
        time.sleep(SETTLE_S)

    def _controller(self) -> Node:
        """The controller, which is a broker, too."""
        found: list[Node] = []

        def look() -> bool:
            if self._connect:
                node_id = _metadata(self._cluster.nodes[0]).controller_id
                found.extend(node for node in self._cluster.nodes if node.place.id == node_id)
            elif (active := active_voter(self._cluster.nodes)) is not None:
                found.append(active)
            return bool(found)

        self._until(look, "a controller")
        return found[0]

    def _leaders(self, node: Node) -> dict[Partition, int]:
        topics = _metadata(node, topics=True).topics
        return {
            (topic.name or "", at.partition_index): at.leader_id
            for topic in topics
            for at in topic.partitions
        }

    @contextmanager
    def _gone(self, victim: Node, other: Node) -> Iterator[_Gone]:
        if not self._connect:
            yield _Gone(lambda: all(at.node_id != victim.place.id for at in _metadata(other).brokers))
            return
        from kazoo.client import KazooClient

        client = KazooClient(self._connect)
        client.start()
        gone = _Gone()
        client.exists(f"/brokers/ids/{victim.place.id}", watch=lambda _: gone.note())
        try:
            yield gone
        finally:
            client.stop()
            client.close()

    def _until(self, reached: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + self._limit_s
        while True:
            try:
                if reached():
                    return
            except (OSError, DecodeError):
                pass
            if time.monotonic() > end:
                raise NotReachedError(f"{what} took longer than {self._limit_s:g} s")
            time.sleep(POLL_S)


class _Gone:
    """When the others knew that a node was gone.

    :param is_gone: is asked between two requests; ``None``: :meth:`note` is called
    """

    def __init__(self, is_gone: Callable[[], bool] | None = None) -> None:
        self._is_gone = is_gone
        self.at_s = 0.0

    def look(self) -> bool:
        """Ask, unless it is known. Returns true, so that a wait goes on to its next condition."""
        if not self.at_s and self._is_gone is not None and self._is_gone():
            self.note()
        return True

    def note(self) -> None:
        """It is gone now."""
        self.at_s = self.at_s or time.monotonic()


class Probe:
    """Asks nodes for a produce to each of some partitions, until each was served once."""

    def __init__(self, nodes: Sequence[Node], partitions: Sequence[Partition]) -> None:
        self._nodes = nodes
        self._open = deque(partitions)
        self._chunk = CHUNK_MIN
        self._connections: dict[Node, BlockingConnection] = {}
        self.first_s = 0.0
        """The moment when the first of them was served."""

    def ask(self) -> bool:
        """Ask for some; after one is served for as many as are. Returns whether all were served."""
        while self._open:
            chunk = [self._open.popleft() for _ in range(min(self._chunk, len(self._open)))]
            served: set[Partition] = set()
            try:
                for node in self._nodes:
                    served |= self._produce(node, [at for at in chunk if at not in served])
            finally:
                self._open.extend(at for at in chunk if at not in served)
            if not served:
                self._chunk = CHUNK_MIN
                return False
            self.first_s = self.first_s or time.monotonic()
            self._chunk = min(CHUNK_MAX, self._chunk * 2)
        return True

    def _produce(self, node: Node, partitions: Sequence[Partition]) -> set[Partition]:
        batch = bytes(build_batch([Record(None, b"scale", (), time.time_ns() // 1_000_000)]))
        topics: dict[str, list[PartitionProduceData]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(PartitionProduceData(index=partition, records=batch))
        data = [TopicProduceData(name=name, partition_data=parts) for name, parts in topics.items()]
        if not data:
            return set()
        if node not in self._connections:
            self._connections[node] = _connect(node, ASK_S)
        request = ProduceRequest(acks=1, timeout_ms=int(ASK_S * 1000), topic_data=data)
        try:
            answer = self._connections[node].ask(request, ProduceResponse, PRODUCE_VERSION)
        except (OSError, DecodeError):
            self._connections.pop(node).close()
            raise
        return {
            (topic.name, at.index)
            for topic in answer.responses
            for at in topic.partition_responses
            if at.error_code == ErrorCode.NONE
        }


def phases_of(lines: Sequence[str], began_at: float) -> dict[str, float]:
    """Return the seconds from a moment to the first of each line that ends a phase.

    :param lines: of this build's logs
    """
    found: dict[str, float] = {}
    for line in lines:
        stamp = _TIME.search(line)
        for phase, words in PHASES.items():
            if stamp is not None and words in line:
                at = datetime.fromisoformat(stamp[0].replace(",", ".")).timestamp() - began_at
                found[phase] = min(at, found.get(phase, at))
    return found


def _lines(path: Path, begin: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace").splitlines()


def _cpu(nodes: Sequence[Node]) -> tuple[float, float]:
    """CPU seconds of the main threads, and of all other threads."""
    main = others = 0.0
    for node in nodes:
        for task in Path(f"/proc/{node.pid}/task").iterdir():
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            spent = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            if int(task.name) == node.pid:
                main += spent
            else:
                others += spent
    return main, others


def _metadata(node: Node, *, topics: bool = False) -> MetadataResponse:
    request = MetadataRequest(topics=None if topics else [], allow_auto_topic_creation=False)
    with _connect(node, ASK_S) as connection:
        return connection.ask(request, MetadataResponse, METADATA_VERSION)


def _connect(node: Node, timeout_s: float) -> BlockingConnection:
    return BlockingConnection(node.place.host, node.place.first_port, "metadata-scale", timeout_s)
