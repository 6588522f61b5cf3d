"""The controller at work: it decides, writes and answers for one epoch.

A command is decided on at once and replayed into the controller's image, so the next one sees it. Its writes are sent
behind those before; when the tree has them, the brokers are told, and then the reply goes out. A response without
writes waits likewise for what it may have seen.

Events come from the tree and from brokers: brokers that come and go, topics that others mark or create, replicas that
fail. They are decided on one after the other, each to its last part, because a broker's next registration must not come
between the parts of its end. Commands come between the parts.

A write that fails ends this controller: it is dropped, and the next one reads the tree. While the session is suspended
it decides nothing; commands and events wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from blumfeld.metadata.controller import Controller, PeriodicCommand
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.slices import BATCH_RECORDS_MAX
from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.defects import command_text, place_of
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import Operation, ZooKeeper
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_partition import AlterPartitionRequest
from blumfeld.wire.messages.controlled_shutdown import ControlledShutdownRequest
from blumfeld.wire.messages.create_partitions import CreatePartitionsRequest
from blumfeld.wire.messages.create_topics import CreateTopicsRequest
from blumfeld.wire.messages.metadata_records import RegisterBrokerRecord, RemoveTopicRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep
from blumfeld_consensus_zk_compat.controller.broker_lives import (
    NO_RESPONSE,
    broker_came,
    broker_went,
    elect_left_over,
    replicas_failed,
    replicas_restored,
    shut_down,
)
from blumfeld_consensus_zk_compat.controller.decided_steps import (
    DecidedStep,
    replayed,
    with_leader_epochs,
)
from blumfeld_consensus_zk_compat.controller.deletions import Deletions, Effect, StopReplicas, deletion_of
from blumfeld_consensus_zk_compat.controller.election import Elected
from blumfeld_consensus_zk_compat.controller.isr_changes import alter_or_tell_again
from blumfeld_consensus_zk_compat.controller.topic_names import create_unless_marked, grow_unless_marked
from blumfeld_consensus_zk_compat.controller.writes import Writes
from blumfeld_consensus_zk_compat.ports import Pushes

ASK_AGAIN_MS = 100
"""Pause before a broker is asked again to stop replicas, if the request was lost with its channel."""
REFUSED_MS = 5_000
"""Pause before a broker is asked again to stop replicas that it could not stop."""
_LASTING = frozenset({ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR})
"""Answers that only the broker's next process changes: the replica is deleted, or its disk is lost."""
NOT_OF_A_TREE = frozenset(
    {
        "AssignReplicasToDirsRequest",
        "BrokerHeartbeatRequest",
        "BrokerRegistrationRequest",
        "ControllerRegistrationRequest",
        "UnregisterBrokerRequest",
    }
)
"""Commands of a KRaft controller that a tree has no place for. Kafka 3.9 refuses them with a ZooKeeper, too."""

Decide = Callable[[ControllerState, Moment], ControllerDecision]


class Part(NamedTuple):
    """A decision to make, or the next part of one."""

    command: object
    """The request, or words for a work of the controller's own."""
    decide: Decide
    reply: Completion[Message] | None = None
    is_event: bool = False
    """No other event may come before its last part."""
    is_learned: bool = False
    """Its records are what the tree has already: they are not written."""
    replayed: Callable[[], None] | None = None
    """Is called when the first part is in the image."""
    written: Callable[[Sequence[DecidedStep]], None] | None = None
    """Is told of the steps of each part, when the tree has them and the brokers are being told."""
    ended: Callable[[], None] | None = None
    """Is called when the tree has the last part, also after a defect."""
    ends_take_over: bool = False
    """Nothing is decided from here to :meth:`ActiveController.begin`: the brokers are told of the image then, and it
    may not be ahead of the tree.
    """


