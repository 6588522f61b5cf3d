"""The controller at work: decides while this node leads the quorum, and watches the brokers' sessions.

A command is decided on at once, its records are placed and replayed into the controller's image, so that the next
command sees them. Its response goes out when they are committed. A response that has no records waits likewise for
what it may have seen.

A large decision takes several turns (ADR 0021). Either it is made in parts, with other commands between them. Or its
records are encoded and placed in several batches, and other commands wait until the last one is placed.

A defect in a decision costs that request alone (UNKNOWN_SERVER_ERROR): nothing was placed. A defect while records are
replayed or appended drops the controller, which is rebuilt from the log in the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision, Moment
from blumfeld.metadata.image.bootstrap import first_records
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.defects import command_text, place_of
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Timer
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.steps import drained
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.metadata_records import AbortTransactionRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.batching import Batch, batches_of
from blumfeld_consensus_kraft.deciding import Decisions, Part
from blumfeld_consensus_kraft.periodic import PeriodicCommands
from blumfeld_consensus_kraft.publishing import Placed, Publisher, Reply
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.registration import controller_registration

RETRY_MS = 1_000
"""After a defect: how long before expired sessions are looked at again."""
BUSY_MS = 10
"""Until sessions are looked at again that ended while a large decision was being placed."""


class ActiveController:
    """The controller of one node, which decides from :meth:`lead` to :meth:`stop`.

    :param heard: is told of a broker's heartbeat that was taken and asks to serve: its id and its epoch
    :param failed: is told that the log takes no more
    :param contradicted: is told of a defect that leaves the controller half changed
    """

    def __init__(
        self,
        composition: Composition,
        publisher: Publisher,
        log: RaftLog,
        events: EventLog,
        defects: RepeatedEvents,
        *,
        heard: Callable[[int, int], None],
        failed: Callable[[OSError], None],
        contradicted: Callable[[Exception], None],
    ) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._config = composition.config
        self._publisher = publisher
        self._log = log
        self._events = events
        self._defects = defects
        self._heard = heard
        self._failed = failed
        self._contradicted = contradicted
        self._controller: Controller | None = None
        self._epoch = -1
        self._session_timer: Timer | None = None
        self._expiry: Work | None = None
        """Fences the brokers whose sessions are over."""
        self._decisions = Decisions(
            composition.runtime,
            encode=self._encoded,
            place=self.place,
            placed=self._placed,
            undecided=self._undecided,
            failed=failed,
            contradicted=contradicted,
        )
        self._periodic = PeriodicCommands(composition.runtime, self._decisions, self._moment)

    @property
    def is_leading(self) -> bool:
        """Whether it takes commands."""
        return self._controller is not None

    def lead(
        self,
        epoch: int,
        leader_change: bytearray,
        bootstrap: Sequence[Message],
        *,
        abort: bool,
        silent: tuple[int, float] | None,
    ) -> None:
        """Begin an epoch: LeaderChange first, and then what a new controller writes.

        :param bootstrap: records that a new cluster begins with, where the metadata has no ``metadata.version``
        :param abort: the log ends within a transaction
        :param silent: the former controller, and when it was heard from last
        :raises OSError: the log takes no records
        :raises Exception: a defect: the log contradicts itself
        """
        image = self._publisher.newest.copy()
        controller = Controller(
            image, self._config, self._composition.features, self._composition.controller_commands
        )
        behind, transaction_open = self._publisher.unpublished()
        for step in behind:
            controller.replay(step.records, step.last_offset - len(step.records) + 1, step.epoch)
        composition = self._composition
        controller.take_over(
            self._runtime.monotonic_ms(), composition.node_id, composition.incarnation_id, silent
        )
        self._controller = controller
        self._epoch = epoch
        self.place(Batch(leader_change, []))
        if abort or transaction_open:
            self.append([AbortTransactionRecord(reason="the controller changed")])
        if bootstrap and METADATA_VERSION_FEATURE not in controller.image.features:
            min_isr = self._config.int("min.insync.replicas")
            self.append(first_records(list(bootstrap), min_isr))
        request = controller_registration(self._composition, controller.state.features)
        self.append(controller.command(request, self._moment()).records)
        left_over = Part("left-over elections", lambda _, moment: controller.elect_left_over(moment), None)
        self._decisions.make(left_over, controller.state, self._moment)
        self._watch_sessions()
        self._periodic.start(controller)

    def stop(self, error: BrokerError) -> None:
        """Take no more commands; those that are being decided get ``error``."""
        self._controller = None
        self._periodic.stop()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if self._expiry is not None:
            self._expiry.cancel()
        self._decisions.drop(error)

    def submit(self, command: Message, reply: Reply) -> None:
        """Decide now, or behind a decision that is being placed."""
        self._decisions.in_turn(lambda: self._decide(command, reply), reply)

    def in_turn(self, decide: Callable[[], None], reply: Reply) -> None:
        """Call ``decide`` now, or behind a decision that is being placed: no other record may stand among those."""
        if self._controller is None:
            reply.settle(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            self._decisions.in_turn(decide, reply)

    def fence_dead(self, broker_id: int, broker_epoch: int) -> None:
        """Fence this registration of a broker: its process is gone."""
        controller = self._controller
        if controller is None:
            return
        self._events.warning("a broker's process is gone", broker_id=broker_id)
        decided: Completion[Message] = Completion()
        reply = Reply(-1, None, decided)
        part = Part(
            "a broker's process is gone",
            lambda _, moment: controller.fence_dead(broker_id, broker_epoch, moment),
            reply,
        )
        self._decisions.in_turn(lambda: self._decisions.make(part, controller.state, self._moment), reply)

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
        assert self._controller is not None
        data, records = decided
        # First: a decision that contradicts the image must not reach the log, which no start could read then.
        self._controller.replay(records, self._log.end_offset, self._epoch)
        base_offset = self._log.append(data, self._epoch)
        batch = RecordBatch(memoryview(data))
        self._publisher.uncommitted.append(
            Placed(
                base_offset, batch.next_offset, self._epoch, records, batch.size_bytes, batch.max_timestamp
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
            epoch=self._epoch,
            timestamp_ms=self._runtime.now_ms(),
            bytes_max=self._config.int("internal.metadata.max.batch.size.in.bytes"),
        )

    # Decisions

    def _moment(self) -> Moment:
        return Moment(
            now_ms=self._runtime.monotonic_ms(),
            next_offset=self._log.end_offset,
            new_uuid=self._runtime.new_uuid,
        )

    def _decide(self, command: Message, reply: Reply) -> None:
        controller = self._controller
        if controller is None:
            reply.settle(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        part = Part(command, lambda _, moment: controller.command(command, moment), reply)
        self._decisions.make(part, controller.state, self._moment)
        if isinstance(command, BrokerHeartbeatRequest) and self._session_timer is None:
            self._watch_sessions()

    def _placed(self, part: Part, decision: ControllerDecision) -> None:
        """The records of a decision, or of a part of one, are placed."""
        if part.reply is None or self._controller is None:
            return
        if isinstance(part.command, Message):
            self._controller.answered(part.command, decision.response, self._runtime.monotonic_ms())
            if isinstance(part.command, BrokerHeartbeatRequest) and isinstance(
                decision.response, BrokerHeartbeatResponse
            ):
                self._heartbeat(part.command, decision.response)
        if decision.rest is None:
            part.reply.response = decision.response
            self.answer_when_committed(part.reply)

    def _heartbeat(self, request: BrokerHeartbeatRequest, answer: BrokerHeartbeatResponse) -> None:
        if not (answer.error_code or request.want_fence or request.want_shut_down):
            self._heard(request.broker_id, request.broker_epoch)

    def answer_when_committed(self, reply: Reply) -> None:
        """Send the response once all that is placed now is committed: it may have seen that."""
        reply.end_offset = self._log.end_offset
        committed = self._log.committed_end >= reply.end_offset
        if self._publisher.is_idle or (committed and not reply.wait_image):
            reply.settle()
        else:
            self._publisher.wait(reply)

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
        if self._controller is None:
            return
        expiry_ms = self._controller.sessions.next_expiry_ms()
        if expiry_ms is not None:
            delay_ms = max(expiry_ms - self._runtime.monotonic_ms(), 1.0)
            self._session_timer = self._runtime.call_later(delay_ms, self._expire_sessions)

    def _expire_sessions(self) -> None:
        self._session_timer = None
        self._expiry = self._runtime.scheduler.run(Lane.METADATA, self._expire())

    def _expire(self) -> Steps[None]:
        while self._controller is not None and self._expire_some(self._controller):
            yield None

    def _expire_some(self, controller: Controller) -> bool:
        """Make a part of the decisions on sessions that are over. Returns whether there may be more now."""
        if self._decisions.are_busy:
            self._session_timer = self._runtime.call_later(BUSY_MS, self._expire_sessions)
            return False
        try:
            fenced = controller.fence_expired(self._runtime.monotonic_ms())
            batches = [] if fenced is None else drained(self._encoded(fenced[1], atomic=False))
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
