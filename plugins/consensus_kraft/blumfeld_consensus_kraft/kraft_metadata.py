"""Consensus by the raft log of the metadata quorum: ``ClusterMetadata`` of one node, whatever its roles.

The node's replica of the log (:mod:`replica`) is made by the start. A command of a node that leads is decided by its
controller; a command of another node goes to the leader (:mod:`forwarder`).

What is committed goes into the node's image, and listeners are told. The first time, they are told when the image
contains all that was committed when the node joined.
"""

from __future__ import annotations

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.listeners import ImageListeners
from blumfeld.metadata.image.needs import needs_of
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.consensus import ImageListener, MetadataNeeds, OnBehalf, Quorum, ReplicaDriver
from blumfeld.spi.hooks import Composition
from blumfeld.spi.peers import PeerChannel
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.add_raft_voter import AddRaftVoterRequest
from blumfeld.wire.messages.describe_quorum import DescribeQuorumRequest
from blumfeld.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.forwarder import Forwarder, OwnController
from blumfeld_consensus_kraft.opened_metadata import OpenedMetadata, open_metadata
from blumfeld_consensus_kraft.publisher import Publisher, Reply
from blumfeld_consensus_kraft.quorum.description import describe_quorum, known_quorum
from blumfeld_consensus_kraft.quorum.membership import ConfiguredVoters
from blumfeld_consensus_kraft.registration import ControllerRegistrar
from blumfeld_consensus_kraft.replica import MetadataReplica


class KraftMetadata:
    """``ClusterMetadata`` of one node.

    :param force_empty_metadata: as of ``opened_metadata.open_metadata``
    :param notice_dead: notice at once that another node's process is gone (ADR 0033)
    """

    replica_driver = ReplicaDriver.IMAGE
    forwards = True

    def __init__(
        self, composition: Composition, *, force_empty_metadata: bool = False, notice_dead: bool = True
    ) -> None:
        self._composition = composition
        self._force_empty_metadata = force_empty_metadata
        self._notice_dead = notice_dead
        self._runtime = composition.runtime
        self._events = composition.log("kraft")
        self._publisher = Publisher(
            MetadataImage(section_kinds=SectionKinds(composition.image_sections)),
            composition.runtime,
            ImageListeners(composition.runtime, self._events),
            lambda placed: self.replica.snapshots.committed(placed.size_bytes, placed.timestamp_ms),
            lambda error: self.replica.unreadable(error),  # noqa: PLW0108 - the start makes the replica
        )
        self._configured = ConfiguredVoters(composition)
        self._forwarder = Forwarder(self._runtime, self._leader_channel, self._publisher.when_shown)
        self._registrar = ControllerRegistrar(composition, self, lambda: self._publisher.image, self._events)
        self._replica: MetadataReplica | None = None
        self._opened: OpenedMetadata | None = None
        """Between :meth:`open` and :meth:`start`."""

    # What others read

    @property
    def image(self) -> ClusterImage:
        """The committed metadata image."""
        return self._publisher.image

    @property
    def controller_image(self) -> ClusterImage:
        """The same: every node's image has all."""
        return self.image

    @property
    def controller(self) -> ControllerId | None:
        """The leader of the quorum, as far as this node knows. This node itself only while its log takes appends."""
        return None if self._replica is None else self._replica.controller

    @property
    def applied_offset(self) -> int:
        """Offset of the last committed record that the image has."""
        return self._publisher.image.offset

    def quorum(self) -> Quorum | None:
        """The quorum as this node knows it; ``None`` before the start."""
        replica = self._replica
        if replica is None:
            return None
        return known_quorum(replica.driver, replica.log, leads=replica.active is not None)

    @property
    def replica(self) -> MetadataReplica:
        """The replica at work, for the handlers of the quorum's APIs.

        :raises BrokerError: NOT_LEADER_OR_FOLLOWER: not started
        """
        if self._replica is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._replica

    def subscribe(self, listener: ImageListener) -> None:
        """Call ``listener`` after each step of the image."""
        self._publisher.subscribe(listener)

    # Start and stop

    async def open(self) -> None:
        """Read snapshot and log.

        :raises OSError: the metadata directory can't be used
        :raises ValueError: the log can't be read, or has a ``metadata.version`` that this build does not write
        """
        self._opened = await open_metadata(
            self._composition,
            self._warn,
            self._configured.is_alone,
            force_empty_metadata=self._force_empty_metadata,
        )

    def needs(self) -> MetadataNeeds:
        """As ``StoredMetadata.needs``."""
        return needs_of(self._publisher.image) if self._opened is None else self._opened.needs

    async def start(self) -> None:
        """Join the quorum with what :meth:`open` has read. If it wasn't called, this calls it. The only voter leads,
        and bootstraps a new cluster, before this returns.

        :raises OSError, ValueError: as :meth:`open`
        """
        if self._opened is None:
            await self.open()
        opened, self._opened = self._opened, None
        assert opened is not None
        replica = self._replica = MetadataReplica(
            self._composition,
            opened,
            self._configured,
            self._publisher,
            self._forwarder,
            self._events,
            notice_dead=self._notice_dead,
        )
        self.subscribe(self._registrar.image_changed)
        await replica.start()
        if self._configured.is_alone(opened.loaded.voters):
            await replica.joined

    async def caught_up(self) -> None:
        """Return when the image contains all that was committed when the node joined."""
        await self.replica.joined

    def _warn(self, text: str) -> None:
        self._events.warning("a metadata snapshot can't be read", error=text)

    async def resign(self) -> None:
        """Take no more commands, and hand over to the voter that has the most records."""
        if self._composition.migration is not None:
            await self._composition.migration.resign()
        if self._replica is not None:
            await self._replica.resign()

    async def stop(self) -> None:
        """Wait for the writes under way, fail the commands that still wait, close the log."""
        self._registrar.stop()
        if self._opened is not None:
            self._opened.log.close()
        if self._replica is not None:
            await self._replica.stop()

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
        replica = self._replica
        if replica is None or replica.stopped or (replica.active is None and replica.membership.is_quorum):
            refused: Completion[Message] = Completion()
            refused.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            return refused
        if replica.active is None:
            return self._forwarder.submit(command, timeout_ms, on_behalf, wait_image=wait_image)
        if isinstance(command, DescribeQuorumRequest):
            return Completion.of(describe_quorum(command, replica.driver, replica.log, self._composition))
        if isinstance(command, AddRaftVoterRequest | RemoveRaftVoterRequest):
            return replica.membership.submit(command, timeout_ms)
        completion: Completion[Message] = Completion()
        reply = Reply(completion, wait_image=wait_image)
        replica.active.submit(command, reply, on_behalf)
        if not completion.done:
            reply.timer = self._runtime.call_later(timeout_ms, reply.expire)
        return completion

    def _leader_channel(self) -> PeerChannel | OwnController | None:
        replica = self.replica
        if replica.active is not None:
            return OwnController(self.submit)
        if replica.controller is None:
            return None
        return self._composition.peers.channel(
            replica.controller.node_id, self._configured.listener, "forward", replica.driver.endpoints
        )
