"""This node's replica of the metadata log, whatever the node's roles, from the opening of the log to its end.

A controller is a voter of the quorum. Where it leads, an :class:`ActiveController` decides. Other nodes follow the log:
they append what the leader sends, and publish what is committed. A broker without the controller's role does so as an
observer.
"""

from __future__ import annotations

from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import NodeFailure, Timer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.primitives import DecodeError
from blumfeld_consensus_kraft.active_controller import ActiveController
from blumfeld_consensus_kraft.broker_watch import BrokerWatch
from blumfeld_consensus_kraft.forwarder import Forwarder
from blumfeld_consensus_kraft.opened_metadata import OpenedMetadata
from blumfeld_consensus_kraft.publisher import Publisher
from blumfeld_consensus_kraft.quorum.driver_factory import made_driver
from blumfeld_consensus_kraft.quorum.farewell import hand_over
from blumfeld_consensus_kraft.quorum.log_reopener import LogReopener
from blumfeld_consensus_kraft.quorum.membership import ConfiguredVoters, QuorumMembership
from blumfeld_consensus_kraft.quorum.snapshot_exchange import SnapshotExchange
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import NO_LEADER
from blumfeld_consensus_kraft.raft.roles import Follower
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.snapshots import Snapshots
from blumfeld_consensus_kraft.stored_state import Loaded, placed_batch
from blumfeld_consensus_kraft.voter import epoch_start

RETRY_MS = 1_000
"""After a write failed: how long before the log is tried again."""
_CLOSED = "the metadata log is closed"


