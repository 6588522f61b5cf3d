"""One directory with open, prepared and ended transactions, on which Kafka 4.3.1 and this build take turns. Slow: Java.

Each side is killed (``kill -9``) and the other one ends what it finds, in both generations of the protocol.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blumfeld.cli.app import run_app
from blumfeld.testing.process import BrokerProcess, free_port
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.broker.coordination.test_transactional_offsets_as_kafka import ask
from tests.kafka_peer import kafka_on, peer_script, tool
from tests.plugins.transactions.test_client import WAIT_S, consumer
from tests.plugins.transactions.wire_producer import WireProducer, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SETTINGS = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
)
HERE = (
    'transactions.plugin="transactions"',
    *('config."{}"={}'.format(*setting.split("=")) for setting in SETTINGS),
)
IDS = ("committed", "aborted", "open", "prepared", "undone", "late", "near", "going-on")
EMPTY, PREPARE_COMMIT, PREPARE_ABORT = 0, 2, 3
QUICKLY_FENCED = ("broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=500")
FORGOTTEN = "are likely deleted already and hence can be skipped"
"""Kafka's line about markers that it doesn't write."""
LATE_MS = 20_000
"""Timeout of the transaction that nobody ends."""
LAST_EPOCH = 32766
"""After it a producer id has no epoch left."""


class Sides:
    """Starts either side on the directory, and kills it."""

    def __init__(self, folder: Path, level: int) -> None:
        self.folder, self.level = folder, level
        self.peer = peer_script()

    @contextlib.contextmanager
    def run(self, side: str) -> Iterator[str]:
        """The address of a broker, which is killed at the end."""
        if side == "kafka":
            if (self.folder / "data").exists():
                self._fence_dead_broker()
            else:
                self._format_kafka()
            with kafka_on(self.peer, self.folder, *SETTINGS, kill=True) as address:
                yield address
            self._keep_log()
            return
        if not (self.folder / "data").exists():
            settings = [word for setting in HERE for word in ("--set", setting)]
            run_app(
                [
                    "format",
                    "--data-dir",
                    str(self.folder / "data"),
                    "--feature",
                    f"transaction.version={self.level}",
                    *settings,
                ]
            )
        broker = BrokerProcess(self.folder, settings=HERE)
        broker.start()
        try:
            yield broker.address
        finally:
            broker.kill()

    def _fence_dead_broker(self) -> None:
        """A controller of Kafka alone fences the broker that was killed, so that nothing has a leader.

        Without this, Kafka 4.3.1 may forget markers in its start (docs/interop.md): its broker takes the leadership of
        the last process for its own, and loses it in the same start, with markers in its queue.
        """
        port = free_port(adjacent=2)
        listener = f"CONTROLLER://127.0.0.1:{port + 1}"
        settings = ("process.roles=controller", f"listeners={listener}", f"advertised.listeners={listener}")
        with kafka_on(self.peer, self.folder, *settings, *QUICKLY_FENCED, kill=True, port=port):
            until(lambda: "Fencing broker 1 " in (self.folder / "kafka.log").read_text())
            # It comes to the metadata log with the next append or the one after it. Kafka appends twice a second.
            for _ in range(2):
                until(partial(self._has_grown, self._metadata_bytes()))
        self._keep_log()

    def _metadata_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self.folder / "data/__cluster_metadata-0").glob("*.log"))

    def _has_grown(self, size: int) -> bool:
        return self._metadata_bytes() > size

    def _keep_log(self) -> None:
        log = self.folder / "kafka.log"
        assert FORGOTTEN not in log.read_text()
        log.rename(self.folder / f"kafka-{time.monotonic_ns()}.log")

    def _format_kafka(self) -> None:
        data = self.folder / "data"
        config = self.folder / "format.properties"
        lines = (
            "process.roles=broker,controller",
            "node.id=1",
            "controller.quorum.voters=1@127.0.0.1:1",
            "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={data}",
        )
        config.write_text("\n".join(lines) + "\n")
        tool(
            self.peer, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config),
            "--release-version", "4.3-IV0", "--feature", f"transaction.version={self.level}",
        )  # fmt: skip


def make_topic(address: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("t", len(IDS), 1)])["t"].result(WAIT_S)


class Story:
    """The transactional ids, each with a partition and a group of its own, and what must be seen of them."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.generation = 2 if level == 2 else 1
        self.seen: dict[str, list[str]] = {name: [] for name in IDS}
        """Values that read_committed readers must see."""
        self.offsets: dict[str, int] = dict.fromkeys(IDS, -1)
        """Offset of each group."""
        self.left: dict[str, WireProducer] = {}
        self.pending: dict[str, tuple[str, int]] = {}
        """Value and offset in the transaction that is left."""
        self.number = 0

    def producer(self, address: str, name: str) -> WireProducer:
        timeout_ms = LATE_MS if name == "late" else 600_000
        return WireProducer(address, name, IDS.index(name), self.generation, timeout_ms)

    def begin(self, made: WireProducer) -> None:
        """A value and an offset in a transaction."""
        self.number += 1
        value, offset = f"{made.transactional_id}-{self.number}", 1000 + self.number
        assert made.write(value) is ErrorCode.NONE
        assert made.commit_offset(offset) is ErrorCode.NONE
        self.left[made.transactional_id] = made
        self.pending[made.transactional_id] = value, offset

    def ended(self, name: str, *, commit: bool) -> None:
        """The transaction that was left has ended."""
        value, offset = self.pending.pop(name)
        if commit:
            self.seen[name].append(value)
            self.offsets[name] = offset

    def end(self, made: WireProducer, *, commit: bool) -> None:
        assert made.end(commit=commit) is ErrorCode.NONE
        self.ended(made.transactional_id, commit=commit)

    def leave(self, address: str) -> None:
        for name in IDS:
            if name == "near":
                continue
            made = self.producer(address, name)
            made.init()
            self.begin(made)
            if name in ("committed", "aborted"):
                self.end(made, commit=name == "committed")
        # Last, so that nothing is decided after them: a kill between the decision and its markers leaves just this.
        for name, status in (("prepared", PREPARE_COMMIT), ("undone", PREPARE_ABORT)):
            made = self.left[name]
            epoch = made.epoch + 1 if self.generation == 2 else made.epoch
            assert made.put_state(status, epoch=epoch, level=self.level) is ErrorCode.NONE

    def leave_near_the_last_epoch(self, address: str) -> None:
        made = self.producer(address, "near")
        made.init()
        self.left["near"] = made
        assert made.put_state(EMPTY, epoch=LAST_EPOCH - 1, level=self.level) is ErrorCode.NONE

    # The other side

    def take_over(self, address: str) -> None:
        """What the other side finds: it completes what was decided, and shows nothing of what wasn't."""
        until(lambda: complete(address, "prepared", "Commit") and complete(address, "undone", "Abort"))
        self.ended("prepared", commit=True)
        self.ended("undone", commit=False)
        self.check(address, but="late")
        going_on = self.producer(address, "going-on").take_up(self.left["going-on"])
        assert going_on.write("more") is ErrorCode.NONE
        self.end(going_on, commit=True)
        self.seen["going-on"].append("more")
        self._fence(address)
        until(lambda: complete(address, "late", "Abort"))
        self.ended("late", commit=False)
        self.check(address)

    def _fence(self, address: str) -> None:
        """A new producer ends what its predecessor left open, and the predecessor can write no more."""
        before = self.producer(address, "open").take_up(self.left["open"])
        after = self.producer(address, "open")
        after.init()
        self.ended("open", commit=False)
        assert after.producer_id == before.producer_id
        assert after.epoch > before.epoch
        fenced = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        assert before.write("zombie") in fenced
        assert before.commit_offset(1) in fenced
        assert before.end(commit=True) in fenced
        self.begin(after)
        self.end(after, commit=True)

    def use_the_last_epoch(self, address: str) -> None:
        """The transaction in it is left open."""
        made = self.producer(address, "near")
        made.init()
        assert made.epoch == LAST_EPOCH
        self.begin(made)

    def use_it_up(self, address: str) -> None:
        """The other side commits, and the next transaction has another producer id."""
        made = self.producer(address, "near").take_up(self.left["near"])
        last = made.producer_id
        self.end(made, commit=True)
        if self.generation == 1:
            until(lambda: complete(address, "near", "Commit"))
            made.init()
        assert (made.producer_id != last, made.epoch) == (True, 0)
        self.begin(made)
        self.end(made, commit=True)

    def check(self, address: str, but: str = "") -> None:
        """Readers of committed records see what they must, and groups have their offsets.

        :param but: its transaction may have run out of time
        """
        for name in IDS:
            if name == but:
                continue
            assert read_one(address, IDS.index(name)) == self.seen[name], name
            expected: int | ErrorCode = self.offsets[name]
            if name in self.pending:
                expected = ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert stable_offset(address, name) == expected, name


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def complete(address: str, name: str, outcome: str) -> bool:
    return states(address).get(name) == f"Complete{outcome}"


