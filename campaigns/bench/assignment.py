"""The effect of assignments on members: heartbeat times while a large group is reassigned, beside a quiet period.

``python -m campaigns assignment --members 1000 --partitions 10000``. A broker runs in a process of its own. Its
clients are virtual members of one KIP-848 group, and a bystander: a member of another group that sends a heartbeat
every few milliseconds. A round is a quiet period, then a period in which members leave and others join, so that
assignments follow one another. Times count from when a heartbeat was due, so a late one delays those behind it.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns

import attrs
from rich.console import Console
from rich.table import Table

from blumfeld.client.errors import error_name
from blumfeld.testing.process import BrokerProcess
from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.rebalance.asking import GroupClient
from blumfeld_bench.rebalance.members.crowd import Crowd, undisturbed
from blumfeld_bench.rebalance.members.member import FAR_NS, PATIENCE, RETRY_NS, Group, Member, answer, request
from blumfeld_bench.rebalance.members.ownership import Ownership
from blumfeld_bench.usage import totals

VERSION = 1
SECOND_NS = 1_000_000_000
CREATE_TIMEOUT_S = 600.0
STABLE_TIMEOUT_S = 300.0
PROBE_INTERVAL_NS = 5_000_000
SESSION_TIMEOUT_MS = 45_000
CHECKPOINT_MS, NEVER_MS = 5000, 3_600_000
QUIET, MEANWHILE = "quiet", "meanwhile"


@attrs.define
class Phase:
    """Heartbeat times in ns, by sender."""

    members: list[int] = attrs.field(factory=list)
    bystander: list[int] = attrs.field(factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0
    epochs: int = 0
    """Increase of the group's epoch. Each change of members adds one; an assignment may serve several."""


class Beating(Member):
    """A member that reports its partitions at once after each assignment, and records the time of each answer."""

    def __init__(self, group: Group, index: int, topics: Sequence[str], every_ns: int = 0) -> None:
        """Make a member; ``every_ns`` replaces the heartbeat interval that the server returns, unless it is 0."""
        super().__init__(group, index)
        self.times_ns: list[int] = []
        """List of the recorded times; each phase sets its own."""
        self.owned: dict[bytes, list[int]] = {}
        self._topics = list(topics)
        self._every_ns = every_ns
        self._member_id = f"{group.draw.getrandbits(128):032x}"
        self._sent_ns = 0
        self._beat = b""

    @property
    def count(self) -> int:
        """Number of partitions that it owns."""
        return sum(map(len, self.owned.values()))

    def begin(self, now_ns: int) -> bytes:
        """Return the first heartbeat: epoch 0, with all fields that the group must know."""
        self._sent_ns = now_ns
        self.wake_ns = FAR_NS
        return self._heartbeat(
            0,
            rebalance_timeout_ms=self.group.rebalance_timeout_ms,
            subscribed_topic_names=self._topics,
            topic_partitions=[],
        )

    def due(self, now_ns: int) -> bytes:
        """Return a heartbeat without changes."""
        if not self._beat:
            return self.begin(now_ns)
        self._sent_ns, self.wake_ns = self.wake_ns, FAR_NS
        return self._beat

    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """See :class:`Member`."""
        self.times_ns.append(now_ns - self._sent_ns)
        found = answer(ConsumerGroupHeartbeatResponse, frame, VERSION)
        if found.error_code in PATIENCE:
            self.wake_ns = now_ns + RETRY_NS
            return None
        if found.error_code:
            raise DriverError(f"a member was refused: {error_name(found.error_code)} {found.error_message}")
        first = not self._beat
        if first or found.member_epoch != self.epoch:
            self.epoch = found.member_epoch
            self._beat = self._heartbeat(self.epoch)
        interval_ns = self._every_ns or found.heartbeat_interval_ms * 1_000_000
        if found.assignment is not None:
            told = {bytes(t.topic_id): list(t.partitions) for t in found.assignment.topic_partitions}
            if told != self.owned:
                self.owned, self._sent_ns = told, now_ns
                mine = [TopicPartitions(topic_id=t, partitions=p) for t, p in told.items()]
                return self._heartbeat(self.epoch, topic_partitions=mine)
        spread = self.group.draw.random() if first and not self._every_ns else 1
        self.wake_ns = (now_ns if first else self._sent_ns) + int(interval_ns * spread)
        return None

    def leave(self) -> bytes:
        """Return the last heartbeat: epoch -1."""
        return self._heartbeat(-1)

    def _heartbeat(self, epoch: int, **said: object) -> bytes:
        message = ConsumerGroupHeartbeatRequest(
            group_id=self.group.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            **said,  # type: ignore[arg-type]
        )
        return request(message, VERSION)


