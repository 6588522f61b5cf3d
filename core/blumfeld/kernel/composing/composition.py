"""The node's parts that were made so far. A making hook gets them as ``spi.hooks.Composition``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.cluster import Membership
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.context import Parking
from blumfeld.spi.groups import GroupProtocol
from blumfeld.spi.hooks import Composition, EventLog, Feature
from blumfeld.spi.image_sections import ControllerCommand, ImageSection
from blumfeld.spi.migration import Migration
from blumfeld.spi.object_store import StoreFactory
from blumfeld.spi.observer import Observer
from blumfeld.spi.partitions import LocalPartitions
from blumfeld.spi.peers import PeerClient
from blumfeld.spi.quotas import ClientQuotas
from blumfeld.spi.replication import Replicas, Replication
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.security import Authorizer, Mechanisms, Security
from blumfeld.spi.storage import LogStorage
from blumfeld.spi.transactions import TransactionCoordinator
from blumfeld.spi.transport import Listener, Transport
from blumfeld.wire.errors import PluginContractError

if TYPE_CHECKING:
    from blumfeld.config.values import BrokerConfig


class NodeComposition:
    """The parts of one node. Each plug-in gets a view of it with its own ``options``.

    Reading a part before it was provided raises ``PluginContractError``.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        config: BrokerConfig,
        node_id: int,
        roles: tuple[str, ...],
        data_dirs: tuple[str, ...],
        listeners: Sequence[Listener],
        logs: EventLogs,
        rack: str | None = None,
        single_node: bool = False,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.node_id = node_id
        self.roles = roles
        self.data_dirs = data_dirs
        self.data_dir = data_dirs[0]
        self.rack = rack
        self.single_node = single_node
        self.cluster_id = ""
        """Empty until the node starts: then the id of the formatted directories, or a new one."""
        self.incarnation_id = runtime.new_uuid()
        self.listeners: Sequence[Listener] = tuple(listeners)
        self.features: tuple[Feature, ...] = ()
        self.assignors: Sequence[ConsumerAssignor] = ()
        self.image_sections: Sequence[ImageSection] = ()
        self.controller_commands: Sequence[ControllerCommand] = ()
        self.authenticators: Mechanisms = {}
        self.object_stores: Mapping[str, StoreFactory] = {}
        self.group_protocols: tuple[GroupProtocol, ...] = ()
        self.transactions: TransactionCoordinator | None = None
        self.security: Security | None = None
        self.authorizer: Authorizer | None = None
        self.quotas: ClientQuotas | None = None
        self.observers: tuple[tuple[str, Observer], ...] = ()
        """(name of the plug-in, its observer)."""
        self.plan_json: Callable[[], str] = _no_plan
        """Returns the document of the node's plan."""
        self.options: Any = None
        self.hook: Any = None
        """pluggy's hooks, for announcements: ``hook.blumfeld_topic_created(topic=…)``."""
        self._logs = logs
        self._parts: dict[str, Any] = {}

    def provide(self, name: str, part: Any) -> None:
        """Add a part that was made. Each is provided once, except ``storage``, which a wrapping storage replaces."""
        if name in self._parts and name != "storage":
            raise PluginContractError(f"the part {name} was made twice")
        self._parts[name] = part

    def made(self, name: str) -> Any:
        """Returns the part, or ``None`` if it isn't made yet. A failed start uses it to stop the existing parts."""
        return self._parts.get(name)

    def _part(self, name: str) -> Any:
        if name not in self._parts:
            raise PluginContractError(
                f"{name} was read before it was made; parts are made in the order of the hooks"
            )
        return self._parts[name]

    @property
    def transport(self) -> Transport:
        """The node's transport. It is made first."""
        return cast("Transport", self._part("transport"))

    @property
    def storage(self) -> LogStorage:
        """The node's outermost storage."""
        return cast("LogStorage", self._part("storage"))

    @property
    def local_storage(self) -> LogStorage:
        """The innermost storage."""
        return cast("LogStorage", self._part("local_storage"))

    @property
    def migration(self) -> Migration | None:
        """The migration of the cluster to this consensus, if the node takes part in one."""
        return cast("Migration | None", self.made("migration"))

    @property
    def metadata(self) -> ClusterMetadata:
        """The node's consensus."""
        return cast("ClusterMetadata", self._part("metadata"))

    @property
    def replication(self) -> Replication:
        """The node's replication."""
        return cast("Replication", self._part("replication"))

    @property
    def parking(self) -> Parking:
        """The purgatory."""
        return cast("Parking", self._part("parking"))

    @property
    def replicas(self) -> Replicas:
        """Make this node's replicas leader or follower."""
        return cast("Replicas", self._part("replicas"))

    @property
    def local_partitions(self) -> LocalPartitions:
        """The partitions that this node leads."""
        return cast("LocalPartitions", self._part("local_partitions"))

    @property
    def peers(self) -> PeerClient:
        """Requests to other nodes."""
        return cast("PeerClient", self._part("peers"))

    @property
    def membership(self) -> Membership:
        """The broker's registration."""
        return cast("Membership", self._part("membership"))

    def log(self, name: str) -> EventLog:
        """Returns the event log with this name."""
        return self._logs.named(name)

    def view(self, options: Any) -> Composition:
        """Returns the same composition with the options of one plug-in."""
        return cast("Composition", _View(self, options))


def _no_plan() -> str:
    raise PluginContractError("the plan was read before the node was made")


class _View:
    """A composition with other options."""

    def __init__(self, whole: NodeComposition, options: Any) -> None:
        self._whole = whole
        self.options = options

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)