def read_one(address: str, partition: int) -> list[str]:
    """The values of one partition that a reader of committed records gets, in order."""
    from confluent_kafka import KafkaError, TopicPartition

    reader: Any = consumer(address, "read_committed")
    reader.assign([TopicPartition("t", partition, 0)])
    values = []
    while True:
        message = reader.poll(WAIT_S)
        assert message is not None, "the reader does not come to the end"
        if message.error() is None:
            values.append(message.value().decode())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            break
    reader.close()
    return values


def stable_offset(address: str, name: str) -> int | ErrorCode:
    """The group's offset, or why it can't be told: OffsetFetch with ``requireStable``."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[IDS.index(name)])]
    answer = ask(address, OffsetFetchRequest(group_id=f"group-{name}", topics=topics, require_stable=True), 7)
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    (partition_answer,) = answer.topics[0].partitions
    return (
        ErrorCode(partition_answer.error_code)
        if partition_answer.error_code
        else partition_answer.committed_offset
    )


@pytest.mark.parametrize("level", [0, 2], ids=["transaction.version 0", "transaction.version 2"])
@pytest.mark.parametrize("first", ["kafka", "here"])
def test_each_side_ends_what_the_other_left(tmp_path: Path, first: str, level: int) -> None:
    """Prepared transactions are completed, one goes on, others are fenced or run out of time; new producers of the same
    ids go on, also where their epochs are exhausted. Then the first side does the same with the second one's."""
    second = "here" if first == "kafka" else "kafka"
    sides, story = Sides(tmp_path, level), Story(level)
    with sides.run(first) as address:
        make_topic(address)
        story.leave_near_the_last_epoch(address)
        story.leave(address)
    with sides.run(second) as address:
        story.take_over(address)
        story.use_the_last_epoch(address)
        story.leave(address)
    with sides.run(first) as address:
        story.take_over(address)
        story.use_it_up(address)
        story.check(address)
        output = tool(
            sides.peer, "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", address,
            "find-hanging", "--broker-id", "1",
        )  # fmt: skip
        assert not [line for line in output.splitlines() if line.startswith("t ")], output


KILLED_BEFORE_MARKERS = """
import blumfeld.broker.handlers.broker.api_27_write_txn_markers as api

def write(self, request):
    os.kill(os.getpid(), 9)

api.WriteTxnMarkers.write = write
"""


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_ends_what_a_kill_between_decision_and_marker_left(tmp_path: Path, commit: bool) -> None:
    """This build dies by its own hand when it is about to write the first marker."""
    (tmp_path / "sitecustomize.py").write_text(KILLED_BEFORE_MARKERS)
    sides, story = Sides(tmp_path, 2), Story(2)
    with sides.run("here") as address:
        make_topic(address)
    broker = BrokerProcess(tmp_path, settings=HERE, prefix=("env", f"PYTHONPATH={tmp_path}"))
    broker.start()
    made = story.producer(broker.address, "prepared")
    made.init()
    story.begin(made)
    with contextlib.suppress(OSError, ValueError):
        made.end(commit=commit)
    broker.kill()
    with sides.run("kafka") as address:
        until(lambda: complete(address, "prepared", "Commit" if commit else "Abort"))
        story.ended("prepared", commit=commit)
        story.check(address)