class Scene:
    """A group of ``members`` on a broker, and the bystander."""

    def __init__(self, crowd: Crowd, broker: BrokerProcess, topics: Sequence[str], seed: int) -> None:
        self._crowd, self._broker, self._topics = crowd, broker, topics
        self._draw = random.Random(seed)
        self._group = self._new_group("large")
        self._index = 0
        self.members: list[Beating] = []
        self._phase = Phase()
        self.bystander = Beating(self._new_group("bystander"), -1, topics[:1], PROBE_INTERVAL_NS)
        crowd.join(self.bystander, crowd.connect(1)[0])

    def _new_group(self, group_id: str) -> Group:
        return Group(
            group_id=group_id,
            topic="",
            topic_id=b"",
            partitions=0,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=0,
            draw=self._draw,
            ownership=Ownership(0),
        )

    def join(self, count: int) -> None:
        """Let ``count`` new members join."""
        for sock in self._crowd.connect(count):
            member = Beating(self._group, self._index, self._topics)
            member.times_ns = self._phase.members
            self._index += 1
            self.members.append(member)
            self._crowd.join(member, sock)

    def leave(self, count: int) -> None:
        """Let the ``count`` oldest members leave."""
        gone, self.members = self.members[:count], self.members[count:]
        for member in gone:
            self._crowd.leave(member)

    def await_stable(self, partitions: int) -> float:
        """Wait until all partitions are owned evenly; return the seconds it took.

        :raises DriverError: it took longer than five minutes
        """
        began_ns = monotonic_ns()

        def stable(now_ns: int) -> bool:
            counts = [member.count for member in self.members]
            return sum(counts) == partitions and max(counts) - min(counts) <= 1

        if not self._crowd.run(began_ns + int(STABLE_TIMEOUT_S * SECOND_NS), stable):
            counts = [member.count for member in self.members]
            raise DriverError(f"not stable: {sum(counts)} owned, {min(counts)} to {max(counts)} each")
        return (monotonic_ns() - began_ns) / SECOND_NS

    def measure(self, phase: Phase, seconds: float, every_s: float = 0, change: int = 0) -> None:
        """Add times to a phase. Every ``every_s``, unless that is 0, ``change`` members leave and as many join."""
        self._phase = phase
        for member in self.members:
            member.times_ns = phase.members
        self.bystander.times_ns = phase.bystander
        cpu_s, epoch = totals([self._broker.pid]).cpu_s, self._epoch()
        began_ns = monotonic_ns()
        end_ns = began_ns + int(seconds * SECOND_NS)
        while (now_ns := monotonic_ns()) < end_ns:
            if change:
                self.leave(change)
                self.join(change)
            self._crowd.run(min(end_ns, now_ns + int((every_s or seconds) * SECOND_NS)))
        phase.seconds += (monotonic_ns() - began_ns) / SECOND_NS
        phase.cpu_s += totals([self._broker.pid]).cpu_s - cpu_s
        phase.epochs += self._epoch() - epoch

    def _epoch(self) -> int:
        return max((member.epoch for member in self.members), default=0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all rounds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m campaigns assignment", description=__doc__)
    parser.add_argument("--members", type=int, default=1000, help="of the large group (default 1000)")
    parser.add_argument("--partitions", type=int, default=10_000, help="of all topics (default 10000)")
    parser.add_argument("--topics", type=int, default=1, help="that all members read (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="quiet and busy whiles (default 3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each while (default 10)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds from change to change (default 1)")
    parser.add_argument(
        "--change", type=int, default=1, help="members that leave and join each time (default 1)"
    )
    parser.add_argument("--interval", type=int, default=5000, help="of heartbeats, ms (default 5000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--dir", help="for the broker's files, e.g. /dev/shm: making 10000 partitions is no measure"
    )
    parser.add_argument(
        "--no-checkpoint",
        action="store_true",
        help="without the broker's checkpoint of all partitions every 5 s, which has stalls of its own",
    )
    parser.add_argument(
        "--first", action="store_true", help="let the broker go before whatever else runs on this machine"
    )
    asked = parser.parse_args(arguments)
    if asked.members < 1 or asked.change >= asked.members or asked.topics < 1:
        parser.error("there must be members left, and topics to read")
    with tempfile.TemporaryDirectory(prefix="blumfeld-assignment-", dir=asked.dir) as folder:
        broker = BrokerProcess(Path(folder), settings=_settings(asked.interval, asked.no_checkpoint))
        broker.start()
        try:
            if asked.first:
                os.sched_setscheduler(broker.pid, os.SCHED_RR, os.sched_param(1))
            _run(broker, asked)
        finally:
            broker.stop()


def _settings(interval_ms: int, no_checkpoint: bool) -> list[str]:
    checkpoint_ms = NEVER_MS if no_checkpoint else CHECKPOINT_MS
    return [
        f'config."replica.high.watermark.checkpoint.interval.ms"={checkpoint_ms}',
        f'config."group.consumer.heartbeat.interval.ms"={interval_ms}',
        f'config."group.consumer.min.heartbeat.interval.ms"={interval_ms}',
        'config."offsets.topic.num.partitions"=1',
        'config."offsets.topic.replication.factor"=1',
    ]


def _run(broker: BrokerProcess, asked: argparse.Namespace) -> None:
    host, port = broker.address.split(":")
    topics = [f"read-{nth:04}" for nth in range(asked.topics)]
    each = max(1, asked.partitions // asked.topics)
    console = Console()
    began = time.monotonic()
    with GroupClient(host, int(port), CREATE_TIMEOUT_S) as client:
        for name in topics:
            client.create_topic(name, each)
        client.await_coordinator("large")
    console.print(
        f"{asked.topics} topics, {each * asked.topics} partitions: {time.monotonic() - began:.1f} s"
    )
    phases = {QUIET: Phase(), MEANWHILE: Phase()}
    crowd = Crowd(host, int(port))
    try:
        with undisturbed(first=False):
            scene = Scene(crowd, broker, topics, asked.seed)
            scene.join(asked.members)
            took_s = scene.await_stable(each * asked.topics)
            console.print(f"{asked.members} members stable after {took_s:.1f} s")
            for _ in range(asked.rounds):
                scene.measure(phases[QUIET], asked.seconds)
                scene.measure(phases[MEANWHILE], asked.seconds, asked.every, asked.change)
                scene.await_stable(each * asked.topics)
    finally:
        crowd.close()
    show(phases, console)


def show(phases: dict[str, Phase], console: Console) -> None:
    """Print the measured times."""
    table = Table(title="times of heartbeats, ms")
    for column in ("", "of", "heartbeats", "p50", "p99", "p99.9", "highest", "epochs", "broker CPU"):
        table.add_column(column, justify="left" if column in ("", "of") else "right")
    for name, phase in phases.items():
        for who, times_ns in (("members", phase.members), ("bystander", phase.bystander)):
            values = [f"{percentile(times_ns, share) / 1e6:.2f}" for share in (0.5, 0.99, 0.999, 1.0)]
            cpu = f"{phase.cpu_s / phase.seconds:.0%}" if phase.seconds else ""
            table.add_row(name, who, str(len(times_ns)), *values, str(phase.epochs), cpu)
    console.print(table)


def percentile(times_ns: Sequence[int], share: float) -> int:
    """Return a percentile of the times; ``share`` is from 0 to 1. Without times it is 0."""
    ordered = sorted(times_ns)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


if __name__ == "__main__":
    main()
