"""A quorum of pure replicas on virtual time, with links that delay, lose, double and cut one way, disks that take their
time, machines that stop, stall and lose power. It checks what raft promises at each step.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable

from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    Request,
    SnapshotId,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.settings import Settings, Stored
from blumfeld_consensus_kraft.raft.voters import (
    NO_DIRECTORY,
    ReplicaKey,
    Voter,
    VoterHistory,
    VoterSet,
)
from tests.plugins.consensus_kraft.raft.model_log import Entry, ModelLog

LEADER_CHANGE = "leader change"
FETCH_WAIT_MS = 500
FIRST_BOOTSTRAP_ID = -2
"""Stands for node 1, and so on downwards, for a replica that knows no voters."""
REQUEST_TIMEOUT_MS = 2_000


class BrokenPromiseError(AssertionError):
    """Raft's promise is broken."""


class Node:
    """A machine: what is on its disk stays, the replica in it is made anew with each start."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.key = world.voters.key_of(node_id)
        self.log = ModelLog()
        self.stored = Stored()
        self.incarnation = 0
        self.stalled = False
        self.inbox: list[Callable[[], None]] = []
        self.raft: Raft | None = None
        self.queue: list[tuple[effects.Effect, Callable[[object], None]]] = []
        self.persisting = False
        self.flushing = False
        self.parked: list[tuple[FetchRequest, Callable[[object], None]]] = []
        self.leading_epoch = -1
        self.timer = 0
        self.flush_limit = 0
        self.refuses = False
        """Whether its process is gone and the machine goes on: its connections end, and new ones are refused."""
        self.callers: dict[Callable[[], None], None] = {}
        """What ends each request to it that is under way."""

    # Life

    def start(self) -> None:
        self.incarnation += 1
        self.queue, self.parked, self.inbox = [], [], []
        self.persisting = self.flushing = self.stalled = False
        self.leading_epoch = -1
        world = self.world
        self.log.flush()
        self.raft = self.made()
        self.do(lambda raft: raft.start(world.now_ms))

    def made(self) -> Raft:
        """A replica with what is on the disk."""
        world = self.world
        return Raft(
            self.key,
            VoterHistory(world.voters),
            self.log,
            world.settings,
            self.stored,
            lambda below: world.draw(self) * below,
        )

    def install(self, snapshot: SnapshotId) -> None:
        """Begin behind a snapshot of the leader."""
        self.log.install(snapshot)

    def crash(self, *, power: bool) -> None:
        self.incarnation += 1
        self.raft = None
        self.refuses = not power
        if power:
            self.log.crash()
        else:
            self.world.end_connections(self)
        self.parked, self.queue, self.inbox = [], [], []

    def lose_disk(self) -> None:
        """Stop, and have an empty disk: the node is another replica from now on (KIP-853)."""
        assert self.key.directory_id != NO_DIRECTORY, (
            "a static voter that lost its disk would forget its votes"
        )
        self.crash(power=True)
        self.log, self.stored = ModelLog(), Stored()
        self.key = ReplicaKey(self.id, bytes([*self.key.directory_id[:-1], self.key.directory_id[-1] + 1]))

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        incarnation = self.incarnation

        def run() -> None:
            if self.incarnation != incarnation:
                return
            if self.stalled:
                self.inbox.append(action)
            else:
                action()

        self.world.at(delay_ms, run)

    def resume(self) -> None:
        self.stalled = False
        waiting, self.inbox = self.inbox, []
        self.world.random.shuffle(waiting)
        for action in waiting:
            action()

    # The driver

    def do(
        self, step: Callable[[Raft], list[effects.Effect]], reply: Callable[[object], None] | None = None
    ) -> None:
        if self.raft is None:
            return
        out = step(self.raft)
        self.queue += [(effect, reply or (lambda _: None)) for effect in out]
        self._run()
        self._plan()

    def _run(self) -> None:
        while self.queue and not self.persisting and self.raft is not None:
            effect, reply = self.queue.pop(0)
            self._execute(effect, reply)

    def _execute(self, effect: effects.Effect, reply: Callable[[object], None]) -> None:
        world = self.world
        if isinstance(effect, effects.Persist):
            self.persisting = True
            self.later(world.disk_ms(), lambda: self._persisted(effect))
        elif isinstance(effect, effects.Send):
            world.send(self, effect.node_id, effect.request)
        elif isinstance(effect, effects.Reply):
            reply(effect.answer)
            world.answered(self, effect.answer)
        elif isinstance(effect, effects.ReadAndReply):
            self._serve(effect.request, reply)
        elif isinstance(effect, effects.Lead):
            world.leads(self, effect.epoch)
            self.leading_epoch = effect.epoch
            self.append([LEADER_CHANGE])
        elif isinstance(effect, effects.StopLeading):
            self.leading_epoch = -1
            self._wake()
        elif isinstance(effect, effects.Append):
            assert isinstance(effect.records, list)
            self.log.append(effect.records)
            self._flush()
        elif isinstance(effect, effects.Truncate):
            world.truncates(self, effect.end_offset)
            self.log.truncate(effect.end_offset)
            if self.raft is not None:
                self.raft.history.truncate(effect.end_offset)
            self.flush_limit = min(self.flush_limit, effect.end_offset)
            self.later(0, lambda: self.do(lambda raft: raft.log_changed(world.now_ms)))
        elif isinstance(effect, effects.Download):
            world.download(self, effect)
        elif isinstance(effect, effects.Commit):
            world.commits(self, effect.high_watermark)
            self._wake()

    def _persisted(self, effect: effects.Persist) -> None:
        self.persisting = False
        self.stored = Stored(effect.epoch, effect.leader_id, effect.voted)
        self._run()
        self._plan()

    def append(self, values: Iterable[object]) -> None:
        """As the leader."""
        if self.leading_epoch < 0 or self.raft is None or self.raft.epoch != self.leading_epoch:
            return
        self.log.append([Entry(self.leading_epoch, value) for value in values])
        self._flush()
        self._wake()

    def _flush(self) -> None:
        if self.flushing:
            return
        self.flushing = True
        # What is written after the flush began isn't covered by it, also where it replaces records that were cut.
        self.flush_limit = self.log.end_offset

        def flushed() -> None:
            self.flushing = False
            self.log.flushed_end_offset = max(
                self.log.flushed_end_offset, min(self.flush_limit, self.log.end_offset)
            )
            self.do(lambda raft: raft.log_changed(self.world.now_ms))
            if self.log.flushed_end_offset < self.log.end_offset:
                self._flush()

        self.later(self.world.disk_ms(), flushed)

    def _serve(self, request: FetchRequest, reply: Callable[[object], None], *, last: bool = False) -> bool:
        assert self.raft is not None
        answer = self.raft.fetch_answer(request)
        is_ok = not answer.error and answer.diverging is None and answer.snapshot is None
        records = self.log.read(request.offset, self.world.random.randint(1, 5)) if is_ok else []
        news = answer.high_watermark > request.high_watermark
        if is_ok and not records and not news and not last:
            if (request, reply) not in self.parked:
                self.parked.append((request, reply))
                self.later(FETCH_WAIT_MS, lambda: self._expire(request, reply))
            return False
        reply(answer._replace(records=records or None))
        return True

    def _expire(self, request: FetchRequest, reply: Callable[[object], None]) -> None:
        if (request, reply) in self.parked:
            self.parked.remove((request, reply))
            self._serve(request, reply, last=True)

    def _wake(self) -> None:
        for parked_fetch in list(self.parked):
            if parked_fetch in self.parked and self._serve(*parked_fetch):
                self.parked.remove(parked_fetch)

    def _plan(self) -> None:
        if self.raft is None:
            return
        due_ms = self.raft.next_deadline_ms
        if due_ms == float("inf"):
            return
        self.timer += 1
        number = self.timer

        def tick() -> None:
            if self.timer == number:
                self.do(lambda raft: raft.tick(self.world.now_ms))

        self.later(max(due_ms - self.world.now_ms, 0.01), tick)


class World:
    """The nodes, the links, the time, and what must hold.

    :param directories: the voters are disks, not nodes (``kraft.version`` 1)
    """

    node_class = Node

    def __init__(
        self, seed: int, nodes: int = 3, settings: Settings | None = None, *, directories: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.settings = settings or Settings()
        self.now_ms = 0.0
        ids = range(1, nodes + 1)
        disks = {node_id: bytes([node_id, *bytes(15)]) if directories else NO_DIRECTORY for node_id in ids}
        self.voters = VoterSet(Voter(ReplicaKey(node_id, disk)) for node_id, disk in disks.items())
        self.nodes = {node_id: self.node_class(self, node_id) for node_id in ids}
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.disk_slow = 1.0
        self.voters_to_kill = 0
        """So many voters die as soon as they have told a vote, and are there again at once."""
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.committed_in: list[int] = []
        """The epoch in which a record was committed first. It rises with the offset."""
        self.messages = 0
        self.faults: dict[str, int] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    # Time

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._number, action))

    def run(self, duration_ms: float, until: Callable[[], bool] | None = None) -> bool:
        """Run for so long, or until it holds; whether it does."""
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
            if until is not None and until():
                return True
        self.now_ms = end_ms
        return until is not None and until()

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def draw(self, _node: Node) -> float:
        """A random number from 0 to 1 for a replica's pauses."""
        return self.random.random()

    def disk_ms(self) -> float:
        return self.random.uniform(0.5, 4) * self.disk_slow

    # Messages

    def send(self, sender: Node, target_id: int, request: Request) -> None:
        self.messages += 1
        target = self.nodes.get(target_id if target_id > 0 else FIRST_BOOTSTRAP_ID + 1 - target_id)
        done = [False]

        def finish(answer: object) -> None:
            if done[0]:
                return
            done[0] = True
            if target is not None:
                target.callers.pop(lost_connection, None)
            if answer is None:
                sender.do(lambda raft: raft.send_failed(target_id, request, self.now_ms))
            else:
                assert isinstance(answer, VoteAnswer | EpochAnswer | FetchAnswer)
                sender.do(lambda raft: raft.answered(target_id, request, answer, self.now_ms))

        incarnation = sender.incarnation

        def lost_connection() -> None:
            if sender.incarnation == incarnation and (target_id, sender.id) not in self.cut:
                self._deliver(sender, lambda: finish(None))

        def refuse() -> None:
            assert target is not None
            if target.refuses and sender.raft is not None and sender.raft.leader_id == target_id:
                sender.do(lambda raft: raft.leader_refused(self.now_ms))
            finish(None)

        def answer_comes(answer: object) -> None:
            lost = self._lost(target_id, sender.id)
            self.seen(target_id, sender.id, answer, lost=lost)
            if not lost:
                self._deliver(sender, lambda: finish(answer))

        def arrive() -> None:
            assert target is not None
            if target.raft is None:
                self._deliver(sender, refuse)
                return
            copies = 2 if self.random.random() < self.loss / 2 else 1
            for _ in range(copies):
                self.handle(target, request, answer_comes)

        sender.later(REQUEST_TIMEOUT_MS, lambda: finish(None))
        lost = target is None or self._lost(sender.id, target_id)
        self.seen(sender.id, target_id, request, lost=lost)
        if target is not None and target.raft is not None:
            target.callers[lost_connection] = None
        if target is not None and not lost:
            if target.raft is None:
                self._deliver(sender, refuse)
            else:
                self._deliver(target, arrive)

    def end_connections(self, node: Node) -> None:
        """The process is gone: its machine ends the connections to it, where a link is there to tell."""
        callers, node.callers = node.callers, {}
        for lost_connection in callers:
            lost_connection()

    def seen(self, source: int, target: int, message: object, *, lost: bool) -> None:
        """A message was sent."""

    def _lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cut or self.random.random() < self.loss

    def _deliver(self, node: Node, action: Callable[[], None]) -> None:
        node.later(self.random.uniform(0.1, 3), action)

    def handle(self, node: Node, request: Request, reply: Callable[[object], None]) -> None:
        def step(raft: Raft) -> list[effects.Effect]:
            if isinstance(request, VoteRequest):
                return raft.vote(request, self.now_ms)
            if isinstance(request, FetchRequest):
                return raft.fetch(request, self.now_ms)
            if isinstance(request, BeginEpoch):
                return raft.begin_epoch(request, self.now_ms)
            assert isinstance(request, EndEpoch)
            return raft.end_epoch(request, self.now_ms)

        node.do(step, reply)

    def answered(self, node: Node, answer: object) -> None:
        """A replica has answered a request."""
        voted = node.raft is not None and node.raft.voted is not None
        if not self.voters_to_kill or not voted or not isinstance(answer, VoteAnswer) or not answer.granted:
            return
        self.voters_to_kill -= 1
        self.faults["killed voter"] = self.faults.get("killed voter", 0) + 1
        incarnation, power = node.incarnation, self.random.random() < 0.5

        def die() -> None:
            if node.incarnation == incarnation:
                node.crash(power=power)
                node.start()

        self.at(0, die)

    def download(self, node: Node, effect: effects.Download) -> None:
        leader = self.nodes[effect.leader_id]

        def done() -> None:
            has_snapshot = leader.raft is not None and effect.snapshot in leader.log.snapshots
            reachable = not self._lost(node.id, leader.id) and not self._lost(leader.id, node.id)
            current = node.raft is not None and node.raft.epoch == effect.epoch
            if has_snapshot and reachable and current:
                node.install(effect.snapshot)
                node.do(lambda raft: raft.log_changed(self.now_ms))
            else:
                node.do(lambda raft: raft.download_failed(effect.epoch, self.now_ms))

        node.later(self.random.uniform(1, 30), done)

    # What must hold

    def leads(self, node: Node, epoch: int) -> None:
        other = self.leaders.setdefault(epoch, node.id)
        if other != node.id:
            raise BrokenPromiseError(f"epoch {epoch} has the leaders {other} and {node.id}")
        # A stalled candidate may win an old epoch late; what later epochs committed is none of its business.
        end = sum(1 for committed_in in self.committed_in if committed_in < epoch)
        if node.log.end_offset < end:
            raise BrokenPromiseError(
                f"leader {node.id} lacks committed records: {node.log.end_offset} < {end}"
            )
        for offset in range(node.log.start_offset, end):
            if node.log.at(offset) != self.committed[offset]:
                raise BrokenPromiseError(f"leader {node.id} has another record at {offset}")

    def commits(self, node: Node, high_watermark: int) -> None:
        if high_watermark > node.log.end_offset:
            raise BrokenPromiseError(
                f"node {node.id} commits {high_watermark} behind its end {node.log.end_offset}"
            )
        for offset in range(node.log.start_offset, high_watermark):
            entry = node.log.at(offset)
            if offset < len(self.committed):
                if self.committed[offset] != entry:
                    raise BrokenPromiseError(f"node {node.id} commits another record at {offset}")
            else:
                self.committed.append(entry)
                self.committed_in.append(node.raft.epoch if node.raft else 0)

    def truncates(self, node: Node, end_offset: int) -> None:
        """Nothing that this node knows as committed is cut."""
        if node.raft is not None and end_offset < node.raft.high_watermark:
            raise BrokenPromiseError(f"node {node.id} cuts committed records")

    @property
    def leader(self) -> Node | None:
        """The node that leads the highest epoch."""
        leading = [node for node in self.nodes.values() if node.raft is not None and node.leading_epoch >= 0]
        return max(leading, key=lambda node: node.leading_epoch, default=None)
