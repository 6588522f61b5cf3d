"""The hooks, in the order of a broker's life. pluggy composes; direct calls serve (docs/design.md, rule 1): none is
called on the path of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import pluggy

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.cluster import Membership, PartitionImage, TopicImage
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.context import ApiHandler, Parking
from blumfeld.spi.groups import GroupProtocol
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
from blumfeld.spi.storage import LogStorage, TopicPartition
from blumfeld.spi.transactions import TransactionCoordinator
from blumfeld.spi.transport import Listener, LoopFactory, Transport
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.config.values import BrokerConfig
    from blumfeld.spi.decoders import Decoder

hookspec = pluggy.HookspecMarker("blumfeld")
hookimpl = pluggy.HookimplMarker("blumfeld")


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a plug-in that has none."""


class CompositionRefused(Exception):  # noqa: N818 - the noun says what it is
    """Raised by a making hook: this plug-in can't be part of this composition. It is no defect.

    ``blumfeld plan`` and ``blumfeld run`` print it as they print every problem of a manifest, with exit status 2, and
    nothing was opened.

    :param path: the key of the manifest that is to blame: ``node.data_dirs``; "" stands for the place that names the
        plug-in
    :param found: the value found there: ``"2 directories"``
    :param allowed: the values that the plug-in can serve: ``"one directory: storage_x keeps one file"``
    """

    def __init__(self, path: str, found: str, allowed: str) -> None:
        super().__init__(f"{path}: found {found}; allowed: {allowed}")
        self.path = path
        self.found = found
        self.allowed = allowed


class Composition(Protocol):
    """The node's parts so far, as a making hook is handed them. Reading a part that is made later raises
    ``PluginContractError``.

    Parts are made in the order: transport, authorizer, security, storage, consensus, replication, quotas, group
    protocols, transactions.
    """

    runtime: Runtime
    config: BrokerConfig
    node_id: int
    roles: tuple[str, ...]
    """``broker``, ``controller``, or both."""
    data_dir: str
    """The first of ``data_dirs``: where ``__cluster_metadata`` lies, and what else there is once in a node."""
    data_dirs: tuple[str, ...]
    """All log directories, one at least, in the manifest's order."""
    cluster_id: str
    incarnation_id: bytes
    """Fresh for each process: BrokerRegistration's."""
    single_node: bool
    """Whether the manifest names no other node: internal topics have one replica then."""
    features: Sequence[Feature]
    """Feature levels that the build's plug-ins bring."""
    assignors: Sequence[ConsumerAssignor]
    """Server-side assignors that the build's plug-ins bring, each name once."""
    image_sections: Sequence[ImageSection]
    """Sections of the image that the build's plug-ins bring. The consensus hands them to its images."""
    controller_commands: Sequence[ControllerCommand]
    """Commands that the build's plug-ins add to the controller. The consensus hands them to its controller."""
    security: Security | None
    """The gate, and this node's login at others; ``None`` in a build without the role."""
    authenticators: Mechanisms
    """SASL mechanisms that the plug-ins of ``[security] authenticators`` bring."""
    object_stores: Mapping[str, StoreFactory]
    """Object stores that the build's plug-ins bring, by the scheme of their URLs. A storage that keeps older records
    elsewhere opens one of them."""
    options: Any
    """This plug-in's section of the manifest, decoded to its ``options_class``."""
    listeners: Sequence[Listener]
    """The listeners of this node. They have the ports that were bound once the transport listens."""

    @property
    def transport(self) -> Transport:
        """Made first."""
        ...

    @property
    def storage(self) -> LogStorage:
        """The node's outermost storage."""
        ...

    @property
    def local_storage(self) -> LogStorage:
        """The innermost storage: where ``__cluster_metadata`` lies, and what a wrapping storage wraps."""
        ...

    @property
    def migration(self) -> Migration | None:
        """The migration of the cluster to this consensus; ``None`` for a node that takes part in none."""
        ...

    @property
    def metadata(self) -> ClusterMetadata:
        """The node's consensus."""
        ...

    @property
    def parking(self) -> Parking:
        """The purgatory."""
        ...

    @property
    def replicas(self) -> Replicas:
        """Make this node's replicas leader or follower, for a consensus that pushes (``ReplicaDriver.PUSHES``)."""
        ...

    @property
    def local_partitions(self) -> LocalPartitions:
        """The partitions that this node leads: append, read, watch, learn of leadership. Made with the broker."""
        ...

    @property
    def peers(self) -> PeerClient:
        """Requests to other nodes."""
        ...

    @property
    def membership(self) -> Membership:
        """The broker's registration, for its epoch."""
        ...

    def log(self, name: str) -> EventLog:
        """A log of events for people, under this name."""
        ...