class ActiveController:
    """The controller of one node and epoch. It takes commands from :meth:`begin` to :meth:`stop`, and events before.

    :param controller: decides; over the image that was read from the tree
    :param multis_of: the operations that write a change, each ``multi`` with its check of the epoch
    :param remove_topic: removes what the tree has of a topic, its mark last, and then calls back
    :param check: raises ``BrokerError`` for records that a tree can't keep
    :param dropped: is told of the error that ended this controller
    :param fenced: as of :class:`Writes`
    """

    def __init__(
        self,
        *,
        elected: Elected,
        zookeeper: ZooKeeper,
        runtime: Runtime,
        events: EventLog,
        controller: Controller,
        pushes: Pushes,
        multis_of: Callable[[Change], Sequence[Sequence[Operation]]],
        remove_topic: Callable[[TopicImage, Callable[[], None]], None],
        check: Callable[[Sequence[Message]], None],
        dropped: Callable[[BaseException], None],
        fenced: Callable[[], None],
    ) -> None:
        self.id = elected.id
        self.pushes = pushes
        self.writes = Writes(zookeeper, self.drop, fenced)
        self.deletions = Deletions()
        self._runtime = runtime
        self._events = events
        self._defects = RepeatedEvents(runtime)
        self._controller = controller
        self._multis_of = multis_of
        self._remove_topic = remove_topic
        self._check = check
        self._dropped = dropped
        self._marked: set[str] = set()
        """Topics whose names are taken until the tree has nothing of them."""
        self._lost_replicas: dict[int, dict[TopicPartition, None]] = {}
        """The replicas on lost disks, by broker."""
        self._placing: Steps[None] | None = None
        """The decision that is being replayed."""
        self._behind: deque[Part] = deque()
        """Commands that wait for its end, or for :meth:`begin`."""
        self._parts: deque[Part] = deque()
        """The next parts of commands, and periodic work."""
        self._happened: deque[Part] = deque()
        """Events; the first one may be the next part of one."""
        self._replies: dict[Completion[Message], None] = {}
        self._before: list[Change] = []
        """Changes that the tree has, from before :meth:`begin`."""
        self._work: Work | None = None
        self._periodic: dict[str, Timer] = {}
        self._begun = False
        self._holds = False
        """The take-over is decided, and being written."""
        self._suspended = False
        self._stopped = False

    @property
    def state(self) -> ControllerState:
        """The state that decisions read."""
        return self._controller.state

    @property
    def is_replaying(self) -> bool:
        """Whether the image has a part of a large decision that isn't sent yet."""
        return self._placing is not None

    def begin(self) -> None:
        """The take-over is at its end: the brokers are told, and the commands that waited are decided on."""
        if self._stopped:
            return
        self._begun, self._holds = True, False
        before, self._before = self._before, []
        self.pushes.begin(self.id, self.state.image, [c for c in before if not c.topics_deleted])
        for change in before:
            if change.topics_deleted:
                self._committed(change)
        for command in self._controller.periodic():
            if command.decide != self._controller.noop:  # a record for logs
                self._plan(command)
        self._go()

    def stop(self) -> None:
        """Stop deciding. What waits gets NOT_CONTROLLER."""
        if self._stopped:
            return
        self._stopped = True
        self.writes.stop()
        self.pushes.stop()
        for timer in (*self._periodic.values(), self._work):
            if timer is not None:
                timer.cancel()
        self._placing = None
        for waiting in (self._parts, self._behind, self._happened):
            waiting.clear()
        for reply in list(self._replies):
            self._fail(reply, BrokerError(ErrorCode.NOT_CONTROLLER))

    def drop(self, error: BaseException) -> None:
        """Stop, because the tree may not be as this controller has it."""
        if not self._stopped:
            self.stop()
            self._dropped(error)

    def suspend(self) -> None:
        """The session has no server: decide nothing until :meth:`resume`."""
        self._suspended = True

    def resume(self) -> None:
        """The session has a server again."""
        self._suspended = False
        self._go()

    # What is to be decided

    def submit(self, command: Message, reply: Completion[Message]) -> None:
        """Decide, write, push; ``reply`` completes when the tree has it. Fails with ``BrokerError`` NOT_CONTROLLER if
        this node stops being the controller first: whether the change took place isn't known then.
        """
        if self._stopped:
            reply.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        self._replies[reply] = None
        part = self._command(command, reply)
        if self._begun and not (self._suspended or self._placing or self._behind):
            self._make(part)
        else:
            self._behind.append(part)
        self._go()

    def happened(self, event: Part) -> None:
        """Decide on an event, behind those before it."""
        if not self._stopped:
            self._happened.append(event._replace(is_event=True))
            self._go()

    def soon(self, part: Part) -> None:
        """Decide on something that may stand anywhere among the events."""
        if not self._stopped:
            self._parts.append(part)
            self._go()

    def _command(self, command: Message, reply: Completion[Message]) -> Part:
        decide = self._controller.command
        part = Part(command, lambda _, moment: decide(command, moment), reply)
        if type(command).__name__ in NOT_OF_A_TREE:
            return part._replace(decide=partial(_refuse, type(command).__name__))
        if isinstance(command, CreateTopicsRequest):
            return part._replace(decide=lambda s, m: create_unless_marked(s, command, m, self._marked))
        if isinstance(command, CreatePartitionsRequest):
            return part._replace(decide=lambda s, m: grow_unless_marked(s, command, m, self._marked))
        if isinstance(command, AlterPartitionRequest):
            return part._replace(decide=lambda s, m: alter_or_tell_again(s, command, m))
        if isinstance(command, ControlledShutdownRequest):
            stop = partial(self._stop_followers, command.broker_id)
            return part._replace(decide=lambda s, m: shut_down(s, command, m), written=stop)
        return part

    # Brokers

    def broker_came(self, registration: RegisterBrokerRecord, *, is_new: bool) -> None:
        """A broker's znode has appeared, or has other listeners."""
        broker_id = registration.broker_id

        def registered() -> None:
            if self._begun and is_new:
                self.pushes.broker_came(broker_id)
                # It has heard of no deletion that is under way, and its image has the topics.
                for change in self.deletions.changes():
                    self.pushes.committed(change)
            self.soon(Part("left-over elections", elect_left_over, ended=ended))

        def ended() -> None:
            self._ask_again(broker_id)

        decide = partial(broker_came, registration=registration)
        self.happened(Part(f"broker {broker_id} came", decide, is_learned=True, replayed=registered))

    def broker_went(self, broker_id: int, broker_epoch: int) -> None:
        """A broker's znode is gone."""

        def unregistered() -> None:
            self._lost_replicas.pop(broker_id, None)
            if self._begun:
                self.pushes.broker_went(broker_id)

        def restore(state: ControllerState, moment: Moment) -> ControllerDecision:
            lost = tuple(self._lost_replicas.get(broker_id, ()))
            return replicas_restored(state, moment, broker_id=broker_id, partitions=lost)

        self.happened(Part(f"replicas of broker {broker_id} are forgotten", restore, is_learned=True))
        decide = partial(broker_went, broker_id=broker_id, broker_epoch=broker_epoch)
        self.happened(Part(f"broker {broker_id} went", decide, replayed=unregistered))

    def replicas_failed(self, broker_id: int, partitions: Sequence[TopicPartition]) -> None:
        """A broker can't open replicas. A ``ports.ReplicaFailed``."""
        decide = partial(replicas_failed, broker_id=broker_id, partitions=partitions)

        def note() -> None:
            self._lost_replicas.setdefault(broker_id, {}).update(dict.fromkeys(partitions))

        self.happened(Part(f"replicas of broker {broker_id} failed", decide, replayed=note))

    def _stop_followers(self, broker_id: int, steps: Sequence[DecidedStep]) -> None:
        """Have a broker that shuts down fetch no more where it follows: it left the ISR, and would be in the way of the
        high watermark.
        """
        followed = [
            TopicPartition(step.topic, step.before.partition)
            for decided in steps
            for step in decided.change.partitions
            if step.before is not None and step.before.leader != broker_id and broker_id in step.before.isr
        ]
        if followed and broker_id in self.state.image.brokers:
            self.pushes.stop_replicas(broker_id, followed, delete=False)

    # Topics that go

    def resume_deletions(self, topics: Sequence[TopicImage]) -> None:
        """Go on with topics that an earlier controller has marked, and that the image hasn't. Before :meth:`begin`."""
        self._marked.update(topic.name for topic in topics)
        self._before += map(deletion_of, topics)

    def topics_marked(self, names: Sequence[str]) -> None:
        """Somebody else has marked topics; the tree has the marks."""
        self._marked.update(names)
        for name in names:
            self.happened(Part(f"topic {name} is marked", partial(_removed, name=name), is_learned=True))

    def is_marked(self, name: str) -> bool:
        """Whether the topic is on its way out."""
        return name in self._marked

    def _do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if self._stopped:
                return
            if isinstance(effect, StopReplicas):
                stopped = self.pushes.stop_replicas(effect.broker_id, effect.partitions, delete=True)
                stopped.when_done(partial(self._replicas_stopped, effect.broker_id))
            else:
                self._remove_topic(effect.topic, partial(self._topic_removed, effect.topic.name))

    def _replicas_stopped(self, broker_id: int, stopped: Completion[dict[TopicPartition, ErrorCode]]) -> None:
        if self._stopped:
            return
        if stopped.error is not None:
            self._runtime.call_later(ASK_AGAIN_MS, partial(self._ask_again, broker_id))
            return
        answers = stopped.result()
        if not _LASTING.issuperset(answers.values()):
            self._runtime.call_later(REFUSED_MS, partial(self._ask_again, broker_id))
        self._do(self.deletions.answered(broker_id, answers))

    def _ask_again(self, broker_id: int) -> None:
        if self._begun and not self._stopped:
            self._do(self.deletions.ask_again(broker_id, self.state.image.brokers))

    def _topic_removed(self, name: str) -> None:
        self._marked.discard(name)
        self.deletions.removed(name)

    # Decisions

    def _moment(self) -> Moment:
        return Moment(
            now_ms=self._runtime.monotonic_ms(),
            wall_ms=self._runtime.now_ms(),
            next_offset=self.state.image.offset + 1,
            new_uuid=self._runtime.new_uuid,
            new_secret=self._runtime.secrets,
        )

    def _make(self, part: Part) -> None:
        """Decide and replay: now if the records are few. None may be under way."""
        self._holds = part.ends_take_over
        try:
            decision = part.decide(self.state, self._moment())
            if not part.is_learned:
                self._check(decision.records)
                by_leader = isinstance(part.command, AlterPartitionRequest)
                with_leader_epochs(self.state.image, decision.records, by_leader=by_leader)
        except BrokerError as error:
            self._undecided(part, error)
        except Exception as defect:
            self._defects.say(
                self._events.error,
                "a controller's command met a defect",
                (type(part.command), place_of(defect)),
                command=command_text(part.command),
                exc_info=defect,
            )
            self._undecided(part, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            if decision.rest is not None:
                rest = part._replace(decide=decision.rest, replayed=None)
                if part.is_event:
                    self._happened.appendleft(rest)
                else:
                    self._parts.append(rest)
            self._placing = self._place(part, decision)
            self._step()

    def _undecided(self, part: Part, error: BrokerError) -> None:
        if part.reply is not None:
            self._fail(part.reply, error)
        if part.ended is not None:
            self.writes.send((), part.ended)

    def _step(self) -> None:
        """Do the next step of the decision that is being replayed. A small one has one."""
        placing = self._placing
        if placing is None:
            return
        try:
            next(placing)
        except StopIteration:
            self._placing = None

    def _place(self, part: Part, decision: ControllerDecision) -> Steps[None]:
        try:
            steps = yield from replayed(self.state.image, decision.records, self.id.epoch)
            if len(decision.records) > BATCH_RECORDS_MAX:
                yield None  # to make its writes takes a turn of its own
            self._send(part, decision, steps)
        except Exception as defect:  # the image is half changed
            self._events.error("a decision contradicts the controller's image", exc_info=defect)
            self.drop(defect)

    def _send(self, part: Part, decision: ControllerDecision, steps: Sequence[DecidedStep]) -> None:
        if part.replayed is not None:
            part.replayed()
        for change, _ in steps:
            self._marked.update(topic.name for topic in change.topics_deleted)
            multis = () if part.is_learned else self._multis_of(_of_the_tree(change))
            self.writes.send(multis, partial(self._committed, change))
        self.writes.send((), partial(self._written, part, decision, steps))

    def _committed(self, change: Change) -> None:
        if self._begun:
            self.pushes.committed(change)
            if change.topics_deleted:
                self._do(self.deletions.begin(change.topics_deleted, self.state.image.brokers))
        else:
            self._before.append(change)

    def _written(self, part: Part, decision: ControllerDecision, steps: Sequence[DecidedStep]) -> None:
        if part.written is not None:
            part.written(steps)
        if decision.rest is not None:
            return
        if part.reply is not None:
            self._replies.pop(part.reply, None)
            if not part.reply.done:
                part.reply.complete(decision.response)
        if part.ended is not None:
            part.ended()

    def _fail(self, reply: Completion[Message], error: BrokerError) -> None:
        self._replies.pop(reply, None)
        if not reply.done:
            reply.fail(error)

    # Turns

    @property
    def _has_work(self) -> bool:
        if self._suspended or self._stopped or self._holds:
            return False
        return bool(self._placing or self._parts or self._happened or (self._begun and self._behind))

    def _go(self) -> None:
        if self._has_work and (self._work is None or self._work.done):
            self._work = self._runtime.scheduler.run(Lane.METADATA, self._go_on(), at_once=False)

    def _go_on(self) -> Steps[None]:
        """Go on with a large decision, then with the commands that waited for its end, then with events and next parts
        in turn.
        """
        event_next = True
        while self._has_work:
            room = self.writes.room
            if self._placing is not None:
                self._step()
            elif self._begun and self._behind:
                part = self._behind.popleft()
                if part.reply is not None and part.reply.done:  # its time was over
                    self._replies.pop(part.reply, None)
                else:
                    self._make(part)
            elif room is not None:
                yield room
            else:
                queue = self._happened if self._happened and (event_next or not self._parts) else self._parts
                event_next = not event_next
                self._make(queue.popleft())
            yield None

    # Commands of its own

    def _plan(self, command: PeriodicCommand) -> None:
        """Give a command when its interval is over. The next interval begins behind the last part of its decision."""
        if not self._stopped:
            give = partial(self._give, command)
            self._periodic[command.name] = self._runtime.call_later(command.interval_ms, give)

    def _give(self, command: PeriodicCommand) -> None:
        plan = partial(self._plan, command)
        self.soon(Part(command.name, lambda _, moment: command.decide(moment), ended=plan))


def _refuse(name: str, _state: ControllerState, _moment: Moment) -> ControllerDecision:
    raise BrokerError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{name}: a controller that keeps its state in a ZooKeeper has no such command",
    )


def _removed(state: ControllerState, _moment: Moment, *, name: str) -> ControllerDecision:
    topic = state.image.topics.get(name)
    records: list[Message] = [] if topic is None else [RemoveTopicRecord(topic_id=topic.topic_id)]
    return ControllerDecision(records, NO_RESPONSE)


def _of_the_tree(change: Change) -> Change:
    """Returns what the tree has a place for: a replica's lost disk changes no epoch, and stands nowhere."""
    if all(map(_is_written, change.partitions)):
        return change
    return replace(change, partitions=tuple(filter(_is_written, change.partitions)))


def _is_written(step: PartitionStep) -> bool:
    before, after = step.before, step.after
    return before is None or after is None or before.partition_epoch != after.partition_epoch
