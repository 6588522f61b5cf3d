"""The longest turn of a controller's loop while it changes the metadata of a large cluster (ADR 0021).

``python -m campaigns decisions --partitions 100000 1000000``. A controller with a quorum of one runs in this process,
on a simulated loop and a disk in memory: no other program and no offloaded work is in the numbers. It loads a snapshot
of a cluster of four brokers whose partitions have three replicas each. Then one ISR shrinks, topics of 1,000 and
10,000 partitions are created, the second is deleted, a broker falls silent and is fenced, and a snapshot is taken. Each
turn is measured in CPU time of the thread. The cluster's partitions are in one topic, or in topics of ten.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
from rich.table import Table

from blumfeld.config.values import BrokerConfig
from blumfeld.kernel.process import settle, spare_the_collector
from blumfeld.metadata.image.checkpoint import CheckpointId, encode_checkpoint
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.hooks import Composition
from blumfeld.spi.scheduler import Scheduler
from blumfeld.spi.transport import Listener
from blumfeld.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from blumfeld.wire.schema import Message
from blumfeld_bench.terminal import make_console
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.runtime import FakeRuntime
from campaigns import figures
from campaigns.metadata_scale.directories import records_of, topic_of

T = TypeVar("T")
BROKERS = (2, 3, 4, 5)
SILENT = 2
WORKS = 6
"""Rows for each cluster."""
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DATA_DIR = "/data"
LOG_DIR = f"{DATA_DIR}/__cluster_metadata-0"


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of one kind of work."""

    partitions: int
    topics: int
    work: str
    longest_ms: float
    """CPU time of the longest turn."""
    turns: int
    total_ms: float
    outcome: str = ""
    """The failure in words; empty if there was none."""


class TimedLoop(SimulatedLoop):
    """Measures each turn in CPU time of its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[float] = []
        self.offloaded_s = 0.0

    def _run_once(self) -> None:
        begin, self.offloaded_s = time.thread_time(), 0.0
        super()._run_once()  # type: ignore[misc]
        self.turns.append((time.thread_time() - begin - self.offloaded_s) * 1000.0)


class TimedRuntime(FakeRuntime):
    """Leaves out offloaded work, which a real runtime does in a thread. The budget of a turn is CPU time."""

    loop: TimedLoop

    def __init__(self, seed: int = 0, **parts: Any) -> None:
        super().__init__(seed, **parts)
        self.scheduler = Scheduler(
            lambda: time.thread_time() * 1000.0, lambda callback: self.call_later(0, callback)
        )

    def offload(self, work: Callable[..., T], *args: Any) -> Awaitable[T]:
        """As in the base class, and measured."""

        def do() -> T:
            begin = time.thread_time()
            try:
                return work(*args)
            finally:
                self.loop.offloaded_s += time.thread_time() - begin

        return super().offload(do)


class Silence:
    """An event log that keeps errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def debug(self, event: str, **values: Any) -> None:
        """Not kept."""

    info = warning = debug

    def error(self, event: str, **values: Any) -> None:
        """Keep it."""
        self.errors.append(f"{event}: {values.get('exc_info', '')}")


def parts(runtime: FakeRuntime) -> Any:
    """Return as much of a composition as the consensus reads."""
    from blumfeld_storage_local.storage import LocalStorage

    events = Silence()
    return SimpleNamespace(
        runtime=runtime,
        config=BrokerConfig({"metadata.log.max.snapshot.interval.ms": 0}),
        node_id=1,
        roles=("broker", "controller"),
        data_dir=DATA_DIR,
        cluster_id=CLUSTER_ID,
        incarnation_id=runtime.new_uuid(),
        features=(),
        image_sections=(),
        controller_commands=(),
        migration=None,
        listeners=(Listener(name="CONTROLLER", kind="controller", host="127.0.0.1", port=9093),),
        events=events,
        log=lambda name: events,
        local_storage=LocalStorage(runtime, DATA_DIR, events),
    )