class EventLog(Protocol):
    """Events with values, for people and machines: structlog's manner. Cheap before logging is set up: events
    are kept until then.
    """

    def debug(self, event: str, **values: Any) -> Any:
        """Log an event that helps to debug and has no other use."""
        ...

    def info(self, event: str, **values: Any) -> Any:
        """Something rare happened as it should."""
        ...

    def warning(self, event: str, **values: Any) -> Any:
        """Something is not as it should be; the broker serves on."""
        ...

    def error(self, event: str, **values: Any) -> Any:
        """Log a failure that a person must look at."""
        ...


class Feature(msgspec.Struct, frozen=True):
    """A feature level that a plug-in brings (KIP-584): ``group.version`` 0–1."""

    name: str
    min_level: int
    max_level: int
    default_level: int


class Metric(msgspec.Struct, frozen=True):
    """A value that is read at a scrape; it is never pushed."""

    name: str
    """Prometheus's form, with the unit last: ``blumfeld_log_flush_seconds_total``."""
    help: str
    kind: str
    """``counter``, ``gauge`` or ``histogram``."""
    read: Callable[[], Any]
    """Gives a number, or a :class:`~blumfeld.spi.histogram.Histogram` where the kind says so; with ``labels`` a mapping
    with one for each tuple of their values that there is now."""
    labels: tuple[str, ...] = ()


class Plugin(Protocol):
    """The class that an entry point of the group ``blumfeld.plugins`` names. Importing and making it open nothing.

    Life: made (for each node) → its hooks make parts → parts are started → stopped, in reverse. The hooks it implements
    are marked with ``hookimpl`` from this module. Stop without start is legal.

    A class may say ``requires_spi = "1.0"``: the version of ``blumfeld.spi`` that it was written for. A build that has
    not got it refuses the plug-in before anything opens.

    A plug-in whose consensus has no metadata quorum says ``quorum = False``. The role ``controller``, listeners of that
    kind and the keys of a quorum mean nothing then, and a plan leaves them out.

    A plug-in whose storage is a ``TieringStorage`` says ``tiers = True``. Topics may have ``remote.storage.enable``
    then. A security plug-in that serves other protocols than PLAINTEXT says ``secures = True``, and one of quotas
    ``limits = True``: keys of TLS and SASL, and those of quotas, have their effect then.
    """

    options_class: type[msgspec.Struct]
    """Decodes the role's ``options`` in the manifest; unknown keys are refused with their path. ``NoOptions``
    when there are none.
    """
    roles: tuple[str, ...]
    """The sections of a manifest that may name it: ``network``, ``storage``, ``consensus``, ``replication``,
    ``migration``, ``groups``, ``assignors``, ``transactions``, ``security``, ``authorizer``, ``authenticators``,
    ``quotas``, ``observers``, ``stores``, ``sink``, ``decoders``. Empty for a plug-in that only brings commands.
    """


