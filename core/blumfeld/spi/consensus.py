"""The consensus role: who is controller, what the cluster is, and how it is changed.

A command is a request message of the wire protocol and its result the response message, in KRaft as in
ZooKeeper mode: CreateTopics, DeleteTopics, CreatePartitions, IncrementalAlterConfigs, AlterConfigs,
BrokerRegistration, BrokerHeartbeat, AllocateProducerIds, AlterPartition,
AlterPartitionReassignments, AssignReplicasToDirs, ElectLeaders, UpdateFeatures….
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, cast

import msgspec

from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import Principal, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message


class Controller(msgspec.Struct, frozen=True):
    """The current controller, with the epoch that fences earlier controllers."""

    node_id: int
    epoch: int


class Quorum(msgspec.Struct, frozen=True, kw_only=True):
    """State of the consensus, for DescribeQuorum and ``plan``; ``None`` fields where a consensus has no such
    thing.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    voters: tuple[int, ...]
    voter_directory_ids: tuple[bytes, ...] = ()
    kraft_version: int = 0
    """1: the voters stand in the log, and can change (KIP-853)."""


class ReplicaDriver(Enum):
    """The driver of a node's replicas: it makes them lead, follow and go."""

    IMAGE = "image"
    """Each delta of the image: the broker does it by itself (KRaft)."""
    PUSHES = "pushes"
    """Calls of ``Composition.replicas``, which the consensus makes when its controller says so: the image may be older
    or newer (ZooKeeper mode: LeaderAndIsr and UpdateMetadata arrive on their own)."""


class OnBehalf(msgspec.Struct, frozen=True):
    """The client on whose behalf a node asks the controller."""

    principal: Principal
    client_host: str
    """An IP address."""
    client_id: str


class ClusterIdKeeper(Protocol):
    """A consensus that keeps the cluster's id elsewhere than in the nodes' directories."""

    async def agreed_cluster_id(self, own: str | None, *, is_formatted: bool) -> str:
        """Return the cluster's id; called once, before the storage starts. A new cluster gets ``own``, or a new id.

        :param own: the id that the directories have, or the manifest names; ``None`` if neither does
        :param is_formatted: the directories have it, so the node was in the cluster before
        :raises BrokerError: INCONSISTENT_CLUSTER_ID: ``own`` is another cluster's
        :raises OSError: it can't be asked
        """
        ...


def cluster_id_keeper(metadata: ClusterMetadata) -> ClusterIdKeeper | None:
    """Return the same object, if it is a :class:`ClusterIdKeeper`."""
    return cast("ClusterIdKeeper", metadata) if hasattr(metadata, "agreed_cluster_id") else None


class MetadataNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What the cluster's metadata needs of the build that serves it."""

    features: Mapping[str, int]
    """The finalized levels above 0."""
    records: Mapping[str, Message]
    """Part of the metadata that only a plug-in gives a meaning → one of its records. The parts: ``acl``, ``scram``,
    ``token``, ``quota``."""
    internal_topics: frozenset[str]
    """The coordinators' topics that exist."""
    tiered_topics: tuple[str, ...]
    """Topics with ``remote.storage.enable``."""


class StoredMetadata(Protocol):
    """A consensus whose metadata lies in the node's directories. It can be asked what it needs before a listener
    opens."""

    async def open(self) -> None:
        """Read it. Called once, after the storage has started and before ``start``.

        :raises OSError: as ``start``
        :raises ValueError: as ``start``
        """
        ...

    def needs(self) -> MetadataNeeds:
        """Return what the metadata needs that this node knows: before ``start`` that of its directories, later that of
        its image.
        """
        ...


def stored_metadata(metadata: ClusterMetadata) -> StoredMetadata | None:
    """Return the same object, if it is a :class:`StoredMetadata`."""
    return cast("StoredMetadata", metadata) if hasattr(metadata, "needs") else None


ImageListener = Callable[[ClusterImage, ImageDelta], Completion[None] | None]
"""Is told of one step of the image. It returns a completion if it applies the delta over several turns."""


