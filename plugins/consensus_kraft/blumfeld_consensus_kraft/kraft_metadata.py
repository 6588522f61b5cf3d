"""Consensus by a raft log of one voter: the driver around the controller (``ClusterMetadata``).

A command is decided on at once, its records are placed and replayed into the controller's image, so that the next
command sees them. When they are written and flushed they are committed: they go into the node's image, listeners are
told, and the response goes out. A response that has no records waits likewise for what it may have seen.

A large decision takes several turns (ADR 0021). Either it is made in parts, with other commands between them. Or its
records are encoded and placed in several batches, and other commands wait until the last one is placed.

A defect in a decision costs that request alone (UNKNOWN_SERVER_ERROR): nothing was placed. A defect while records are
replayed or appended drops the controller, which is rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import ControllerDecision, Moment
from blumfeld.metadata.image.bootstrap import first_records
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.consensus import ImageListener, OnBehalf, Quorum, ReplicaDriver
from blumfeld.spi.defects import command_text, place_of
from blumfeld.spi.hooks import Composition
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Timer
from blumfeld.spi.steps import drained
from blumfeld.spi.storage import PartitionLog
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from blumfeld.wire.messages.metadata_records import AbortTransactionRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.batching import Batch, batches_of
from blumfeld_consensus_kraft.deciding import Decisions, Part
from blumfeld_consensus_kraft.loading import Loaded
from blumfeld_consensus_kraft.opening import open_metadata
from blumfeld_consensus_kraft.periodic import PeriodicCommands
from blumfeld_consensus_kraft.publishing import Placed, Publisher, Reply
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.registration import controller_registration
from blumfeld_consensus_kraft.snapshots import Snapshots
from blumfeld_consensus_kraft.voter import Voter

RETRY_MS = 1_000
"""After a write failed: how long before the controller tries to lead again."""
BUSY_MS = 10
"""Until sessions are looked at again that ended while a large decision was being placed."""
_CLOSED = "the metadata log is closed"


class KraftMetadata:
    """``ClusterMetadata`` of a node that is the whole quorum.

    :param force_empty_metadata: as of ``opening.open_metadata``
    """

    replica_driver = ReplicaDriver.IMAGE

    def __init__(self, composition: Composition, *, force_empty_metadata: bool = False) -> None:
        self._composition = composition
        self._force_empty_metadata = force_empty_metadata
        self._runtime = composition.runtime
        self._config = composition.config
        self._events = composition.log("kraft")
        self._defects = RepeatedEvents(composition.runtime)
        self._publisher = Publisher(
            MetadataImage(section_kinds=SectionKinds(composition.image_sections)),
            composition.runtime,
            self._is_published,
            self._listener_failed,
        )
        self._node_id = composition.node_id
        self._leading: ControllerId | None = None
        self._controller: Controller | None = None
        self._raft: RaftLog | None = None
        self._voter: Voter | None = None
        self._snapshots: Snapshots | None = None
        self._kraft_version = 0
        self._failure: OSError | None = None
        self._session_timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._stopped = False
        self._decisions = Decisions(
            composition.runtime,
            encode=self._encoded,
            place=self._place,
            placed=self._placed,
            undecided=self._undecided,
            failed=lambda error: self._failed(error, True),
            contradicted=self._contradicted,
        )
        self._periodic = PeriodicCommands(composition.runtime, self._decisions, self._moment)

    # What others read

    @property
    def image(self) -> ClusterImage:
        """The committed metadata image."""
        return self._publisher.image

    @property
    def controller(self) -> ControllerId | None:
        """This node, while its log takes appends."""
        return self._leading

    def quorum(self) -> Quorum | None:
        """The quorum of one; ``None`` before the start."""
        if self._raft is None or self._voter is None:
            return None
        return Quorum(
            leader_id=self._node_id if self._leading is not None else -1,
            leader_epoch=self._voter.state.leader_epoch,
            high_watermark=self._raft.committed_end,
            log_end_offset=self._raft.log.written_end_offset,
            voters=(self._node_id,),
            voter_directory_ids=(self._voter.directory_id,),
        )

    def subscribe(self, listener: ImageListener) -> None:
        """Call ``listener`` after each step of the image."""
        self._publisher.subscribe(listener)

    # Start and stop

    @property
    def applied_offset(self) -> int:
        """Offset of the last committed record; the image has it."""
        return self._publisher.image.offset

    async def start(self) -> None:
        """Read snapshot and log, open an epoch, bootstrap a new cluster. A quorum of one is caught up at once.

        :raises OSError: the metadata directory can't be used
        :raises ValueError: the log can't be read, has other voters, or a ``metadata.version`` that this build does not
            write
        """
        opened = await open_metadata(
            self._composition, self._warn, force_empty_metadata=self._force_empty_metadata
        )
        loaded = opened.loaded
        self._open(opened.log, loaded)
        self._lead(loaded.last_epoch, opened.bootstrap, loaded.transaction_open)
        assert self._raft is not None
        await self._raft.settle()
        if self._leading is None:
            raise self._failure or OSError("the metadata log takes no records")
        self._publisher.publish_all()

    async def caught_up(self) -> None:
        """Return at once: :meth:`start` has committed and published all there is."""

    def _warn(self, text: str) -> None:
        self._events.warning("a metadata snapshot can't be read", error=text)

    def _open(self, log: PartitionLog, loaded: Loaded) -> None:
        self._publisher.image = loaded.image
        self._kraft_version = loaded.kraft_version
        self._voter = Voter(self._node_id, log.directory_id, log.aux)
        self._raft = RaftLog(self._runtime, log, self._publisher.committed, self._failed)
        self._snapshots = Snapshots(self._runtime, self._config, log, self._events, self._publisher.copied)
        self._snapshots.kraft_version = loaded.kraft_version
        self._snapshots.voters = loaded.voters
        if loaded.bytes_since_snapshot:
            self._snapshots.committed(loaded.bytes_since_snapshot, loaded.last_timestamp_ms)

    async def resign(self) -> None:
        """Take no more commands. There is no other voter to hand over to."""
        self._leading = None
        self._stop_timers()
        self._decisions.drop(BrokerError(ErrorCode.NOT_CONTROLLER, "the controller resigned"))

    def _stop_timers(self) -> None:
        self._periodic.stop()
        for timer in (self._session_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()

    async def stop(self) -> None:
        """Wait for the writes under way, fail the commands that still wait, close the log."""
        if self._stopped:
            return
        self._stopped = True
        self._leading = None
        self._stop_timers()
        self._decisions.drop(BrokerError(ErrorCode.NOT_CONTROLLER, _CLOSED))
        if self._snapshots is not None:
            self._snapshots.stop()
        if self._raft is not None:
            await self._raft.settle()
            self._publisher.stop(BrokerError(ErrorCode.NOT_CONTROLLER, _CLOSED))
            self._raft.log.close()

    # Leading

    def _lead(self, last_epoch: int, bootstrap: Sequence[Message] = (), abort: bool = False) -> None:
        """Open the next epoch: state file, LeaderChange, and what a new controller writes first."""
        assert self._voter is not None
        epoch = self._voter.lead(last_epoch, self._kraft_version)
        image = self._publisher.image.copy()
        controller = Controller(
            image, self._config, self._composition.features, self._composition.controller_commands
        )
        behind, transaction_open = self._publisher.unpublished()
        for step in behind:
            controller.replay(step.records, step.last_offset - len(step.records) + 1, step.epoch)
        incarnation_id = self._composition.incarnation_id
        controller.take_over(self._runtime.monotonic_ms(), self._node_id, incarnation_id)
        self._controller = controller
        self._leading = ControllerId(self._node_id, epoch)
        self._place(Batch(self._voter.leader_change(self._runtime.now_ms()), []))
        if abort or transaction_open:
            self._append([AbortTransactionRecord(reason="the controller changed")])
        if bootstrap:
            min_isr = self._config.int("min.insync.replicas")
            self._append(first_records(list(bootstrap), min_isr))
        request = controller_registration(self._composition, controller.state.features)
        self._append(controller.command(request, self._moment()).records)
        left_over = Part("left-over elections", lambda _, moment: controller.elect_left_over(moment), None)
        self._decisions.make(left_over, controller.state, self._moment)
        self._watch_sessions()
        self._periodic.start(controller)

    def _moment(self) -> Moment:
        assert self._raft is not None
        return Moment(
            now_ms=self._runtime.monotonic_ms(),
            next_offset=self._raft.end_offset,
            new_uuid=self._runtime.new_uuid,
        )

    def _append(self, records: list[Message]) -> None:
        """Place records at once, whatever they are.

        :raises BrokerError: see :func:`batches_of`
        """
        for batch in drained(self._encoded(records, atomic=True)):
            self._place(batch)

    def _encoded(self, records: Sequence[Message], *, atomic: bool) -> Steps[list[Batch]]:
        assert self._leading is not None
        return batches_of(
            records,
            atomic=atomic,
            epoch=self._leading.epoch,
            timestamp_ms=self._runtime.now_ms(),
            bytes_max=self._config.int("internal.metadata.max.batch.size.in.bytes"),
        )

    def _place(self, decided: Batch) -> None:
        assert self._raft is not None
        assert self._leading is not None
        assert self._controller is not None
        epoch = self._leading.epoch
        data, records = decided
        # First: a decision that contradicts the image must not reach the log, which no start could read then.
        self._controller.replay(records, self._raft.end_offset, epoch)
        base_offset = self._raft.append(data, epoch)
        batch = RecordBatch(memoryview(data))
        self._publisher.uncommitted.append(
            Placed(base_offset, batch.next_offset, epoch, records, batch.size_bytes, batch.max_timestamp)
        )

    def submit(
        self,
        command: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = True,
    ) -> Completion[Message]:
        """Decide now; complete when what was decided, and what it was decided on, is committed and in the image.

        In a quorum of one this node decides, so nothing is forwarded. With ``wait_image`` false it completes as soon as
        the decision is committed.
        """
        completion: Completion[Message] = Completion()
        reply = Reply(-1, None, completion, wait_image=wait_image)
        if self._leading is None:
            completion.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
        else:
            self._decisions.in_turn(lambda: self._decide(command, reply), reply)
        if not completion.done:
            reply.timer = self._runtime.call_later(timeout_ms, reply.expire)
        return completion

    def _decide(self, command: Message, reply: Reply) -> None:
        controller = self._controller
        if controller is None or self._leading is None:
            reply.settle(BrokerError(ErrorCode.NOT_CONTROLLER))
            return
        part = Part(command, lambda _, moment: controller.command(command, moment), reply)
        self._decisions.make(part, controller.state, self._moment)
        if isinstance(command, BrokerHeartbeatRequest) and self._session_timer is None:
            self._watch_sessions()

    def _placed(self, part: Part, decision: ControllerDecision) -> None:
        """The records of a decision, or of a part of one, are placed."""
        if part.reply is None:
            return
        assert self._controller is not None
        assert isinstance(part.command, Message)
        self._controller.answered(part.command, decision.response, self._runtime.monotonic_ms())
        if decision.rest is None:
            self._answer_when_committed(part.reply, decision.response)

    def _answer_when_committed(self, reply: Reply, response: Message) -> None:
        assert self._raft is not None
        reply.response = response
        reply.end_offset = self._raft.end_offset
        committed = self._raft.committed_end >= reply.end_offset
        if self._publisher.is_idle or (committed and not reply.wait_image):
            reply.settle()
        else:
            self._publisher.wait(reply)

    def _is_published(self, placed: Placed) -> None:
        assert self._snapshots is not None
        self._snapshots.committed(placed.size_bytes, placed.timestamp_ms)

    # Failing

    def _failed(self, error: OSError, for_good: bool) -> None:
        """An append failed: drop the controller, and rebuild it from what is in the log, in a new epoch."""
        assert self._raft is not None
        self._leading = None
        self._controller = None
        self._periodic.stop()
        self._failure = error
        self._events.error("the metadata log failed", error=str(error), for_good=for_good)
        self._decisions.drop(BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log failed"))
        kept = -1 if for_good else self._raft.log.written_end_offset
        self._publisher.drop(kept, BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log failed"))
        if not for_good:
            self._lead_later()

    def _undecided(self, command: object, defect: Exception) -> None:
        """Log a defect with the command that met it: once for each place in the code, then by number."""
        self._defects.say(
            self._events.error,
            "a controller's command met a defect",
            (type(command), place_of(defect)),
            command=command_text(command),
            exc_info=defect,
        )

    def _listener_failed(self, listener: ImageListener, defect: Exception) -> None:
        self._defects.say(
            self._events.error,
            "a listener of the metadata image met a defect",
            (place_of(defect),),
            listener=getattr(listener, "__qualname__", repr(listener)),
            exc_info=defect,
        )

    def _contradicted(self, defect: Exception) -> None:
        """Drop a controller that is half changed by a defect. The log stands, and it is rebuilt from that."""
        self._leading = None
        self._controller = None
        self._periodic.stop()
        self._events.error("a decision contradicts the metadata", error=str(defect), exc_info=defect)
        self._decisions.drop(BrokerError(ErrorCode.NOT_CONTROLLER, "the controller is built anew"))
        self._lead_later()

    def _lead_later(self) -> None:
        if not self._stopped and self._retry_timer is None:
            self._retry_timer = self._runtime.call_later(RETRY_MS, self._lead_again)

    def _lead_again(self) -> None:
        self._retry_timer = None
        if self._stopped or self._voter is None:
            return
        try:
            self._lead(self._voter.state.leader_epoch)
        except OSError as error:
            self._failed(error, False)
        except Exception as defect:
            self._contradicted(defect)

    # Brokers that fall silent

    def _watch_sessions(self) -> None:
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if self._controller is None or self._stopped:
            return
        expiry_ms = self._controller.sessions.next_expiry_ms()
        if expiry_ms is not None:
            delay_ms = max(expiry_ms - self._runtime.monotonic_ms(), 1.0)
            self._session_timer = self._runtime.call_later(delay_ms, self._expire_sessions)

    def _expire_sessions(self) -> None:
        self._session_timer = None
        controller = self._controller
        if controller is None or self._leading is None:
            return
        if self._decisions.are_busy:
            self._session_timer = self._runtime.call_later(BUSY_MS, self._expire_sessions)
            return
        try:
            fenced = controller.fence_expired(self._runtime.monotonic_ms())
            batches = [] if fenced is None else drained(self._encoded(fenced[1], atomic=False))
        except Exception as defect:
            self._undecided("the end of a broker's session", defect)
            self._session_timer = self._runtime.call_later(RETRY_MS, self._expire_sessions)
            return
        try:
            for batch in batches:
                self._place(batch)
        except OSError as error:
            self._failed(error, True)
            return
        except Exception as defect:
            self._contradicted(defect)
            return
        if fenced is not None:
            broker_id, _, last = fenced
            if last:
                self._events.warning("a broker fell silent and is fenced", broker_id=broker_id)
            self._session_timer = self._runtime.call_later(0, self._expire_sessions)
            return
        self._watch_sessions()