class Hooks:
    """The hook specs. A hook that makes something is called for the plug-in that the manifest names for the
    role, and no other. It may raise ``CompositionRefused``. What it gives is held against its Protocol at once: a
    member that is missing, or can't be called as the Protocol says, fails the composition.
    """

    @hookspec
    def blumfeld_cli_commands(self) -> Sequence[Any]:  # type: ignore[empty-body]
        """Called by ``blumfeld --help`` and for a verb that the kernel doesn't have: typer apps, each with its
        name set.

        Not called by ``run``. Must import nothing heavy at the top of its module. The ``obj`` of a command's
        ``typer.Context`` is the machine's ``Files``.

        :return: the commands to add
        """

    @hookspec
    def blumfeld_features(self) -> Sequence[Feature]:  # type: ignore[empty-body]
        """Called once at composition, before anything is made: feature levels that this plug-in can do.

        ApiVersions shows them; formatting finalizes their default levels.

        :return: the features
        """

    @hookspec
    def blumfeld_image_sections(self) -> Sequence[ImageSection]:  # type: ignore[empty-body]
        """Called once at composition, before anything is made: sections of the cluster image that this plug-in brings.

        :return: the sections; two of one name, or with one type of record, fail the composition
        """

    @hookspec(firstresult=True)
    def blumfeld_first_credentials(
        self, runtime: Runtime, add_scram: Sequence[str]
    ) -> Sequence[Message] | None:
        """Called by ``blumfeld format --add-scram`` for the plug-in that ``[security]`` names: records that the
        cluster's metadata begins with.

        :param runtime: of the command; files may be read
        :param add_scram: the values of ``--add-scram``, in order
        :return: records of the plug-in's sections
        :raises ValueError: a value has another form; its text is printed, so it holds no secret
        """

    @hookspec
    def blumfeld_controller_commands(self) -> Sequence[ControllerCommand]:  # type: ignore[empty-body]
        """Called once at composition, before anything is made: commands that this plug-in adds to the controller.

        :return: the commands; two for one request, or one that the core has, fail the composition
        """

    @hookspec
    def blumfeld_assignors(self) -> Sequence[ConsumerAssignor]:  # type: ignore[empty-body]
        """Called once at composition, before anything is made: server-side assignors that this plug-in brings
        (KIP-848).

        A plug-in that brings nothing else is named in ``[groups] assignors``.

        :return: the assignors; ``group.consumer.assignors`` says which of them the broker offers
        """

    @hookspec(firstresult=True)
    def blumfeld_object_stores(self, composition: Composition) -> Mapping[str, StoreFactory] | None:
        """Called once for each plug-in that ``[plugins] stores`` names, before a storage is made: the object stores
        that it brings. Opens nothing.

        :param composition: has runtime, config, options and nothing that is made
        :return: the scheme of a URL (``acme`` of ``acme://…``) → what makes the store of such a URL, which passes
            ``blumfeld_kit.ObjectStoreContract``; two plug-ins with one scheme fail the composition
        """

    @hookspec
    def blumfeld_decoders(self) -> Sequence[Decoder]:  # type: ignore[empty-body]
        """Called by an archive for each plug-in that its settings name: decoders of message formats.

        Called in Spark's workers too; must import nothing heavy at the top of its module.

        :return: the decoders, by whose names the settings choose
        """

    @hookspec(firstresult=True)
    def blumfeld_loop_factory(self) -> LoopFactory | None:
        """Called once, before there is a loop: the transport's event loop. ``None`` is asyncio's own.

        :return: a function that makes the loop
        """

    @hookspec(firstresult=True)
    def blumfeld_make_transport(self, composition: Composition) -> Transport | None:
        """Called once for a node with the running loop. Opens nothing.

        :param composition: has runtime, config, options and nothing that is made
        :return: what passes ``blumfeld_kit.TransportContract``
        """

    @hookspec(firstresult=True)
    def blumfeld_authenticators(self, composition: Composition) -> Mechanisms | None:
        """Called once for each plug-in that ``[security] authenticators`` names, before security is made. Opens
        nothing.

        :param composition: has runtime, config, options and the transport
        :return: SASL mechanisms by name, each of which passes ``blumfeld_kit.AuthenticatorContract``; two plug-ins with
            one name fail the composition
        """

    @hookspec(firstresult=True)
    def blumfeld_make_authorizer(self, composition: Composition) -> Authorizer | None:
        """Called once, if ``[security] authorizer`` names the plug-in. Opens nothing.

        Provisional: first used by a third party's plug-in.

        :param composition: has the transport; other parts may be read once the node starts
        :return: what decides in place of the security plug-in's own, and passes ``blumfeld_kit.AuthorizerContract``
        """

    @hookspec(firstresult=True)
    def blumfeld_make_security(self, composition: Composition) -> Security | None:
        """Called once, if the manifest names a security plug-in; otherwise everything is allowed. Opens nothing.

        :param composition: has the transport and the authenticators; other parts may be read once the node starts
        :return: the gate, byte layers, this node's login at others, and the authorizer
        """

    @hookspec(firstresult=True)
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage | None:
        """Called once for a node, innermost storage first; a wrapping one finds the inner in
        ``composition.local_storage``. Opens nothing.

        :param composition: has the transport
        :return: what passes ``blumfeld_kit.StorageContract``
        """

    @hookspec(firstresult=True)
    def blumfeld_make_migration(self, composition: Composition) -> Migration | None:
        """Called once, if the manifest names a migration, for a node with the controller's role. Opens nothing.

        :param composition: has transport and storage
        :return: what brings the cluster's metadata from elsewhere into the quorum
        """

    @hookspec(firstresult=True)
    def blumfeld_make_consensus(self, composition: Composition) -> ClusterMetadata | None:
        """Called once for a node. Opens nothing.

        :param composition: has transport and storage
        :return: the node's view of the cluster
        """

    @hookspec(firstresult=True)
    def blumfeld_make_replication(self, composition: Composition) -> Replication | None:
        """Called once for a node with the broker role. Starts nothing.

        :param composition: has transport, storage and consensus
        :return: the node's replication
        """

    @hookspec(firstresult=True)
    def blumfeld_make_quotas(self, composition: Composition) -> ClientQuotas | None:
        """Called once, if ``[quotas]`` names a plug-in; otherwise nobody is throttled. Opens nothing.

        :param composition: has transport, security, storage, consensus and replication
        :return: what counts what each client takes, and passes ``blumfeld_kit.QuotasContract``
        """

    @hookspec(firstresult=True)
    def blumfeld_make_observer(self, composition: Composition) -> Observer | None:
        """Called once for each plug-in that ``[plugins] observers`` names. Opens nothing.

        :param composition: has transport, storage, consensus and replication
        :return: what is told of requests once they are answered, and passes ``blumfeld_kit.ObserverContract``
        """

    @hookspec(firstresult=True)
    def blumfeld_make_group_protocol(self, composition: Composition) -> GroupProtocol | None:
        """Called once for each plug-in that ``[groups] plugins`` names.

        :param composition: has all parts but transactions
        :return: one group type
        """

    @hookspec(firstresult=True)
    def blumfeld_make_transactions(self, composition: Composition) -> TransactionCoordinator | None:
        """Called once, unless the manifest leaves transactions out.

        :param composition: has all parts
        :return: the shard type and its handlers
        """

    @hookspec
    def blumfeld_api_handlers(self, composition: Composition) -> Sequence[ApiHandler]:  # type: ignore[empty-body]
        """Called once for a node after all parts are made: API handlers that the plug-in brings.

        ApiVersions is what is registered. Two handlers for one (key, version, listener kind) fail the
        composition.

        :param composition: has all parts
        :return: the handlers
        """

    @hookspec
    def blumfeld_metrics(self) -> Sequence[Metric]:  # type: ignore[empty-body]
        """Called once when the metrics endpoint opens, if it is on.

        :return: metrics of the plug-in
        """

    @hookspec
    def blumfeld_node_started(self, composition: Composition) -> None:
        """Called once when every part has started and the listeners are open, before the ready line. If it raises, the
        start has failed.

        :param composition: has all parts
        """

    @hookspec
    def blumfeld_topic_created(self, topic: TopicImage) -> None:
        """Called after the topic is in this node's image.

        :param topic: as it was created
        """

    @hookspec
    def blumfeld_topic_deleted(self, topic: TopicImage) -> None:
        """Called after the topic has left this node's image; its logs may still be on disk.

        :param topic: as it last was
        """

    @hookspec
    def blumfeld_leader_changed(self, partition: TopicPartition, image: PartitionImage) -> None:
        """Called on every node that has the partition when its leader or leader epoch changed.

        :param partition: which
        :param image: as it now is
        """

    @hookspec
    def blumfeld_node_stopping(self, composition: Composition) -> None:
        """Called once when a stop begins, before any part is stopped; not called when a start failed.

        :param composition: has all parts
        """
