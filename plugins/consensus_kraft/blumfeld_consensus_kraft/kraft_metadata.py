"""Consensus by the raft log of the metadata quorum: ``ClusterMetadata`` of one node, whatever its roles.

A controller is a voter of the quorum, and the leader's controller decides (:mod:`active_controller`). Other nodes
follow the log: they append what the leader sends, and publish what is committed. A broker without the controller's role
does so as an observer. A command of a node that doesn't lead goes to the leader (:mod:`forwarding`).

What is committed goes into the node's image, and listeners are told. The first time, they are told when the image
contains all that was committed when the node joined.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.consensus import ImageListener, OnBehalf, Quorum, ReplicaDriver
from blumfeld.spi.hooks import Composition
from blumfeld.spi.peers import PeerChannel
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import NodeFailure, Timer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_raft_voter import AddRaftVoterRequest
from blumfeld.wire.messages.describe_quorum import DescribeQuorumRequest
from blumfeld.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.active_controller import ActiveController
from blumfeld_consensus_kraft.broker_watch import BrokerWatch
from blumfeld_consensus_kraft.forwarding import Forwarder, OwnController
from blumfeld_consensus_kraft.loading import Loaded, placed_batch
from blumfeld_consensus_kraft.opening import OpenedMetadata, open_metadata
from blumfeld_consensus_kraft.publishing import Placed, Publisher, Reply, listener_defects
from blumfeld_consensus_kraft.quorum.describing import describe_quorum, known_quorum
from blumfeld_consensus_kraft.quorum.driver import RaftDriver
from blumfeld_consensus_kraft.quorum.endpoints import own_endpoints
from blumfeld_consensus_kraft.quorum.farewell import hand_over
from blumfeld_consensus_kraft.quorum.making import made_driver
from blumfeld_consensus_kraft.quorum.membership import QuorumMembership
from blumfeld_consensus_kraft.quorum.reopening import Reopening
from blumfeld_consensus_kraft.raft import effects
from blumfeld_consensus_kraft.raft.messages import NO_LEADER
from blumfeld_consensus_kraft.raft.roles import Follower
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError
from blumfeld_consensus_kraft.raft_log import RaftLog
from blumfeld_consensus_kraft.registration import ControllerRegistrar
from blumfeld_consensus_kraft.snapshots import Snapshots
from blumfeld_consensus_kraft.voter import epoch_start

if TYPE_CHECKING:
    from blumfeld_consensus_kraft.quorum.catching_up import CatchingUp

RETRY_MS = 1_000
"""After a write failed: how long before the log is tried again."""
_CLOSED = "the metadata log is closed"


class KraftMetadata:
    """``ClusterMetadata`` of one node.

    :param force_empty_metadata: as of ``opening.open_metadata``
    :param notice_dead: notice at once that another node's process is gone (ADR 0033)
    """

    replica_driver = ReplicaDriver.IMAGE

    def __init__(
        self, composition: Composition, *, force_empty_metadata: bool = False, notice_dead: bool = True
    ) -> None:
        self._composition = composition
        self._force_empty_metadata = force_empty_metadata
        self._runtime = composition.runtime
        self._config = composition.config
        self._node_id = composition.node_id
        self._votes = "controller" in composition.roles
        self._events = composition.log("kraft")
        self._defects = RepeatedEvents(composition.runtime)
        self._publisher = Publisher(
            MetadataImage(section_kinds=SectionKinds(composition.image_sections)),
            composition.runtime,
            self._is_published,
            listener_defects(composition.runtime, self._events),
            self._unreadable,
        )
        self.membership = QuorumMembership(
            composition, self._events, lambda: self.driver, lambda: self._active
        )
        self._forwarder = Forwarder(self._runtime, self._leader_channel, self._publisher.when_shown)
        self._raft: RaftLog | None = None
        self._reopening: Reopening
        self._driver: RaftDriver | None = None
        self._catching_up: CatchingUp | None = None
        self._active: ActiveController | None = None
        self._snapshots: Snapshots | None = None
        self._opened: OpenedMetadata | None = None
        self._notice_dead = notice_dead
        self._watch = BrokerWatch(composition, self._is_dead)
        self._registrar = ControllerRegistrar(composition, self, self._events)
        self._leader: ControllerId | None = None
        self._joined: Completion[None] = Completion()
        self._joining = False
        self._retry_timer: Timer | None = None
        self._stopped = False

    # What others read

    @property
    def image(self) -> ClusterImage:
        """The committed metadata image."""
        return self._publisher.image

    @property
    def controller(self) -> ControllerId | None:
        """The leader of the quorum, as far as this node knows. This node itself only while its log takes appends."""
        return self._leader if self._active is None else self._active.id

    @property
    def applied_offset(self) -> int:
        """Offset of the last committed record that the image has."""
        return self._publisher.image.offset

    def quorum(self) -> Quorum | None:
        """The quorum as this node knows it; ``None`` before the start."""
        if self._raft is None or self._driver is None:
            return None
        return known_quorum(self._driver, self._raft, leads=self._active is not None)

    @property
    def driver(self) -> RaftDriver:
        """The replica at work, for the handlers of the quorum's APIs.

        :raises BrokerError: NOT_LEADER_OR_FOLLOWER: not started
        """
        if self._driver is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._driver

    @property
    def catching_up(self) -> CatchingUp:
        """As ``driver``, for snapshots. It is made when it is needed: a node alone fetches none."""
        if self._catching_up is None:
            from blumfeld_consensus_kraft.quorum.catching_up import CatchingUp

            driver = self.driver
            assert self._raft is not None
            self._catching_up = CatchingUp(
                self._composition,
                driver,
                self._raft,
                self._events,
                self._reopening,
                listener=self.membership.listener,
                taken_over=self._taken_over,
            )
        return self._catching_up

    def subscribe(self, listener: ImageListener) -> None:
        """Call ``listener`` after each step of the image."""
        self._publisher.subscribe(listener)

    # Start and stop

    async def start(self) -> None:
        """Read snapshot and log, and join the quorum. The only voter leads, and bootstraps a new cluster, before this
        returns.

        :raises OSError: the metadata directory can't be used
        :raises ValueError: the log can't be read, or has a ``metadata.version`` that this build does not write
        """
        opened = await open_metadata(
            self._composition,
            self._warn,
            self.membership.is_alone,
            force_empty_metadata=self._force_empty_metadata,
        )
        self._open(opened)
        if self._notice_dead and self._votes:
            self.subscribe(self._watch.image_changed)
        self.subscribe(self._registrar.image_changed)
        assert self._driver
        assert self._raft
        self._raft.flush()
        await self._raft.settle()
        self._driver.start()
        if self.membership.is_alone(opened.loaded.voters):
            await self._joined

    async def caught_up(self) -> None:
        """Return when the image contains all that was committed when the node joined."""
        await self._joined

    def _warn(self, text: str) -> None:
        self._events.warning("a metadata snapshot can't be read", error=text)

    def _open(self, opened: OpenedMetadata) -> None:
        loaded, log = opened.loaded, opened.log
        self._opened = opened
        self._publisher.load(loaded.image, loaded.tail)
        self._raft = RaftLog(
            self._runtime,
            log,
            self._publisher.committed,
            self._failed,
            flushed=lambda _: self.driver.log_changed(),
            written=lambda _: self.driver.log_written(),
        )
        self._snapshots = Snapshots(
            self._runtime,
            self._config,
            log,
            self._events,
            self._publisher.copied,
            self._raft,
            voters_at=self.membership.at,
        )
        if loaded.bytes_since_snapshot:
            self._snapshots.committed(loaded.bytes_since_snapshot, loaded.last_timestamp_ms)
        self._driver = made_driver(
            self._composition,
            loaded,
            self._raft,
            self,
            static=self.membership.first(),
            listener=self.membership.listener,
            own_endpoints=partial(own_endpoints, self._composition),
            events=self._events,
            elect_when_refused=self._notice_dead,
        )
        self._reopening = Reopening(
            self._composition,
            self._raft,
            self._driver,
            self._events,
            failed=lambda error: self._failed(error, True),
        )

    async def resign(self) -> None:
        """Take no more commands, and hand over to the voter that has the most records."""
        self._watch.stop()  # here, because the transport stops before the metadata does
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._driver is None or self._active is None or self._raft is None:
            return
        self._active.stop(BrokerError(ErrorCode.NOT_CONTROLLER, "the controller resigned"))
        await hand_over(self._runtime, self._driver, self._raft)

    async def stop(self) -> None:
        """Wait for the writes under way, fail the commands that still wait, close the log."""
        if self._stopped:
            return
        self._stopped = True
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        closed = BrokerError(ErrorCode.NOT_CONTROLLER, _CLOSED)
        self._stop_controller(closed)
        if self._snapshots is not None:
            self._snapshots.stop()
        self._forwarder.stop(closed)
        self._watch.stop()
        self._registrar.stop()
        self.membership.stop()
        if self._catching_up is not None:
            self._catching_up.stop()
        if self._raft is not None:
            await self._reopening.stop()
            await self._raft.settle()
            if self._driver is not None:
                self._driver.stop()
            self._publisher.stop(closed)
            self._raft.log.close()

    # Commands

    def submit(
        self,
        command: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = True,
    ) -> Completion[Message]:
        """As ``ClusterMetadata.submit``. The leader decides now. Another node asks the leader until the time is over;
        the node that is the whole quorum, and doesn't lead, fails with NOT_CONTROLLER.
        """
        if self._active is not None:
            if isinstance(command, DescribeQuorumRequest):
                assert self._raft is not None
                return Completion.of(describe_quorum(command, self.driver, self._raft, self._composition))
            if isinstance(command, AddRaftVoterRequest | RemoveRaftVoterRequest):
                return self.membership.submit(command, timeout_ms)
            return self._decided(self._active, command, timeout_ms, wait_image=wait_image)
        if self._driver is None or self._stopped or self.membership.is_quorum:
            refused: Completion[Message] = Completion()
            refused.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            return refused
        return self._forwarder.submit(command, timeout_ms, on_behalf, wait_image=wait_image)

    def _decided(
        self, active: ActiveController, command: Message, timeout_ms: float, *, wait_image: bool
    ) -> Completion[Message]:
        completion: Completion[Message] = Completion()
        reply = Reply(-1, None, completion, wait_image=wait_image)
        active.submit(command, reply)
        if not completion.done:
            reply.timer = self._runtime.call_later(timeout_ms, reply.expire)
        return completion

    def _leader_channel(self) -> PeerChannel | OwnController | None:
        if self._active is not None:
            return OwnController(self.submit)
        if self._driver is None or self._leader is None:
            return None
        return self._composition.peers.channel(
            self._leader.node_id, self.membership.listener, "forward", self._driver.endpoints
        )

    # What the driver asks for (``ReplicaOwner``)

    def lead(self, epoch: int, granting: tuple[int, ...]) -> None:
        """Open the epoch: LeaderChange, and what a new controller writes first."""
        assert self._driver
        assert self._opened
        assert self._raft
        kraft_version, voters = self.membership.opening()
        change = epoch_start(
            epoch,
            self._node_id,
            self._driver.raft.voters.ids,
            granting,
            timestamp_ms=self._runtime.now_ms(),
            kraft_version=kraft_version,
            voters=voters,
        )
        base_offset = self._raft.end_offset
        abort, self._opened.loaded.transaction_open = self._opened.loaded.transaction_open, False
        try:
            behind, transaction_open = self._publisher.unpublished()
            self._active = ActiveController(
                self._composition,
                self._publisher,
                self._raft,
                self._events,
                self._defects,
                epoch,
                behind,
                self._driver.raft.heard,
                heard=self._watch.heard,
                failed=lambda error: self._failed(error, True),
                contradicted=self._contradicted,
            )
            self._active.begin(change, self._opened.bootstrap, abort=abort or transaction_open)
            if voters is not None:
                self.membership.opened(base_offset)
        except OSError as error:
            self._failed(error, False)
        except Exception as defect:
            self._contradicted(defect)
        self._watch.report()
        self._forwarder.leader_changed()

    def _is_dead(self, broker_id: int, broker_epoch: int) -> None:
        if self._active is not None:
            self._active.fence_dead(broker_id, broker_epoch)

    def stop_leading(self) -> None:
        """Drop the controller; what waits gets NOT_CONTROLLER."""
        error = BrokerError(ErrorCode.NOT_CONTROLLER, "this node leads the quorum no longer")
        self._watch.report_no_more()
        self._stop_controller(error)
        if not self.membership.is_quorum:
            self._publisher.refuse(error)

    def _stop_controller(self, error: BrokerError) -> None:
        active, self._active = self._active, None
        if active is not None:
            active.stop(error)

    def leader_is(self, epoch: int, leader_id: int) -> None:
        """Send commands there from now on."""
        if self._catching_up is not None:
            self._catching_up.stop()
        self._leader = None if leader_id in (NO_LEADER, self._node_id) else ControllerId(leader_id, epoch)
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
        assert self._raft is not None
        batches = self._raft.append_fetched(records, epoch)
        try:
            self._publisher.uncommitted.extend(placed_batch(batch, decode=False) for batch in batches)
            self.membership.fetched(batches)
        except (DecodeError, BrokerError) as error:
            self._unreadable(error)

    def _unreadable(self, error: Exception) -> None:
        """Records that this build can't read end the node: its image would lack them."""
        self.broken(BrokenQuorumError(f"the leader sent metadata that can't be read: {error}"))

    def cut(self, end_offset: int) -> None:
        """Cut the log. If that finds no room, it is opened again, and the leader asked once more where to cut it."""
        assert self._raft is not None
        try:
            self._raft.truncate_to(end_offset)
        except OSError as error:
            self._reopening.broken_off(error, self._cut_broken_off)
            return
        self._was_cut()
        self.driver.log_changed()

    def _cut_broken_off(self) -> None:
        self._was_cut()
        self._try_again_later()

    def _was_cut(self) -> None:
        assert self._raft is not None
        end = self._raft.log.written_end_offset
        self.driver.log_was_cut(end)
        self._publisher.drop(end, BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log was cut"))

    def download(self, effect: effects.Download) -> None:
        """Fetch a snapshot."""
        self.catching_up.download(effect)

    def _taken_over(self, loaded: Loaded) -> None:
        assert self._opened
        self._opened.loaded.transaction_open = False
        self._publisher.replace(loaded.image)

    def committed(self, high_watermark: int) -> None:
        """Publish what is committed."""
        assert self._raft is not None
        self._raft.commit_to(high_watermark)
        self._check_joined()

    def not_persisted(self, error: OSError) -> None:
        """This replica neither votes nor leads meanwhile."""
        self._events.error("the vote of this voter can't be written", error=str(error))
        if not self._joined.done:
            self._joined.fail(error)

    def broken(self, error: BrokenQuorumError) -> None:
        """End the node: it would have to give up committed records."""
        self._events.error("this replica of the metadata log can't go on", error=str(error))
        if self._driver is not None:
            self._driver.stop()
        self.stop_leading()
        self._runtime.spawn(self._end_node(error), "end of the metadata replica")

    async def _end_node(self, error: Exception) -> None:
        raise NodeFailure(str(error)) from error

    # Joining

    def _check_joined(self) -> None:
        if self._joining or self._driver is None or self._raft is None:
            return
        raft = self._driver.raft
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
        if self._stopped or self._joined.done:
            return
        self._publisher.publish_all()
        self._joined.complete(None)

    def _is_published(self, placed: Placed) -> None:
        assert self._snapshots is not None
        self._snapshots.committed(placed.size_bytes, placed.timestamp_ms)

    # Failing

    def _failed(self, error: OSError, for_good: bool) -> None:
        """An append failed: drop the controller, and rebuild it from what is in the log, in a new epoch."""
        assert self._raft
        assert self._driver
        self._events.error("the metadata log failed", error=str(error), for_good=for_good)
        refused = BrokerError(ErrorCode.NOT_CONTROLLER, "the metadata log failed")
        self._stop_controller(refused)
        self._publisher.drop(-1 if for_good else self._raft.log.written_end_offset, refused)
        self._driver.log_was_cut(self._raft.log.written_end_offset)
        if for_good:
            self._driver.stop()
        else:
            self._driver.resign()
            self._try_again_later()
        if not self._joined.done:
            self._joined.fail(error)

    def _try_again_later(self) -> None:
        if self._retry_timer is None and not self._stopped:
            self._retry_timer = self._runtime.call_later(RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._retry_timer = None
        if self._driver is not None:
            self._driver.log_changed()

    def _contradicted(self, defect: Exception) -> None:
        """Drop a controller that is half changed by a defect. The log stands, and it is rebuilt from that."""
        self._events.error("a decision contradicts the metadata", error=str(defect), exc_info=defect)
        if self._driver is not None:
            self._driver.resign()
