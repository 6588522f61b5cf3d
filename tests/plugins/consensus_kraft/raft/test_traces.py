"""Scripts for a quorum of pure replicas, and what comes of them: messages, effects and roles, a line each.

A line that begins with ``>`` is a command. What happens until the next one stands below it, with the time in ms:

* ``quorum N [disks]`` makes voters 1 to N: nodes, or, with ``disks``, node ids with directory ids. It is the first one
* ``start N…``; ``kill N…`` ends the process, ``power N…`` takes what isn't flushed along, ``lose N`` its disk
* ``run MS`` lets time pass; ``until leader`` runs until one leads, ``until agreed`` until all that run have committed
  the leader's whole log
* ``append N COUNT`` writes records at the leader; ``resign N``; ``refused N``: its leader's port refuses
* ``cut N M`` cuts both directions between two replicas, ``heal`` mends all; ``snapshot N END`` replaces records below
* ``logs`` shows each log: the epoch of each record, how much is flushed, how much the replica knows as committed
* ``quietly COMMAND`` carries a command out and leaves out what comes of it

A message takes 1 ms, and so does a disk. Node N draws (2N - 1) tenths of each random pause's limit. A Fetch is left out
where it says the same as the sender's last one to that node, and so is an answer.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import (
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    VoteAnswer,
    VoteRequest,
)
from blumfeld_consensus_kraft.raft.raft import Raft
from blumfeld_consensus_kraft.raft.voters import NO_DIRECTORY, ReplicaKey
from tests.plugins.consensus_kraft.raft.world import LEADER_CHANGE, Node, World
from tests.trace_files import check_trace, each_trace, trace_names

UNTIL_MS_MAX = 60_000


class Steady:
    """Stands in for a source of random numbers: no message is lost, and all takes 1 ms."""

    def random(self) -> float:
        return 0.5

    def uniform(self, _low: float, _high: float) -> float:
        return 1.0

    def randint(self, _low: int, high: int) -> int:
        return high


class ShownNode(Node):
    """A node whose effects are written down."""

    world: Stage

    def do(
        self, step: Callable[[Raft], list[effects.Effect]], reply: Callable[[object], None] | None = None
    ) -> None:
        before = self._role()
        super().do(lambda raft: self._stepped(raft, step, before), reply)

    def _stepped(
        self, raft: Raft, step: Callable[[Raft], list[effects.Effect]], before: str
    ) -> list[effects.Effect]:
        out = step(raft)
        if self._role() != before:
            self.world.show(f"{self.id} is {self._role()}")
        return out

    def _role(self) -> str:
        return "" if self.raft is None else type(self.raft.role).__name__.lower()

    def _execute(self, effect: effects.Effect, reply: Callable[[object], None]) -> None:
        shown = self._text(effect)
        if shown:
            self.world.show(f"{self.id} {shown}")
        super()._execute(effect, reply)

    def _text(self, effect: effects.Effect) -> str:
        match effect:
            case effects.Persist(epoch, leader_id, voted):
                vote = "" if voted is None else f" vote={name(voted)}"
                return f"writes epoch={epoch} leader={known(leader_id)}{vote}"
            case effects.LeaderIs(epoch, leader_id):
                return f"knows epoch {epoch}, leader {known(leader_id)}"
            case effects.Lead(epoch, granting):
                return f"leads epoch {epoch}, elected by {' '.join(map(name, granting))}"
            case effects.StopLeading(epoch):
                return f"leads epoch {epoch} no more"
            case effects.Append(records):
                epochs = " ".join(str(record.epoch) for record in records)
                return f"appends at {self.log.end_offset}: {epochs}"
            case effects.Truncate(end_offset):
                return f"cuts its log to {end_offset}"
            case effects.Download(leader_id, _, snapshot):
                return f"fetches snapshot {snapshot.end_offset}-{snapshot.epoch} from {leader_id}"
            case effects.Commit(high_watermark):
                return f"commits up to {high_watermark}"
        return ""

    def _persisted(self, effect: effects.Persist) -> None:
        self.world.show(f"{self.id} has written epoch={effect.epoch}")
        super()._persisted(effect)


class Stage(World):
    """The world of one script."""

    node_class = ShownNode

    def __init__(self, nodes: int, *, directories: bool) -> None:
        self.lines: list[str] = []
        self._last: dict[tuple[int, int, type], str] = {}
        super().__init__(0, nodes, directories=directories)
        self.random = Steady()  # type: ignore[assignment]

    def show(self, text: str) -> None:
        self.lines.append(f"{self.now_ms:7.1f}  {text}")

    def draw(self, node: Node) -> float:
        return (2 * node.id - 1) / 10

    def seen(self, source: int, target: int, message: object, *, lost: bool) -> None:
        text = text_of(message)
        if isinstance(message, FetchRequest | FetchAnswer):
            if self._last.get((source, target, type(message))) == text and not lost:
                return
            self._last[source, target, type(message)] = text
        down = self.nodes[target].raft is None
        end = " (lost)" if lost else " (it is down)" if down else ""
        self.show(f"{source} -> {target}  {text}{end}")


def known(leader_id: int) -> str:
    return str(leader_id) if leader_id >= 0 else "none"


def name(key: ReplicaKey) -> str:
    """``3``, or ``3/b`` for the second disk of node 3."""
    disk = "" if key.directory_id == NO_DIRECTORY else f"/{chr(ord('a') + key.directory_id[-1])}"
    return f"{key.id}{disk}"


def text_of(message: object) -> str:
    match message:
        case VoteRequest(epoch, candidate, voter, last_epoch, end_offset, pre_vote):
            kind = "PreVote" if pre_vote else "Vote"
            disks = f" of {name(voter)} for {name(candidate)}" if "/" in name(voter) else ""
            return f"{kind} epoch={epoch}{disks} log ends at {end_offset}, epoch {last_epoch}"
        case VoteAnswer(error, epoch, leader_id, granted):
            return ("granted" if granted else f"refused{named(error)}") + f" epoch={epoch}{leads(leader_id)}"
        case BeginEpoch(epoch, leader_id, voter):
            disk = f" at {name(voter)}" if "/" in name(voter) else ""
            return f"BeginQuorumEpoch epoch={epoch} leader={leader_id}{disk}"
        case EndEpoch(epoch, leader_id, successors):
            return f"EndQuorumEpoch epoch={epoch} successors={' '.join(map(name, successors))}"
        case EpochAnswer(error, epoch, leader_id):
            return f"answer{named(error)} epoch={epoch}{leads(leader_id)}"
        case FetchRequest(replica, epoch, offset, last_epoch, high_watermark):
            disk = f" by {name(replica)}" if "/" in name(replica) else ""
            ends = f"from {offset}, epoch {last_epoch}"
            return f"Fetch epoch={epoch}{disk} {ends}, committed {max(high_watermark, 0)}"
        case FetchAnswer(error, epoch, leader_id, high_watermark, diverging, snapshot, records):
            if error is not ErrorCode.NONE:
                return f"answer{named(error)} epoch={epoch}{leads(leader_id)}"
            text = f"answer committed {max(high_watermark, 0)}"
            if diverging is not None:
                return f"{text}, diverging: epoch {diverging.epoch} ends at {diverging.end_offset}"
            if snapshot is not None:
                return f"{text}, take snapshot {snapshot.end_offset}-{snapshot.epoch}"
            return f"{text}, {len(records or [])} records"
    raise AssertionError(f"{message!r} is no message of the quorum")


def named(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f" {error.name}"


def leads(leader_id: int) -> str:
    return f" leader={leader_id}" if leader_id >= 0 else ""


class RaftTrace:
    """The state of one script."""

    def __init__(self) -> None:
        self.stage = Stage(3, directories=False)

    def run(self, line: str) -> list[str]:
        """What a command comes to."""
        command, *words = line.split()
        self.stage.lines.clear()
        do: Callable[[list[str]], None] = getattr(self, f"do_{command}")
        do(words)
        return list(self.stage.lines)

    def _nodes(self, words: list[str]) -> list[Node]:
        return [self.stage.nodes[int(word)] for word in words]

    def do_quorum(self, words: list[str]) -> None:
        self.stage = Stage(int(words[0]), directories="disks" in words)

    def do_quietly(self, words: list[str]) -> None:
        self.run(" ".join(words))
        self.stage.lines.clear()

    def do_start(self, words: list[str]) -> None:
        for node in self._nodes(words):
            node.start()

    def do_kill(self, words: list[str]) -> None:
        for node in self._nodes(words):
            node.crash(power=False)

    def do_power(self, words: list[str]) -> None:
        for node in self._nodes(words):
            node.crash(power=True)

    def do_lose(self, words: list[str]) -> None:
        for node in self._nodes(words):
            node.lose_disk()

    def do_run(self, words: list[str]) -> None:
        self.stage.run(float(words[0]))

    def do_until(self, words: list[str]) -> None:
        until = {"leader": self._has_leader, "agreed": self._agree}[words[0]]
        assert self.stage.run(UNTIL_MS_MAX, until), f"no {words[0]} after {UNTIL_MS_MAX} ms"

    def _has_leader(self) -> bool:
        leader = self.stage.leader
        return leader is not None and leader.log.last_epoch == leader.leading_epoch

    def _agree(self) -> bool:
        leader = self.stage.leader
        rafts = [node.raft for node in self.stage.nodes.values() if node.raft is not None]
        return leader is not None and {raft.high_watermark for raft in rafts} == {leader.log.end_offset}

    def do_append(self, words: list[str]) -> None:
        (node,) = self._nodes(words[:1])
        before = node.log.end_offset
        node.append(range(int(words[1])))
        assert node.log.end_offset == before + int(words[1]), f"{node.id} does not lead"

    def do_resign(self, words: list[str]) -> None:
        (node,) = self._nodes(words)
        node.do(lambda raft: raft.resign(self.stage.now_ms))

    def do_refused(self, words: list[str]) -> None:
        for node in self._nodes(words):
            node.do(lambda raft: raft.leader_refused(self.stage.now_ms))

    def do_cut(self, words: list[str]) -> None:
        first_id, other = map(int, words)
        self.stage.cut |= {(first_id, other), (other, first_id)}

    def do_heal(self, _: list[str]) -> None:
        self.stage.cut.clear()

    def do_snapshot(self, words: list[str]) -> None:
        (node,) = self._nodes(words[:1])
        node.log.snapshot(int(words[1]))

    def do_logs(self, _: list[str]) -> None:
        for node in self.stage.nodes.values():
            start = f"snapshot {node.log.start_offset} | " if node.log.start_offset else ""
            records = " ".join(
                f"{entry.epoch}L" if entry.value == LEADER_CHANGE else f"{entry.epoch}"
                for entry in node.log.entries
            )
            committed = "down" if node.raft is None else f"committed {node.raft.high_watermark}"
            self.stage.lines.append(
                f"{name(node.key)}: {start}{records or 'empty'} | flushed {node.log.flushed_end_offset}, {committed}"
            )


@each_trace("raft")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, RaftTrace().run)


def test_each_story_has_a_trace() -> None:
    assert len(trace_names("raft")) >= 7
