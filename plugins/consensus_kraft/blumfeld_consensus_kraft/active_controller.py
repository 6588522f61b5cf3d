"""The controller at work: it decides, places and answers for one epoch, and watches the brokers' sessions.

A command is decided on at once, its records are placed and replayed into the controller's image, so that the next
command sees them. Its response goes out when they are committed. A response that has no records waits likewise for
what it may have seen.

A large decision takes several turns (ADR 0021):

* A decision in parts gives the turn back, and other commands come between its parts.
* A decision of several batches is encoded and placed in steps. Other commands wait until its last batch is placed,
  because what they decide on and what they write must not come between its batches.

A defect in a decision costs that request alone (UNKNOWN_SERVER_ERROR): nothing was placed. A defect while records are
replayed or appended drops the controller, which is rebuilt from the log in the next epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from blumfeld.metadata.brokers.migration import MigrationState, brokers_of_tree, ending, migration_state
from blumfeld.metadata.controller import Controller, PeriodicCommand
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.bootstrap import first_records
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.metadata.image.record_frame import encode_record
from blumfeld.metadata.slices import BATCH_RECORDS_MAX, SLICE_RECORDS
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.defects import command_text, place_of
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.steps import drained
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.publisher import Placed, Publisher, Reply, Unpublished, WaitingReply
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.registration import controller_registration

BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 21
"""The most that length, attributes, deltas and sizes take before a record's value."""


class Batch(NamedTuple):
    """An encoded batch, with the records in it. Offset and epoch are patched in when it is placed."""

    data: bytearray
    records: list[Message]


def batches_of(
    records: Sequence[Message], *, atomic: bool, epoch: int, timestamp_ms: int, bytes_max: int
) -> Steps[list[Batch]]:
    """Encode records, with a ``yield`` after every ``SLICE_RECORDS`` of them. Nothing is changed.

    Records that fit one batch (``BATCH_RECORDS_MAX`` and ``bytes_max``) make one, without a ``yield``.

    :param atomic: put several batches between BeginTransactionRecord and EndTransactionRecord (KIP-868), so that a
        controller that dies between them leaves nothing
    :raises BrokerError: POLICY_VIOLATION: a single record is larger than a batch may be
    """
    groups: list[list[tuple[Message, bytes]]] = [[]]
    size = BATCH_OVERHEAD_BYTES
    for number, record in enumerate(records, start=1):
        value = encode_record(record)
        takes = len(value) + RECORD_OVERHEAD_BYTES
        if takes + BATCH_OVERHEAD_BYTES > bytes_max:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"a record of the change takes {len(value)} bytes of metadata, a batch of {bytes_max} is allowed",
            )
        if size + takes > bytes_max or len(groups[-1]) == BATCH_RECORDS_MAX:
            groups.append([])
            size = BATCH_OVERHEAD_BYTES
        size += takes
        groups[-1].append((record, value))
        if not number % SLICE_RECORDS and len(records) > BATCH_RECORDS_MAX:
            yield None
    if atomic and len(groups) > 1:
        begin, end = BeginTransactionRecord(name="one decision"), EndTransactionRecord()
        groups.insert(0, [(begin, encode_record(begin))])
        groups.append([(end, encode_record(end))])
    batches = []
    for group in groups:
        if len(groups) > 1:
            yield None
        made = [Record(None, value, timestamp=timestamp_ms) for _, value in group]
        batches.append(Batch(build_batch(made, leader_epoch=epoch), [record for record, _ in group]))
    return batches


RETRY_MS = 1_000
"""After a defect: how long before expired sessions are looked at again."""
BUSY_MS = 10
"""Pause before the controller looks again at work of its own that came due while a large decision was being placed."""

Decide = Callable[[ControllerState, Moment], ControllerDecision]


class Part(NamedTuple):
    """A decision to make, or the next part of one."""

    command: object
    """The request, or words for a work of the controller's own."""
    decide: Decide
    reply: Reply | None

    def settle(self, error: BrokerError) -> None:
        """Answer with an error."""
        if self.reply is not None:
            self.reply.fail(error)