class ClusterMetadata(Protocol):
    """Made by ``blumfeld_make_consensus``. Made → started → stopped."""

    replica_driver: ReplicaDriver
    """A constant of the consensus. The broker follows the image, or waits for pushes; never both."""
    forwards: bool
    """Whether each node passes a client's command on to the controller (KIP-590).
    Where it doesn't, Metadata and DescribeCluster name the real controller, a command elsewhere fails with
    NOT_CONTROLLER, and APIs of KRaft alone aren't served. A constant of the consensus, except in a cluster that
    migrates to another one."""

    @property
    def image(self) -> ClusterImage:
        """The committed metadata that this node knows."""
        ...

    @property
    def controller_image(self) -> ClusterImage:
        """The image that the controller in this node decides on; :attr:`image` where there is none. A consensus that
        doesn't forward shows reassignments only here."""
        ...

    @property
    def controller(self) -> Controller | None:
        """The controller, as far as this node knows."""
        ...

    def quorum(self) -> Quorum | None:
        """Return the quorum for DescribeQuorum; ``None`` where the consensus has no quorum of its own."""
        ...

    @property
    def applied_offset(self) -> int:
        """Offset of the last metadata record that :attr:`image` contains: a broker reports it with its heartbeats. -1
        where the consensus has no single log.
        """
        ...

    async def start(self) -> None:
        """Load what is on disk (format first when there is nothing yet) and join. Other nodes need not be there yet:
        the node's controller listeners are open, its broker listeners are not.

        :raises OSError: the metadata directory can't be used
        :raises ValueError: it belongs to another cluster or node, or can't be read: the message says what and
            where
        """
        ...

    async def caught_up(self) -> None:
        """Return when :attr:`image` contains all that was committed when the node joined. It may wait for other nodes,
        without a limit; a node that is stopped meanwhile cancels it.

        :raises OSError: the metadata log takes no records
        """
        ...

    def submit(
        self,
        command: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = True,
    ) -> Completion[Message]:
        """Have the controller decide on a command, wherever the controller is.

        Completes with the response when the changes are committed. Errors of single items are in the response. Fails
        with ``BrokerError``: NOT_CONTROLLER (retriable), REQUEST_TIMED_OUT, or UNSUPPORTED_VERSION for a command that
        no controller of this build knows.

        :param on_behalf: the client whose request it is; ``None`` for the node's own. A node that isn't the controller
            forwards the request in an Envelope (KIP-590), so that the controller authorizes the client and not the node
        :param wait_image: complete only when :attr:`image` shows what the response tells, so that the client can read
            it here. Heartbeats, changes of an ISR and blocks of producer ids don't wait: a node whose image is behind
            must still be able to send them
        """
        ...

    def subscribe(self, listener: ImageListener) -> None:
        """Call ``listener(image, delta)`` after each step of the image, in order; the first call
        (``delta.first``) comes at once if loaded.

        If the listener returns a completion, the next step and the answers that wait for this one come when it is done.
        """
        ...

    async def resign(self) -> None:
        """Stop being controller, and hand over to another voter if there is one. :meth:`submit` fails with
        NOT_CONTROLLER afterwards where this node was the controller. Peers can still be reached. Legal without start,
        and after a start that failed or was cancelled.
        """
        ...

    async def stop(self) -> None:
        """Leave; close files. Legal without start, after a start that failed or was cancelled, and without
        :meth:`resign`.
        """
        ...


CLIENT_TIMEOUT_MS = 30_000
"""Time for the controller's decision on a request without a timeout of its own: Kafka's ``request.timeout.ms``."""


def is_controller(metadata: ClusterMetadata, node_id: int) -> bool:
    """Whether this node is the controller, as far as it knows."""
    controller = metadata.controller
    return controller is not None and controller.node_id == node_id


def submit_for(
    context: RequestContext,
    request: Message,
    metadata: ClusterMetadata,
    node_id: int,
    timeout_ms: float = CLIENT_TIMEOUT_MS,
) -> Completion[Message]:
    """Have the controller decide on a client's request, on the client's behalf: :meth:`ClusterMetadata.submit`.

    :param node_id: this node
    :raises BrokerError: NOT_CONTROLLER: the request came in on a controller listener, and this node isn't the
        controller. The client looks for the controller and asks again
    """
    if context.listener.kind == "controller" and not is_controller(metadata, node_id):
        raise BrokerError(ErrorCode.NOT_CONTROLLER)
    on_behalf = OnBehalf(context.principal, context.peer_host, context.client_id)
    return metadata.submit(request, timeout_ms, on_behalf=on_behalf)
