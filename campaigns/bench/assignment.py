"""The effect of assignments on members: heartbeat times while a large group is reassigned, beside a quiet period.

``python -m campaigns assignment --members 1000 --partitions 10000``. A broker runs in a process of its own. Its
clients are virtual members of one KIP-848 group, and a bystander: a member of another group that sends a heartbeat
every few milliseconds. A round is a quiet period, then a period in which members leave and others join, so that
assignments follow one another. Times count from when a heartbeat was due, so a late one delays those behind it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns

import attrs
from rich.console import Console

from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import WireClient
from blumfeld_bench.rebalance.members.consumer import ConsumerMember
from blumfeld_bench.rebalance.members.crowd import Crowd, undisturbed
from blumfeld_bench.rebalance.members.member import FAR_NS, Group
from blumfeld_bench.rebalance.members.ownership import Ownership
from blumfeld_bench.runs.servers import Server
from blumfeld_bench.terminal import make_console
from campaigns import figures
from campaigns.bench.rivals import start, this_build

TOPIC = "read"
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


class TimedMember(ConsumerMember):
    """A member that records the time of each answer, from when the heartbeat was due.

    :param every_ns: replaces the heartbeat interval that the server returns, unless it is 0
    """

    def __init__(self, group: Group, index: int, every_ns: int = 0) -> None:
        super().__init__(group, index)
        self.times_ns: list[int] = []
        """List of the recorded times; each phase sets its own."""
        self._every_ns = every_ns
        self._is_new = True

    def due(self, now_ns: int) -> bytes:
        """Return a heartbeat without changes. The next one is due an interval after this one was, however late."""
        due_ns = self.wake_ns
        frame = super().due(now_ns)
        self.heard_ns = due_ns
        return frame

    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """See :class:`~blumfeld_bench.rebalance.members.member.Member`."""
        self.times_ns.append(now_ns - self.heard_ns)
        reply = super().answered(frame, now_ns)
        if self.wake_ns == FAR_NS or not self.idle:
            return reply
        if self._every_ns:
            self.wake_ns = self.heard_ns + self._every_ns
        elif self._is_new:
            self.wake_ns = self.first_beat_ns(now_ns, (self.wake_ns - self.heard_ns) // 1_000_000)
        self._is_new = False
        return reply


class Scene:
    """A group of ``members`` on a broker, and the bystander, a group of one member."""

    def __init__(self, crowd: Crowd, server: Server, topic_id: bytes, partitions: int, seed: int) -> None:
        self._crowd, self._server = crowd, server
        self._topic_id, self._partitions = topic_id, partitions
        self._draw = random.Random(seed)
        self._group = self._new_group("large")
        self._index = 0
        self.members: list[TimedMember] = []
        self._phase = Phase()
        self.bystander = TimedMember(self._new_group("bystander"), -1, PROBE_INTERVAL_NS)
        crowd.join(self.bystander, crowd.connect(1)[0])

    def _new_group(self, group_id: str) -> Group:
        return Group(
            group_id=group_id,
            topic=TOPIC,
            topic_id=self._topic_id,
            partitions=self._partitions,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=0,
            draw=self._draw,
            ownership=Ownership(self._partitions),
        )

    def join(self, count: int) -> None:
        """Let ``count`` new members join."""
        for sock in self._crowd.connect(count):
            member = TimedMember(self._group, self._index)
            member.times_ns = self._phase.members
            self._index += 1
            self.members.append(member)
            self._crowd.join(member, sock)

    def leave(self, count: int) -> None:
        """Let the ``count`` oldest members leave."""
        gone, self.members = self.members[:count], self.members[count:]
        for member in gone:
            self._crowd.leave(member)

    def await_stable(self) -> float:
        """Wait until all partitions are owned evenly; return the seconds it took.

        :raises DriverError: it took longer than five minutes
        """
        began_ns, ownership = monotonic_ns(), self._group.ownership

        def stable(now_ns: int) -> bool:
            return ownership.balanced(member.index for member in self.members)

        if not self._crowd.run(began_ns + int(STABLE_TIMEOUT_S * SECOND_NS), stable):
            raise DriverError(
                f"not stable: {ownership.unowned} of {self._partitions} partitions have no owner"
            )
        return (monotonic_ns() - began_ns) / SECOND_NS

    def measure(self, phase: Phase, seconds: float, every_s: float = 0, change: int = 0) -> None:
        """Add times to a phase. Every ``every_s``, unless that is 0, ``change`` members leave and as many join."""
        self._phase = phase
        for member in self.members:
            member.times_ns = phase.members
        self.bystander.times_ns = phase.bystander
        cpu_s, epoch = self._server.totals().cpu_s, self._epoch()
        began_ns = monotonic_ns()
        end_ns = began_ns + int(seconds * SECOND_NS)
        while (now_ns := monotonic_ns()) < end_ns:
            if change:
                self.leave(change)
                self.join(change)
            self._crowd.run(min(end_ns, now_ns + int((every_s or seconds) * SECOND_NS)))
        phase.seconds += (monotonic_ns() - began_ns) / SECOND_NS
        phase.cpu_s += self._server.totals().cpu_s - cpu_s
        phase.epochs += self._epoch() - epoch

    def _epoch(self) -> int:
        return max((member.epoch for member in self.members), default=0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all rounds and print a table."""
    parser = figures.options("assignment", __doc__, peer=False)
    parser.add_argument("--members", type=int, default=1000, help="of the large group (default 1000)")
    parser.add_argument("--partitions", type=int, default=10_000, help="of the topic (default 10000)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each while (default 10)")
    parser.add_argument("--every", type=float, default=1.0, help="seconds from change to change (default 1)")
    parser.add_argument(
        "--change", type=int, default=1, help="members that leave and join each time (default 1)"
    )
    parser.add_argument("--interval", type=int, default=5000, help="of heartbeats, ms (default 5000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--no-checkpoint",
        action="store_true",
        help="without the broker's checkpoint of all partitions every 5 s, which has stalls of its own",
    )
    options = parser.parse_args(arguments)
    if not 0 <= options.change < options.members:
        parser.error("there must be members left")
    with tempfile.TemporaryDirectory(prefix="blumfeld-assignment-") as folder:
        settings = _settings(options.interval, options.no_checkpoint)
        server = start(this_build(settings), Path(folder) / "server")
        try:
            phases = _run(server, options, make_console())
        finally:
            server.stop()
    figures.save(options.out, phases)