class ActiveController:
    """The controller of one node and epoch, which decides from :meth:`begin` to :meth:`stop`.

    :param behind: the steps that the publisher's image is behind the log
    :param silent: the former controller, and when it was heard from last
    :param heard: is told of a broker's heartbeat that was taken and asks to serve: its id and its epoch
    :param failed: is told that the log takes no more
    :param contradicted: is told of a defect that leaves the controller half changed
    :raises Exception: a defect: the log contradicts itself
    """

    def __init__(
        self,
        composition: Composition,
        publisher: Publisher,
        log: RaftLog,
        events: EventLog,
        defects: RepeatedEvents,
        epoch: int,
        behind: Sequence[Unpublished],
        silent: tuple[int, float] | None,
        *,
        heard: Callable[[int, int], None],
        failed: Callable[[OSError], None],
        contradicted: Callable[[Exception], None],
    ) -> None:
        self.id = ControllerId(composition.node_id, epoch)
        self._composition = composition
        self._migration = composition.migration
        self._runtime = composition.runtime
        self._config = composition.config
        self._publisher = publisher
        self._log = log
        self._events = events
        self._defects = defects
        self._heard = heard
        self._failed = failed
        self._contradicted = contradicted
        self._controller = Controller(
            publisher.newest.copy(), self._config, composition.features, composition.controller_commands
        )
        for step in behind:
            self._controller.replay(step.records, step.last_offset - len(step.records) + 1, step.epoch)
        self._controller.take_over(
            self._runtime.monotonic_ms(), composition.node_id, composition.incarnation_id, silent
        )
        self._placing: tuple[Part, Steps[None]] | None = None
        """The decision that is being encoded or placed."""
        self._behind: deque[tuple[Callable[[], None], Reply]] = deque()
        """Commands that wait for its end, and their replies."""
        self._parts: deque[Part] = deque()
        self._work: Work | None = None
        """Goes on with all of these."""
        self._session_timer: Timer | None = None
        self._expiry: Work | None = None
        """Fences the brokers whose sessions are over."""
        self._periodic: dict[str, Timer] = {}
        self._stopped = False

    def begin(self, leader_change: bytearray, bootstrap: Sequence[Message], *, abort: bool) -> None:
        """Begin the epoch: LeaderChange first, and then what a new controller writes.

        :param bootstrap: records that a new cluster begins with, where the metadata has no ``metadata.version``
        :param abort: the log ends within a transaction
        :raises OSError: the log takes no records
        :raises Exception: a defect
        """
        controller = self._controller
        self.place(Batch(leader_change, []))
        if abort:
            self.append([AbortTransactionRecord(reason="the controller changed")])
        if bootstrap and METADATA_VERSION_FEATURE not in controller.image.features:
            min_isr = self._config.int("min.insync.replicas")
            self.append(first_records(list(bootstrap), min_isr))
        request = controller_registration(self._composition, controller.state.features)
        self.append(controller.command(request, self._moment()).records)
        self._make(Part("left-over elections", lambda _, moment: controller.elect_left_over(moment), None))
        self._watch_sessions()
        for command in controller.periodic():
            self._plan(command, command.interval_ms)
        if self._migration is not None:
            self._migration.lead(self)
        else:
            self._end_migration()

    def _end_migration(self) -> None:
        """End a migration that this node takes no part in. Brokers that still read the tree are in the way: nobody
        tells them anything."""
        image = self._controller.image
        if records := ending(image):
            self.append(records)
            self._events.info("the migration from the ZooKeeper is ended")
        elif migration_state(image) is MigrationState.MIGRATION:
            text = (
                "brokers still read the ZooKeeper, and this controller has no [migration]: start it with one"
            )
            self._events.error(text, brokers=brokers_of_tree(image))

    def stop(self, error: BrokerError) -> None:
        """Take no more commands; those that are being decided, and what waits for them, get ``error``."""
        self._stopped = True
        if self._migration is not None:
            self._migration.lead_no_more()
        for timer in (*self._periodic.values(), self._session_timer, self._expiry, self._work):
            if timer is not None:
                timer.cancel()
        waiting = [part.reply for part in self._parts]
        waiting += [reply for _, reply in self._behind]
        if self._placing is not None:
            waiting.append(self._placing[0].reply)
        self._placing = None
        self._parts.clear()
        self._behind.clear()
        for reply in waiting:
            if reply is not None:
                reply.fail(error)

    def submit(self, command: Message, reply: Reply, on_behalf: OnBehalf | None = None) -> None:
        """Decide now, or behind a decision that is being placed."""
        self.in_turn(lambda: self._command(command, reply, on_behalf), reply)

    def in_turn(self, decide: Callable[[], None], reply: Reply) -> None:
        """Call ``decide`` now, or behind the decision that is being placed, unless ``reply`` is settled by then: no
        other record may stand among those of the decision.
        """
        if self._stopped:
            reply.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
        elif self._is_busy:
            self._behind.append((decide, reply))
        else:
            decide()

    def fence_dead(self, broker_id: int, broker_epoch: int) -> None:
        """Fence this registration of a broker: its process is gone."""
        if self._stopped:
            return
        words = "a broker's process is gone"
        self._events.warning(words, broker_id=broker_id)
        fence = self._controller.fence_dead
        self.decide(words, lambda _, moment: fence(broker_id, broker_epoch, moment))

    def decide(self, words: str, decide: Decide) -> Completion[Message]:
        """As ``MigratingController.decide``."""
        decided: Completion[Message] = Completion()
        reply = Reply(decided)
        self.in_turn(lambda: self._make(Part(words, decide, reply)), reply)
        return decided

    def copied_image(self) -> Completion[MetadataImage]:
        """As ``MigratingController.copied_image``."""
        return self._publisher.copied()

    # Records

    def append(self, records: list[Message]) -> None:
        """Place records at once, whatever they are.

        :raises BrokerError: see :func:`batches_of`
        """
        for batch in drained(self._encoded(records, atomic=True)):
            self.place(batch)

    def place(self, decided: Batch) -> None:
        """Put a batch into the controller's image and into the log.

        :raises OSError: the log takes no records
        :raises Exception: it contradicts the image; it is not in the log then
        """
        data, records = decided
        # First: a decision that contradicts the image must not reach the log, which no start could read then.
        self._controller.replay(records, self._log.end_offset, self.id.epoch)
        base_offset = self._log.append(data, self.id.epoch)
        batch = RecordBatch(memoryview(data))
        self._publisher.uncommitted.append(
            Placed(
                base_offset, batch.next_offset, self.id.epoch, records, batch.size_bytes, batch.max_timestamp
            )
        )

    def place_control(self, data: bytearray) -> int | None:
        """Place a control batch of one record; its offset. ``None``: the log takes none, and this controller stops."""
        offset = self._log.end_offset
        try:
            self.place(Batch(data, []))
        except OSError as error:
            self._failed(error)
            return None
        return offset

    def _encoded(self, records: Sequence[Message], *, atomic: bool) -> Steps[list[Batch]]:
        return batches_of(
            records,
            atomic=atomic,
            epoch=self.id.epoch,
            timestamp_ms=self._runtime.now_ms(),
            bytes_max=self._config.int("internal.metadata.max.batch.size.in.bytes"),
        )

    # Decisions

    def _moment(self) -> Moment:
        return Moment(
            now_ms=self._runtime.monotonic_ms(),
            wall_ms=self._runtime.now_ms(),
            next_offset=self._log.end_offset,
            new_uuid=self._runtime.new_uuid,
            new_secret=self._runtime.secrets,
        )

    @property
    def _is_busy(self) -> bool:
        """Whether a decision is being placed, so that no other record may be."""
        return self._placing is not None or bool(self._behind)

    def _command(self, command: Message, reply: Reply, on_behalf: OnBehalf | None) -> None:
        decide = self._controller.command
        of_migration = None if self._migration is None else self._migration.decide_of(command)
        by_command: Decide = of_migration or (lambda _, moment: decide(command, moment, on_behalf))
        self._make(Part(command, by_command, reply))
        if isinstance(command, BrokerHeartbeatRequest) and self._session_timer is None:
            self._watch_sessions()

    def _make(self, part: Part) -> None:
        """Decide, and place the records: now if they are few. None may be under way."""
        try:
            decision = part.decide(self._controller.state, self._moment())
            self._review(part.command, decision.records)
        except BrokerError as error:
            part.settle(error)
        except Exception as defect:
            self._undecided(part.command, defect)
            part.settle(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            if decision.rest is not None:
                self._parts.append(part._replace(decide=decision.rest))
            placing = self._place_decision(part, decision)
            self._placing = (part, placing)
            self._step(placing)
            if (self._is_busy or self._parts) and (self._work is None or self._work.done):
                self._work = self._runtime.scheduler.run(Lane.METADATA, self._go_on(), at_once=False)

    def _review(self, command: object, records: Sequence[Message]) -> None:
        if self._migration is not None:
            self._migration.review(command, self._controller.image, records)

    def _step(self, placing: Steps[None]) -> None:
        """Do the next step of the decision. A small one has one."""
        try:
            next(placing)
        except StopIteration:
            self._placing = None

    def _go_on(self) -> Steps[None]:
        """Go on with a large decision, then with the commands that waited for its end, then with the next part."""
        while self._is_busy or self._parts:
            if self._placing is not None:
                self._step(self._placing[1])
            elif self._behind:
                decide, reply = self._behind.popleft()
                if not reply.completion.done:
                    decide()
            else:
                self._make(self._parts.popleft())
            yield None

    def _place_decision(self, part: Part, decision: ControllerDecision) -> Steps[None]:
        """Encode all, then place batch by batch: what can't be encoded has changed nothing."""
        try:
            batches = yield from self._encoded(decision.records, atomic=decision.atomic)
        except BrokerError as error:
            self._not_placed(part, error)
            return
        except Exception as defect:
            self._undecided(part.command, defect)
            self._not_placed(part, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        try:
            for number, batch in enumerate(batches):
                if number:
                    yield None
                if batch.records:
                    self.place(batch)
            self._placed(part, decision)
        except OSError as error:
            part.settle(BrokerError(ErrorCode.NOT_CONTROLLER, str(error)))
            self._failed(error)
        except Exception as defect:
            part.settle(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._contradicted(defect)

    def _not_placed(self, part: Part, error: BrokerError) -> None:
        """Refuse a decision; the parts behind it go with it."""
        part.settle(error)
        self._parts = deque(later for later in self._parts if later.reply is not part.reply)

    def _placed(self, part: Part, decision: ControllerDecision) -> None:
        """The records of a decision, or of a part of one, are placed."""
        if part.reply is None or self._stopped:
            return
        if isinstance(part.command, Message):
            self._controller.answered(part.command, decision.response, self._runtime.monotonic_ms())
            if isinstance(part.command, BrokerHeartbeatRequest) and isinstance(
                decision.response, BrokerHeartbeatResponse
            ):
                self._heartbeat(part.command, decision.response)
        if decision.rest is None:
            self.answer_when_committed(part.reply, decision.response)

    def _heartbeat(self, request: BrokerHeartbeatRequest, answer: BrokerHeartbeatResponse) -> None:
        if not (answer.error_code or request.want_fence or request.want_shut_down):
            self._heard(request.broker_id, request.broker_epoch)

    def answer_when_committed(self, reply: Reply, response: Message) -> None:
        """Send the response once all that is placed now is committed: it may have seen that."""
        end_offset = self._log.end_offset
        committed = self._log.committed_end >= end_offset
        if self._publisher.is_idle or (committed and not reply.wait_image):
            reply.answer(response)
        else:
            self._publisher.wait(WaitingReply(end_offset, response, reply))

    def _undecided(self, command: object, defect: Exception) -> None:
        """Log a defect with the command that met it: once for each place in the code, then by number."""
        self._defects.say(
            self._events.error,
            "a controller's command met a defect",
            (type(command), place_of(defect)),
            command=command_text(command),
            exc_info=defect,
        )

    # Brokers that fall silent

    def _watch_sessions(self) -> None:
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        expiry_ms = self._controller.sessions.next_expiry_ms()
        if expiry_ms is not None and not self._stopped:
            delay_ms = max(expiry_ms - self._runtime.monotonic_ms(), 1.0)
            self._session_timer = self._runtime.call_later(delay_ms, self._expire_sessions)

    def _expire_sessions(self) -> None:
        self._session_timer = None
        self._expiry = self._runtime.scheduler.run(Lane.METADATA, self._expire())

    def _expire(self) -> Steps[None]:
        while not self._stopped and self._expire_some():
            yield None

    def _expire_some(self) -> bool:
        """Make a part of the decisions on sessions that are over. Returns whether there may be more now."""
        if self._is_busy:
            self._session_timer = self._runtime.call_later(BUSY_MS, self._expire_sessions)
            return False
        try:
            fenced = self._controller.fence_expired(self._runtime.monotonic_ms())
            batches = []
            if fenced is not None:
                self._review("the end of a broker's session", fenced[1])
                batches = drained(self._encoded(fenced[1], atomic=False))
        except Exception as defect:
            self._undecided("the end of a broker's session", defect)
            self._session_timer = self._runtime.call_later(RETRY_MS, self._expire_sessions)
            return False
        try:
            for batch in batches:
                self.place(batch)
        except OSError as error:
            self._failed(error)
            return False
        except Exception as defect:
            self._contradicted(defect)
            return False
        if fenced is None:
            self._watch_sessions()
            return False
        broker_id, _, last = fenced
        if last:
            self._events.warning("a broker fell silent and is fenced", broker_id=broker_id)
        return True

    # Commands of its own

    def _plan(self, command: PeriodicCommand, delay_ms: float) -> None:
        """Give a command when the delay is over: preferred leaders, unclean elections. An interval begins when the last
        part of the decision before was made, so a command never overtakes itself.
        """
        if not self._stopped:
            self._periodic[command.name] = self._runtime.call_later(delay_ms, lambda: self._give(command))

    def _give(self, command: PeriodicCommand) -> None:
        if self._is_busy:
            self._plan(command, BUSY_MS)
        else:
            decide = self._planned_anew(command, lambda _, moment: command.decide(moment))
            self._make(Part(command.name, decide, None))

    def _planned_anew(self, command: PeriodicCommand, decide: Decide) -> Decide:
        """Returns ``decide`` such that the next interval begins behind its last part, or behind a defect."""

        def decided(state: ControllerState, moment: Moment) -> ControllerDecision:
            try:
                decision = decide(state, moment)
            except Exception:
                self._plan(command, command.interval_ms)
                raise
            if decision.rest is None:
                self._plan(command, command.interval_ms)
                return decision
            return replace(decision, rest=self._planned_anew(command, decision.rest))

        return decided