class MetadataReplica:
    """The replica at work. It implements :class:`ReplicaOwner` for its driver.

    :param notice_dead: notice at once that another node's process is gone (ADR 0033)
    :raises MalformedFile: ``quorum-state`` can't be read
    """

    def __init__(
        self,
        composition: Composition,
        opened: OpenedMetadata,
        configured: ConfiguredVoters,
        publisher: Publisher,
        forwarder: Forwarder,
        events: EventLog,
        *,
        notice_dead: bool,
    ) -> None:
        loaded = opened.loaded
        self._composition = composition
        self._runtime = composition.runtime
        self._publisher = publisher
        self._forwarder = forwarder
        self._events = events
        self._defects = RepeatedEvents(composition.runtime)
        self._bootstrap = opened.bootstrap
        self._transaction_open = loaded.transaction_open
        publisher.load(loaded.image, loaded.tail)
        self.log = RaftLog(
            self._runtime,
            opened.log,
            publisher.committed,
            self._failed,
            flushed=lambda _: self.driver.log_changed(),
            written=lambda _: self.driver.log_written(),
        )
        self.driver = made_driver(
            composition, loaded, self.log, self, configured, events, elect_when_refused=notice_dead
        )
        self.membership = QuorumMembership(
            composition, configured.listener, events, self.driver, lambda: self.active
        )
        self.snapshots = Snapshots(
            self._runtime,
            composition.config,
            self.log,
            events,
            publisher.copied,
            voters_at=self.membership.at,
        )
        if loaded.bytes_since_snapshot:
            self.snapshots.committed(loaded.bytes_since_snapshot, loaded.last_timestamp_ms)
        self._reopener = LogReopener(
            composition, self.log, self.driver, events, failed=lambda error: self._failed(error, True)
        )
        self.snapshot_exchange = SnapshotExchange(
            composition,
            self.driver,
            self.log,
            events,
            self._reopener,
            configured.listener,
            taken_over=self._taken_over,
        )
        self._watch = BrokerWatch(composition, self._is_dead)
        if notice_dead and "controller" in composition.roles:
            publisher.subscribe(self._watch.image_changed)
        self.active: ActiveController | None = None
        """Decides while this node leads and its log takes appends; ``None`` while it doesn't."""
        self._leader: ControllerId | None = None
        """Another node that leads; ``None`` while none is known, or this node leads."""
        self.joined: Completion[None] = Completion()
        """Completes when the image contains all that was committed when the node joined."""
        self._joining = False
        self._retry_timer: Timer | None = None
        """Tries the log again; ``None`` while no try is planned."""
        self.stopped = False

    @property
    def controller(self) -> ControllerId | None:
        """The leader of the quorum, as far as this node knows."""
        return self._leader if self.active is None else self.active.id

    # Start and stop

    async def start(self) -> None:
        """Join the quorum. All that the log has is on the device before."""
        self.log.flush()
        await self.log.settle()
        self.driver.start()

    async def resign(self) -> None:
        """Take no more commands, and hand over to the voter that has the most records."""
        self._watch.stop()  # here, because the transport stops before the metadata does
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self.active is not None:
            self.active.stop(BrokerError(ErrorCode.NOT_CONTROLLER, "the controller resigned"))
            await hand_over(self._runtime, self.driver, self.log)

    async def stop(self) -> None:
        """Wait for the writes under way, fail the commands that still wait, close the log."""
        if self.stopped:
            return
        self.stopped = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        closed = BrokerError(ErrorCode.NOT_CONTROLLER, _CLOSED)
        self._stop_controller(closed)
        self.snapshots.stop()
        self._forwarder.stop(closed)
        self._watch.stop()
        self.membership.stop()
        self.snapshot_exchange.stop()
        await self._reopener.stop()
        await self.log.settle()
        self.driver.stop()
        self._publisher.stop(closed)
        self.log.log.close()

    # What the driver asks for (``ReplicaOwner``)

    def lead(self, epoch: int, granting: tuple[int, ...]) -> None:
        """Open the epoch: LeaderChange, and what a new controller writes first."""
        kraft_version, voters = self.membership.opening()
        change = epoch_start(
            epoch,
            self._composition.node_id,
            self.driver.raft.voters.ids,
            granting,
            timestamp_ms=self._runtime.now_ms(),
            kraft_version=kraft_version,
            voters=voters,
        )
        base_offset = self.log.end_offset
        abort, self._transaction_open = self._transaction_open, False
        try:
            behind, transaction_open = self._publisher.unpublished()
            self.active = ActiveController(
                self._composition,
                self._publisher,
                self.log,
                self._events,
                self._defects,
                epoch,
                behind,
                self.driver.raft.heard,
                heard=self._watch.heard,
                failed=lambda error: self._failed(error, True),
                contradicted=self._contradicted,
            )
            self.active.begin(change, self._bootstrap, abort=abort or transaction_open)
            if voters is not None:
                self.membership.opened(base_offset)
        except OSError as error:
            self._failed(error, False)
        except Exception as defect:
            self._contradicted(defect)
        self._watch.report()
        self._forwarder.leader_changed()

    def _is_dead(self, broker_id: int, broker_epoch: int) -> None:
        if self.active is not None:
            self.active.fence_dead(broker_id, broker_epoch)

    def stop_leading(self) -> None:
        """Drop the controller; what waits gets NOT_CONTROLLER."""
        error = BrokerError(ErrorCode.NOT_CONTROLLER, "this node leads the quorum no longer")
        self._watch.report_no_more()
        self._stop_controller(error)
        if not self.membership.is_quorum:
            self._publisher.refuse(error)

    def _stop_controller(self, error: BrokerError) -> None:
        active, self.active = self.active, None
        if active is not None:
            active.stop(error)

    def leader_is(self, epoch: int, leader_id: int) -> None:
        """Send commands there from now on."""
        self.snapshot_exchange.stop()
        self._leader = (
            None if leader_id in (NO_LEADER, self._composition.node_id) else ControllerId(leader_id, epoch)
        )
        if not self.membership.is_quorum:
            if leader_id == NO_LEADER:
                self._events.info("the metadata quorum has no leader: election", epoch=epoch)
            else:
                self._events.info("leader of the metadata quorum", leader_id=leader_id, epoch=epoch)
        if self._leader is not None:
            self._forwarder.leader_changed()
        self.membership.leader_is(leader_id)

    def fetched(self, records: memoryview, epoch: int) -> None:
        """Append the leader's batches. Their records are decoded when they are committed, bit by bit."""
        batches = self.log.append_fetched(records, epoch)
        try:
            self._publisher.uncommitted.extend(placed_batch(batch, decode=False) for batch in batches)
            self.membership.fetched(batches)
        except (DecodeError, BrokerError) as error:
            self.unreadable(error)

    def unreadable(self, error: Exception) -> None:
        """Records that this build can't read end the node: its image would lack them."""
        self.broken(BrokenQuorumError(f"the leader sent metadata that can't be read: {error}"))

    def cut(self, end_offset: int) -> None:
        """Cut the log. If that finds no room, it is opened again, and the leader asked once more where to cut it."""
        try:
            self.log.truncate_to(end_offset)
        except OSError as error:
            self._reopener.broken_off(error, self._cut_broken_off)
            return
        self._was_cut()
        self.driver.log_changed()

    def _cut_broken_off(self) -> None:
        self._was_cut()
        self._try_again_later()

    def _was_cut(self) -> None:
        end = self.log.log.written_end_offset
        self.driver.log_was_cut(end)
        self._publisher.drop(end, BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log was cut"))

    def download(self, effect: effects.Download) -> None:
        """Fetch a snapshot."""
        self.snapshot_exchange.download(effect)

    def _taken_over(self, loaded: Loaded) -> None:
        self._transaction_open = False
        self._publisher.replace(loaded.image)

    def committed(self, high_watermark: int) -> None:
        """Publish what is committed."""
        self.log.commit_to(high_watermark)
        self._check_joined()

    def not_persisted(self, error: OSError) -> None:
        """This replica neither votes nor leads meanwhile."""
        self._events.error("the vote of this voter can't be written", error=str(error))
        if not self.joined.done:
            self.joined.fail(error)

    def broken(self, error: BrokenQuorumError) -> None:
        """End the node: it would have to give up committed records."""
        self._events.error("this replica of the metadata log can't go on", error=str(error))
        self.driver.stop()
        self.stop_leading()
        self._runtime.spawn(self._end_node(error), "end of the metadata replica")

    async def _end_node(self, error: Exception) -> None:
        raise NodeFailure(str(error)) from error

    # Joining

    def _check_joined(self) -> None:
        if self._joining:
            return
        raft = self.driver.raft
        role = raft.role
        leads = raft.leadership is not None and raft.leadership.high_watermark >= 0
        follows = (
            isinstance(role, Follower)
            and role.has_fetched
            and 0 <= role.leader_high_watermark <= raft.high_watermark
        )
        if leads or follows:
            self._joining = True
            self._publisher.when_shown(raft.high_watermark, self._join)

    def _join(self) -> None:
        if self.stopped or self.joined.done:
            return
        self._publisher.publish_all()
        self.joined.complete(None)

    # Failing

    def _failed(self, error: OSError, for_good: bool) -> None:
        """An append failed: drop the controller, and rebuild it from what is in the log, in a new epoch."""
        self._events.error("the metadata log failed", error=str(error), for_good=for_good)
        refused = BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log failed")
        self._stop_controller(refused)
        self._publisher.drop(-1 if for_good else self.log.log.written_end_offset, refused)
        self.driver.log_was_cut(self.log.log.written_end_offset)
        if for_good:
            self.driver.stop()
        else:
            self.driver.resign()
            self._try_again_later()
        if not self.joined.done:
            self.joined.fail(error)

    def _try_again_later(self) -> None:
        if self._retry_timer is None and not self.stopped:
            self._retry_timer = self._runtime.call_later(RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._retry_timer = None
        self.driver.log_changed()

    def _contradicted(self, defect: Exception) -> None:
        """Drop a controller that is half changed by a defect. The log stands, and it is rebuilt from that."""
        self._events.error("a decision contradicts the metadata", error=str(defect), exc_info=defect)
        self.driver.resign()
