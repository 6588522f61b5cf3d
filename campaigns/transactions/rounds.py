"""One run: a client copies the feed while faults come, then the account."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from blumfeld.wire.primitives import DecodeError
from blumfeld_kit.cluster import Cluster, Node
from campaigns.clients.checks.scene import Scene
from campaigns.clients.load.log_contents import UnreadableError
from campaigns.clients.load.producers import CUT_SHORT_S
from campaigns.clients.verdicts import CheckFailed
from campaigns.cluster.ensemble import Ensemble
from campaigns.cluster.harm import Harm
from campaigns.cluster.observer import Observer
from campaigns.coordinators import coordinator_address, stable_offsets
from campaigns.transactions import broker_state
from campaigns.transactions.faults import BROKER_DIES, CLIENT_DIES, ON_ZOOKEEPER, PAUSE
from campaigns.transactions.feed import Feed, placed
from campaigns.transactions.oracle import (
    Seen,
    Transcript,
    check_isolation,
    check_rest,
    compare,
    digest_of,
    sha256_of,
    transcript_of,
)
from campaigns.transactions.programs import Start, Story, Work
from campaigns.transactions.report import RunReport, Zombie
from campaigns.transactions.slots import Slot, Slots, TooManyRestarts
from campaigns.waits import NoAnswerError, await_true

TAG = "txn"
GROUP = f"{TAG}-copiers"
TRANSACTION_KEY = 1
"""Key type of a transactional id in FindCoordinator."""
HEAL_S = 60.0
PROGRESS_S = 60.0
"""Longest time without a committed transaction after a fault."""
COPY_S = 240.0
"""Longest time for what is left of the feed when the last fault is over."""
REST_S = 30.0
"""Longest time until all markers are written after the last client has ended."""
FENCE_S = 120.0
"""Longest wait for the end of a zombie. The Java client tells it of its fencing after ``max.block.ms`` sometimes."""
STACKS_S = 5.0
"""Time for a program to write where its threads are."""
BEFORE_FAULT_S = (0.3, 2.0)
DOWN_S = (0.2, 2.0)
SESSION_LOST_S = 6.0
"""Longer than the session of a node with its ZooKeeper."""
PAUSE_S = 12.0
"""Longer than ``broker.session.timeout.ms`` of 9 s, so that another broker coordinates meanwhile."""


@attrs.frozen
class Settings:
    """Settings that are the same for all runs of a campaign."""

    partitions: int = 6
    slots: int = 2
    rate_per_s: float = 800.0
    batch_records: int = 100
    pause_ms: float = 60.0
    abort_share: float = 0.1


class Run:
    """The caller stops the cluster."""

    def __init__(
        self,
        report: RunReport,
        cluster: Cluster,
        start: Start,
        lines: Sequence[bytes],
        settings: Settings,
        say: Callable[[str], None],
        ensemble: Ensemble | None = None,
    ) -> None:
        """:param ensemble: of a cluster that keeps its metadata in ZooKeeper"""
        self._ensemble = ensemble
        self._harm = Harm(cluster, None, doors=ensemble.doors if ensemble is not None else None)
        self._report = report
        self._cluster = cluster
        self._settings = settings
        self._lines = lines
        self._say = say
        self._fate = random.Random(f"transaction-kills/{report.client}/{report.nodes}/{report.seed}")
        self._folder = cluster.nodes[0].folder.parent
        self._start = start
        self._slots = Slots([])

    def run(self, faults: Sequence[str], peer: Path | None) -> None:
        """Run all faults, and fill the report.

        :raises NodeError: a node did not start
        """
        began = time.monotonic()
        self._cluster.start()
        topics = self._topics()
        address = self._cluster.addresses
        feed = Feed(address, topics[0], self._lines, self._settings.partitions, self._settings.rate_per_s)
        self._slots = Slots([self._slot(number, topics) for number in range(self._settings.slots)])
        try:
            self._slots.begin()
            feed.start(feed)
            for kind in faults:
                self._fault(kind, topics[1])
            feed.complete()
            self._await_copied(topics[0])
            self._slots.finish()
        except TooManyRestarts as error:
            self._report.wrong.append(str(error))
        finally:
            feed.finish(CUT_SHORT_S)
            self._slots.kill()
        report = self._report
        report.wrong += [*feed.wrong, *self._slots.wrong]
        self._tell_programs()
        self._account(topics)
        self._rest(topics[0], peer)
        report.seconds = time.monotonic() - began

    def _topics(self) -> tuple[str, str]:
        """Create input and output."""
        scene = Scene(self._cluster.addresses, TAG)
        try:
            input_topic = scene.new_topic(self._settings.partitions, what="input")
            return input_topic, scene.new_topic(self._settings.partitions, what="output")
        finally:
            scene.close()

    def _slot(self, number: int, topics: tuple[str, str]) -> Slot:
        settings = self._settings
        work = Work(
            bootstrap=self._cluster.addresses,
            topic=topics[0],
            output=topics[1],
            group=GROUP,
            transactional_id=f"{TAG}-{number}",
            owned=tuple(range(number, settings.partitions, settings.slots)),
            batch_records=settings.batch_records,
            pause_ms=settings.pause_ms,
            abort_share=settings.abort_share,
            seed=self._fate.randrange(1 << 30),
        )
        return Slot(number, self._start, work, self._folder)

    # Faults

    def _fault(self, kind: str, output: str) -> None:
        time.sleep(self._fate.uniform(*BEFORE_FAULT_S))
        self._slots.replace_ended()
        slot = self._slots.draw(self._fate)
        node = self._target(kind, slot, output) if kind in (*BROKER_DIES, PAUSE) else None
        if kind == PAUSE and node is not None:
            node.pause()
        elif node is not None:
            node.kill()
        if kind in CLIENT_DIES:
            slot.program.kill()
        # What was told before the kill is heard by now.
        began = time.monotonic()
        if kind in CLIENT_DIES:
            slot.begin()
        if kind == "zombie":
            self._zombie(slot)
        if kind in ON_ZOOKEEPER and node is None:
            self._hurt_sessions(kind, slot, output)
        if kind == PAUSE and node is not None:
            time.sleep(PAUSE_S)
            node.resume()
        elif node is not None:
            time.sleep(self._fate.uniform(*DOWN_S))
            node.launch()
            node.await_ready()
        if kind in CLIENT_DIES:
            self._slots.await_ready(slot)
        took = self._await_progress(kind, began)
        self._report.kills[kind] = self._report.kills.get(kind, 0) + 1
        where = f" on {node.place.id}" if node is not None else ""
        self._say(f"  {kind}{where}: a transaction was committed after {took:.1f} s")
        if (node is not None or kind in ON_ZOOKEEPER) and len(self._cluster.nodes) > 1:
            self._await_whole(kind, output)

    def _hurt_sessions(self, kind: str, slot: Slot, output: str) -> None:
        """Hurt ZooKeeper, or the session of one node with it."""
        assert self._ensemble is not None
        action, _, target = kind.partition("-")
        hit = self._ensemble.servers if target == "zookeeper" else (self._target(kind, slot, output),)
        self._harm.begin(action, hit)
        if action != "expire":
            time.sleep(SESSION_LOST_S)
        self._harm.end(action, hit)
        for node in hit:
            node.await_ready()

    def _target(self, kind: str, slot: Slot, output: str) -> Node:
        nodes = self._cluster.nodes
        node_id: int | None = None
        if kind in ("kill-controller", "lose-controller"):
            node_id = self._observer(output).controller()
        elif kind in ("kill-coordinator", "expire-coordinator", PAUSE):
            with contextlib.suppress(NoAnswerError):
                key = slot.work.transactional_id
                node_id, _ = coordinator_address(self._cluster.addresses, key, TRANSACTION_KEY)
        elif kind == "kill-leader":
            leaders = self._observer(output).leadership().leaders
            node_id = self._fate.choice(leaders)
        ids = [node.place.id for node in nodes]
        return self._cluster.node(node_id if node_id in ids else self._fate.choice(ids))

    def _observer(self, topic: str) -> Observer:
        return Observer(self._cluster, topic, self._ensemble.tree if self._ensemble is not None else None)

    def _zombie(self, slot: Slot) -> None:
        """Pause a program, let its successor commit, and resume it: it must be fenced."""
        program = slot.program
        program.signal(signal.SIGSTOP)
        slot.begin()
        self._slots.await_ready(slot)
        # Its last lines before SIGSTOP are heard by now.
        before = program.story.copy()

        def succeeded() -> bool:
            self._slots.replace_ended()
            return slot.program.story.transactions > 0

        if not await_true(succeeded, PROGRESS_S):
            self._report.wrong.append(f"{slot.program.name} commits nothing beside a zombie")
        began = time.monotonic()
        program.signal(signal.SIGCONT)
        if not program.await_end(FENCE_S):
            program.signal(signal.SIGQUIT)  # it writes where its threads are, and may end then
            program.await_end(STACKS_S)
        zombie = zombie_of(program.name, before, program.story, time.monotonic() - began)
        program.kill()
        self._say(f"  zombie {program.name}: {zombie}")
        self._report.zombies.append(zombie)
        self._report.fenced += zombie.last_word == "fenced"
        self._report.wrong += zombie.complaints

    def _await_progress(self, kind: str, began: float) -> float:
        def progressed() -> bool:
            self._slots.replace_ended()
            return self._slots.first_commit(began) is not None

        if not await_true(progressed, PROGRESS_S):
            self._report.wrong.append(f"{kind}: no transaction was committed for {PROGRESS_S:.0f} s")
        took = (self._slots.first_commit(began) or time.monotonic()) - began
        self._report.recoveries_s.append(took)
        return took

    def _await_whole(self, kind: str, output: str) -> None:
        observer = self._observer(output)
        if not observer.await_whole(HEAL_S):
            self._report.wrong.append(f"{kind}: not in sync after {HEAL_S:.0f} s: {observer.describe()}")

    # The account

    def _await_copied(self, topic: str) -> None:
        """Wait until the group's offsets are the ends of the input."""
        counts = [len(pairs) for pairs in placed(self._lines, self._settings.partitions)]
        wanted = dict(enumerate(counts))
        offsets: dict[int, int] = {}
        deadline = time.monotonic() + COPY_S
        while time.monotonic() < deadline:
            self._slots.replace_ended()
            # Offsets of an open transaction are unstable, and a coordinator may load.
            with contextlib.suppress(NoAnswerError, OSError, DecodeError):
                offsets = self._offsets_of(topic)
            if offsets == wanted:
                return
            time.sleep(0.1)
        self._report.wrong.append(f"not all is copied after {COPY_S:.0f} s: {offsets} of {wanted}")

    def _offsets_of(self, topic: str) -> dict[int, int]:
        """Return what the group has committed of the input, by partition."""
        offsets = stable_offsets(self._cluster.addresses, GROUP)
        return {partition: offset for (name, partition), offset in offsets.items() if name == topic}

    def _tell_programs(self) -> None:
        report, slots = self._report, self._slots
        report.transactions = slots.transactions
        report.told_aborts = sum(program.story.aborts for program in slots.programs)
        report.restarts = slots.restarts
        report.errors = slots.errors()

    def _account(self, topics: tuple[str, str]) -> None:
        """Compare both isolation levels with the input and with the log's markers."""
        report, partitions = self._report, self._settings.partitions
        address = self._cluster.addresses
        wanted = placed(self._lines, partitions)
        report.records = len(self._lines)
        report.capture_sha256 = sha256_of(self._lines)
        try:
            fed = broker_state.read_all(address, topics[0], partitions, "read_committed")
            committed = broker_state.read_all(address, topics[1], partitions, "read_committed")
            everything = broker_state.read_all(address, topics[1], partitions, "read_uncommitted")
            transcripts = self._transcripts(topics[1])
        except (UnreadableError, OSError, DecodeError, CheckFailed) as error:
            report.wrong.append(f"the output can't be read: {error}")
            return
        for at in range(partitions):
            if [seen.pair for seen in fed[at]] != wanted[at]:
                report.wrong.append(f"input-{at} is not the capture: {len(fed[at])} records")
            report.wrong += compare(at, wanted[at], committed[at], report.account)
            report.wrong += check_isolation(
                at, transcripts[at], _offsets(committed[at]), _offsets(everything[at]), self._told(at)
            )
        report.sha256 = digest_of([[seen.pair for seen in many] for many in committed])
        report.uncommitted = sum(map(len, everything)) - sum(map(len, committed))
        report.commits = sum(transcript.commits for transcript in transcripts)
        report.aborts = sum(transcript.aborts for transcript in transcripts)
        report.generation = _generation(transcripts, report.transactions)

    def _transcripts(self, output: str) -> list[Transcript]:
        scene = Scene(self._cluster.addresses, TAG)
        try:
            return [transcript_of(scene.batches(output, at)) for at in range(self._settings.partitions)]
        finally:
            scene.close()

    def _told(self, partition: int) -> list[int]:
        return [
            offset
            for program in self._slots.programs
            for at, offset in program.story.aborted
            if at == partition
        ]

    def _rest(self, topic: str, peer: Path | None) -> None:
        """Wait until all is at rest; what is not then is wrong."""
        wanted = {at: len(pairs) for at, pairs in enumerate(placed(self._lines, self._settings.partitions))}

        def wrong() -> list[str]:
            try:
                return check_rest(
                    broker_state.ends_of(self._cluster.addresses),
                    broker_state.transactions_of(self._cluster),
                    self._offsets_of(topic),
                    wanted,
                )
            except (NoAnswerError, OSError, DecodeError) as error:
                return [f"the brokers don't tell: {error}"]

        await_true(lambda: not wrong(), REST_S)
        self._report.wrong += wrong()
        if peer is None:
            self._report.find_hanging = "not run"
            return
        rows = []
        for node in self._cluster.brokers:
            try:
                rows += broker_state.hanging(peer, self._cluster.addresses, node.place.id)
            except NoAnswerError as error:
                rows.append(str(error))
        self._report.find_hanging = str(len(rows))
        self._report.wrong += [f"find-hanging: {row}" for row in rows]


def zombie_of(name: str, before: Story, after: Story, seconds: float) -> Zombie:
    """Return what a program did between two stories of it: that of its pause, and that so many seconds later."""
    return Zombie(
        name=name,
        held=before.held,
        was_open=before.is_open,
        begun=after.begun - before.begun,
        committed=after.transactions - before.transactions,
        aborted=after.aborts + len(after.retries) - before.aborts - len(before.retries),
        held_at_end=after.held,
        last_word=after.last_word,
        error=after.error,
        seconds=seconds,
    )


def _offsets(many: Sequence[Seen]) -> list[int]:
    return [seen.offset for seen in many]


def _generation(transcripts: Sequence[Transcript], transactions: int) -> int:
    """Return 2 if most transactions had an epoch of their own."""
    epochs = set().union(*(transcript.producers for transcript in transcripts))
    if not epochs:
        return 0
    return 2 if len(epochs) > transactions / 2 else 1