class Node:
    """A controller that has loaded the cluster."""

    def __init__(self, partitions: int, topics: int) -> None:
        from blumfeld_consensus_kraft.kraft_metadata import KraftMetadata

        self.partitions, self.topics = partitions, topics
        self.loop = TimedLoop()
        self.runtime = TimedRuntime(loop=self.loop)
        self.parts = parts(self.runtime)
        self.metadata = KraftMetadata(cast("Composition", self.parts))
        records = records_of(partitions, partitions // topics, BROKERS, serving=True)
        files = self.runtime.files
        files.make_dirs(LOG_DIR)
        snapshot = encode_checkpoint(records, epoch=1, timestamp_ms=1)
        files.write_atomically(f"{LOG_DIR}/{CheckpointId(100, 1).name}", snapshot)

        async def start() -> None:
            await self.parts.local_storage.start(CLUSTER_ID, 1)
            await self.metadata.start()

        spare_the_collector()
        self.runtime.run(start())
        settle()

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        image = self.metadata.image
        assert isinstance(image, MetadataImage)
        return image

    def measured(self, work: str, act: Callable[[], str | None]) -> Measure:
        """Do something, and measure the turns until it is done."""
        self.loop.turns.clear()
        began = time.thread_time()
        outcome = act() or "; ".join(self.parts.events.errors)
        self.parts.events.errors.clear()
        return Measure(
            partitions=self.partitions,
            topics=self.topics,
            work=work,
            longest_ms=max(self.loop.turns),
            turns=len(self.loop.turns),
            total_ms=(time.thread_time() - began) * 1000.0,
            outcome=outcome,
        )

    def ask(self, request: Message) -> Message:
        """Submit in a turn of its own, and wait for the answer."""

        async def ask() -> Message:
            return await self.metadata.submit(request, 600_000)

        return self.runtime.run(ask())

    def shrink(self) -> str | None:
        """One leader takes one replica out of one ISR."""
        topic = self.image.topics[topic_of(0)]
        partition = topic.partitions[5]
        response = self.ask(
            AlterPartitionRequest(
                broker_id=partition.leader,
                broker_epoch=self.image.brokers[partition.leader].epoch,
                topics=[
                    RequestTopicData(
                        topic_id=topic.topic_id,
                        partitions=[
                            RequestPartitionData(
                                partition_index=5,
                                leader_epoch=partition.leader_epoch,
                                partition_epoch=partition.partition_epoch,
                                new_isr=list(partition.isr[:-1]),
                            )
                        ],
                    )
                ],
            )
        )
        assert isinstance(response, AlterPartitionResponse)
        return str(response.topics[0].partitions[0].error_code or "") or None

    def create(self, partitions: int = 1_000) -> str | None:
        """A topic."""
        name = f"another-{partitions}"
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
        self.ask(CreateTopicsRequest(topics=[topic]))
        return None if name in self.image.topics else "not created"

    def delete(self) -> str | None:
        """The largest topic that :meth:`create` made."""
        self.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="another-10000")]))
        return None if "another-10000" not in self.image.topics else "not deleted"

    def beat(self) -> None:
        """The other brokers are heard from."""
        for broker in self.image.brokers.values():
            if broker.broker_id != SILENT:
                request = BrokerHeartbeatRequest(
                    broker_id=broker.broker_id, broker_epoch=broker.epoch, current_metadata_offset=10**9
                )
                self.metadata.submit(request, 600_000)

    def fence(self) -> str | None:
        """A broker is not heard from."""
        for _ in range(12):
            self.beat()
            self.runtime.advance(1_000)
            if self.image.brokers[SILENT].fenced:
                return None
        return "not fenced"

    def snapshot(self) -> str | None:
        """A snapshot is taken."""
        self.metadata.replica.snapshots.take()
        self.runtime.advance(1_000)
        names = [n for n in self.runtime.files.list_dir(LOG_DIR) if n.endswith(".checkpoint")]
        return None if len(names) == 2 else "not taken"


def measure(partitions: int, topics: int) -> list[Measure]:
    """All kinds of work on one cluster."""
    thresholds = gc.get_threshold()
    node = Node(partitions, topics)
    try:
        return [
            node.measured("one ISR shrinks", node.shrink),
            node.measured("a topic of 1,000 partitions", node.create),
            node.measured("a topic of 10,000 partitions", lambda: node.create(10_000)),
            node.measured("its deletion", node.delete),
            node.measured("a broker is fenced", node.fence),
            node.measured("a snapshot", node.snapshot),
        ]
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def table_of(measures: list[Measure]) -> Table:
    """Returns the rows to print."""
    columns = ("longest turn, ms", "turns", "CPU, ms", "outcome")
    table = figures.table("decisions of a controller", ("partitions", "topics", "work"), columns)
    for sample in measures:
        table.add_row(
            f"{sample.partitions:,}",
            f"{sample.topics:,}",
            sample.work,
            f"{sample.longest_ms:.1f}",
            f"{sample.turns:,}",
            f"{sample.total_ms:,.0f}",
            sample.outcome[:60] or "done",
        )
    return table


def main() -> None:
    """Measure, print, and write the result."""
    parser = figures.options("decisions", __doc__, peer=False, rounds=None)
    parser.add_argument("--partitions", type=int, nargs="+", default=[100_000, 1_000_000])
    args = parser.parse_args()
    measures: list[Measure] = []
    for partitions in args.partitions:
        for topics in (1, partitions // 10):
            measures += measure(partitions, topics)
            make_console().print(table_of(measures[-WORKS:]))
    figures.save(args.out, measures)


if __name__ == "__main__":
    main()