def _settings(interval_ms: int, no_checkpoint: bool) -> list[str]:
    checkpoint_ms = NEVER_MS if no_checkpoint else CHECKPOINT_MS
    return [
        f'config."replica.high.watermark.checkpoint.interval.ms"={checkpoint_ms}',
        f'config."group.consumer.heartbeat.interval.ms"={interval_ms}',
        f'config."group.consumer.min.heartbeat.interval.ms"={interval_ms}',
        'config."offsets.topic.num.partitions"=1',
        'config."offsets.topic.replication.factor"=1',
    ]


def _run(server: Server, options: argparse.Namespace, console: Console) -> dict[str, Phase]:
    began = time.monotonic()
    with WireClient("127.0.0.1", server.port, CREATE_TIMEOUT_S) as client:
        client.create_topic(TOPIC, options.partitions)
        client.await_coordinator("large")
        topic_id = client.topic_id(TOPIC)
    console.print(f"{options.partitions} partitions: {time.monotonic() - began:.1f} s")
    phases = {QUIET: Phase(), MEANWHILE: Phase()}
    crowd = Crowd("127.0.0.1", server.port)
    try:
        with undisturbed(first=False):
            scene = Scene(crowd, server, topic_id, options.partitions, options.seed)
            scene.join(options.members)
            console.print(f"{options.members} members stable after {scene.await_stable():.1f} s")
            for _ in range(options.rounds):
                scene.measure(phases[QUIET], options.seconds)
                scene.measure(phases[MEANWHILE], options.seconds, options.every, options.change)
                scene.await_stable()
    finally:
        crowd.close()
    show(phases, console)
    return phases


def show(phases: dict[str, Phase], console: Console) -> None:
    """Print the measured times."""
    columns = ("heartbeats", "p50", "p99", "p99.9", "highest", "epochs", "broker CPU")
    table = figures.table("times of heartbeats, ms", ("", "of"), columns)
    for name, phase in phases.items():
        for sender, times_ns in (("members", phase.members), ("bystander", phase.bystander)):
            values = [figures.percentile(times_ns, share) / 1e6 for share in (0.5, 0.99, 0.999, 1.0)]
            cpu = f"{phase.cpu_s / phase.seconds:.0%}" if phase.seconds else ""
            shown = [f"{value:.2f}" for value in values]
            table.add_row(name, sender, str(len(times_ns)), *shown, str(phase.epochs), cpu)
    console.print(table)


if __name__ == "__main__":
    main()
