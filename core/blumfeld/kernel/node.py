"""One node: made from a plan, started in stages, stopped in stages.

Making opens nothing. A start that fails stops what had started, and says which part failed. ADR 0019 says why the
stages have this order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blumfeld.broker.serving.counts import NodeMetrics
from blumfeld.config.addresses import host_and_port
from blumfeld.config.values import BrokerConfig, ConfigError
from blumfeld.kernel.build_needs import BuildLacks, check_needs
from blumfeld.kernel.composing.composition import NodeComposition
from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.identity import (
    IdentityError,
    cluster_id_of,
    formatted_directories,
    known_cluster_id,
)
from blumfeld.kernel.manifest.kafka_config import keys_without_effect, transport_limits
from blumfeld.kernel.runtime.real_files import absolute_path
from blumfeld.kernel.storage_mark import OF_KAFKAS_FORM, check_marks, write_marks
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.metadata.brokers.feature_levels import supported_features
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.needs import needs_of
from blumfeld.plugging.errors import Faults, ManifestError, Problem, shown
from blumfeld.plugging.plugins import PlannedPlugin, PluginSet, RefusedBy
from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import MetadataNeeds, cluster_id_keeper, stored_metadata
from blumfeld.spi.image_sections import ControllerCommand, ImageSection
from blumfeld.spi.object_store import StoreFactory
from blumfeld.spi.observer import Observer
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.security import Authorizer, MakeAuthenticator, Mechanisms
from blumfeld.spi.storage import lasting, several_directories
from blumfeld.spi.tiering import tiering
from blumfeld.spi.transport import ConnectionHandler, Limits, Listener
from blumfeld.wire.errors import BrokerError, ErrorCode, PluginContractError
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.broker.broker import Broker
    from blumfeld.kernel.watching.metrics_endpoint import Health

MADE, STARTING, STARTED, STOPPING, STOPPED = "made", "starting", "ok", "stopping", "stopped"
"""States of a node; ``/health`` shows them."""
REFUSING = "refusing writes"
"""Shown by ``/health`` for a node that has started, and some of whose partitions can't be written."""

STOP_ORDER = (
    "broker",
    "controller",
    "peers",
    "network",
    "security",
    "replication",
    "consensus",
    "observers",
    "storage",
    "metrics",
)
"""The stages of a stop. It is not the start in reverse: listeners and peers serve until this node leads nothing."""
WARN_MS = 10_000
"""Interval of the warnings while a start waits for the metadata quorum."""
GRACE_MS = 5_000
"""Time that a stop waits for open requests to be answered."""


MakeBroker = Callable[[NodeComposition, Authorizer | None, NodeMetrics], "Broker"]


class StartError(Exception):
    """A part could not start. The parts that had started were stopped again."""

    def __init__(self, part: str, cause: Exception) -> None:
        super().__init__(f"{part}: {_in_words(cause)}")
        self.part = part
        self.is_final = isinstance(cause, IdentityError | BuildLacks) or (
            isinstance(cause, BrokerError) and cause.code is ErrorCode.INCONSISTENT_CLUSTER_ID
        )
        """Whether another start would end the same way: the node's id or its cluster's is wrong, or the build."""


def _in_words(cause: Exception) -> str:
    if isinstance(cause, OSError) and cause.strerror is not None:
        return cause.strerror if cause.filename is None else f"{cause.filename}: {cause.strerror}"
    return str(cause) or type(cause).__name__


def make_broker(composition: NodeComposition, authorizer: Authorizer | None, metrics: NodeMetrics) -> Broker:
    """Make the broker of this build. It is imported here, so that a test with a fake broker doesn't import it."""
    from blumfeld.broker.broker import Broker

    return Broker(composition, authorizer, metrics)


def _is_single_node(plan: Plan) -> bool:
    """Whether the manifest names no other node."""
    node = plan.manifest.node
    if "controller" not in node.roles:
        return False
    voters = plan.config.list("controller.quorum.voters")
    servers = plan.config.list("controller.quorum.bootstrap.servers")
    if not voters and not servers:
        return True
    from blumfeld.kernel.manifest.quorum import names_other_nodes  # not for the default node's start

    return not names_other_nodes(node.id, voters, servers)


def _assignors(plugins: PluginSet) -> tuple[ConsumerAssignor, ...]:
    brought: dict[str, ConsumerAssignor] = {}
    for plan, assignors in plugins.each("blumfeld_assignors"):
        for assignor in assignors:
            if assignor.name in brought:
                raise PluginContractError(f"plug-in {plan.name} brings the assignor {assignor.name} again")
            brought[assignor.name] = assignor
    return tuple(brought.values())


def _image_sections(plugins: PluginSet) -> tuple[ImageSection, ...]:
    from blumfeld.metadata.image.sections import SectionKinds  # no plug-in brings one: a start needs no check

    brought: list[ImageSection] = []
    for plan, sections in plugins.each("blumfeld_image_sections"):
        brought += sections
        try:
            SectionKinds(brought)
        except ValueError as error:
            raise PluginContractError(f"plug-in {plan.name}: {error}") from error
    return tuple(brought)


def _controller_commands(plugins: PluginSet) -> tuple[ControllerCommand, ...]:
    from blumfeld.metadata.controller import COMMANDS

    brought: dict[type[Message], ControllerCommand] = {}
    for plan, commands in plugins.each("blumfeld_controller_commands"):
        for command in commands:
            name = command.request.__name__
            if name in COMMANDS or command.request in brought:
                raise PluginContractError(
                    f"plug-in {plan.name} brings a command for {name}, which has one already"
                )
            brought[command.request] = command
    return tuple(brought.values())


class Node:
    """Made → started → stopped. Made inside the running loop; opens nothing until :meth:`start`.

    :raises PluginContractError: a plug-in broke its contract while parts were made
    :raises ManifestError: a plug-in can't do what ``[config]`` says, or refuses the composition
    """

    def __init__(
        self, plan: Plan, runtime: Runtime, logs: EventLogs, make_broker: MakeBroker = make_broker
    ) -> None:
        node = plan.manifest.node
        self.plan = plan
        self.state = MADE
        self.metrics = NodeMetrics()
        self.plugins = PluginSet(plan.plugins)
        self.composition = NodeComposition(
            runtime=runtime,
            config=plan.config,
            node_id=node.id,
            roles=node.roles,
            data_dirs=tuple(map(absolute_path, node.directories)),
            rack=node.rack,
            listeners=plan.listeners,
            logs=logs,
            single_node=_is_single_node(plan),
        )
        self.composition.plan_json = self.plan_json
        self._plan_json: str | None = None
        self._told_lacking = False
        self._events = logs.named("kernel")
        self._started: dict[str, list[Callable[[], Awaitable[None]]]] = {}
        """Stage → what stops its parts, in the order of the start."""
        self._grace_ms = GRACE_MS
        self.metrics_port: int | None = None
        self.starting = "node"
        """The part that starts, or the last one that started."""
        self._faults = Faults(plan.source)
        with self._faulty_parts():
            self.broker = self._make_parts(make_broker)
        self._faults.tell()

    @contextmanager
    def _faulty_parts(self) -> Iterator[None]:
        """Note that a part can't be made, and go on. Whatever needs the part is left to the caller."""
        try:
            yield
        except ConfigError as error:
            self._faults.add([Problem(f'config."{error.key}"', shown(error.found), error.allowed)])
        except RefusedBy as error:
            refused = error.refused
            allowed = f"{refused.allowed} (plug-in {error.plan.name})"
            self._faults.add([Problem(refused.path or error.plan.path, refused.found, allowed)])

    def _make_parts(self, make_broker: MakeBroker) -> Broker:
        composition, plugins = self.composition, self.plugins
        composition.hook = plugins.hook
        composition.features = tuple(f for _, features in plugins.each("blumfeld_features") for f in features)
        composition.assignors = _assignors(plugins)
        composition.image_sections = _image_sections(plugins)
        composition.controller_commands = _controller_commands(plugins)
        composition.object_stores = self._object_stores()
        composition.authenticators = self._authenticators()
        for role, hook_name, part in (
            ("network", "blumfeld_make_transport", "transport"),
            ("local_storage", "blumfeld_make_storage", "local_storage"),
            ("storage", "blumfeld_make_storage", "storage"),
            ("migration", "blumfeld_make_migration", "migration"),
            ("consensus", "blumfeld_make_consensus", "metadata"),
            ("replication", "blumfeld_make_replication", "replication"),
        ):
            for plan in plugins.of_role(role):
                composition.provide(part, plugins.make(plan, hook_name, composition.view))
            if part == "transport":
                self._make_security()
            if part == "storage":
                if composition.made("local_storage") is None:
                    composition.provide("local_storage", composition.storage)
                self._check_directories()
                self._check_tiering()
        for plan in plugins.of_role("quotas"):
            composition.quotas = plugins.make(plan, "blumfeld_make_quotas", composition.view)
        composition.observers = tuple(
            (plan.name, part) for plan, part in self._each_made("observers", "blumfeld_make_observer")
        )
        broker = make_broker(composition, composition.authorizer, self.metrics)
        composition.provide("parking", broker.parking)
        composition.provide("replicas", broker.replicas)
        composition.provide("local_partitions", broker.local_partitions)
        composition.provide("peers", broker.peers)
        composition.provide("membership", broker.membership)
        if "broker" in composition.roles:
            composition.group_protocols = tuple(
                part for _, part in self._each_made("groups", "blumfeld_make_group_protocol")
            )
            for _, part in self._each_made("transactions", "blumfeld_make_transactions"):
                composition.transactions = part
        self._faults.tell()  # handlers may need the parts
        for _, handlers in plugins.each("blumfeld_api_handlers", composition.view):
            broker.register(handlers)
        return broker

    def _make_security(self) -> None:
        """Make the node's gate and its authorizer, before the parts that dial other nodes."""
        composition, plugins = self.composition, self.plugins
        for plan in plugins.of_role("authorizer"):
            composition.authorizer = plugins.make(plan, "blumfeld_make_authorizer", composition.view)
        for plan in plugins.of_role("security"):
            composition.security = plugins.make(plan, "blumfeld_make_security", composition.view)
            if composition.authorizer is None:
                composition.authorizer = composition.security.authorizer

    def _each_made(self, role: str, hook_name: str) -> Iterator[tuple[PlannedPlugin, Any]]:
        """Yields the parts of a role that no other part needs. The faults get those that can't be made."""
        for plan in self.plugins.of_role(role):
            part = None
            with self._faulty_parts():
                part = self.plugins.make(plan, hook_name, self.composition.view)
            if part is not None:
                yield plan, part

    def _check_tiering(self) -> None:
        """Hold the storage against its plug-in's ``tiers``, by which keys of tiered storage were taken or refused."""
        if self.plan.config.tiers is (tiering(self.composition.storage) is None):
            (outer,) = self.plugins.of_role("storage")
            raise PluginContractError(
                f"{outer.name}: tiers is {self.plan.config.tiers} in the plug-in's class, and its storage has "
                f"{'no' if self.plan.config.tiers else 'a'} log_with; a storage that tiers has both"
            )

    def _object_stores(self) -> Mapping[str, StoreFactory]:
        brought: dict[str, StoreFactory] = {}
        for plan, factories in self._each_made("stores", "blumfeld_object_stores"):
            if again := brought.keys() & factories.keys():
                raise PluginContractError(f"plug-in {plan.name} brings a store for {min(again)}:// again")
            brought.update(factories)
        return brought

    def _authenticators(self) -> Mechanisms:
        brought: dict[str, MakeAuthenticator] = {}
        for plan, mechanisms in self._each_made("authenticators", "blumfeld_authenticators"):
            if again := brought.keys() & mechanisms.keys():
                raise PluginContractError(f"plug-in {plan.name} brings the mechanism {min(again)} again")
            brought.update(mechanisms)
        return brought

    def _check_directories(self) -> None:
        """Refuse several directories with a storage that uses only one: the others would be ignored in silence."""
        count = len(self.composition.data_dirs)
        if count > 1 and several_directories(self.composition.local_storage) is None:
            (inner,) = self.plugins.of_role("local_storage") or self.plugins.of_role("storage")
            allowed = f"one: {inner.name} can't have several (no move_log)"
            raise ManifestError(
                self.plan.source, [Problem("node.data_dirs", f"{count} directories", allowed)]
            )

    @property
    def listeners(self) -> Sequence[Listener]:
        """The node's listeners, after the start with the ports that were bound."""
        return self.composition.listeners

    async def start(self) -> None:
        """Start every part. When this returns, a client that connects is served.

        What the directories need of the build is checked before any listener opens.

        Controller listeners open before the consensus joins: the voters of a quorum reach each other through them.
        Then come the image, up to the high watermark of the quorum's leader; the registration; the replicas; and the
        end of fencing. Broker listeners open last, so that an accepted connection means that the node is ready. Only
        those with port 0 open before the registration, which contains their port; no client knows it yet.

        :raises StartError: a part failed; everything that had started was stopped
        """
        composition, broker = self.composition, self.broker
        self.state = STARTING
        if ineffective := keys_without_effect(self.plan.manifest, self.plan.config.abilities):
            self._events.warning("configuration without effect here", keys=", ".join(ineffective))
        if self.plan.left_out:
            without = "left out: this consensus has no metadata quorum"
            self._events.warning(without, found=", ".join(self.plan.left_out))
        try:
            self.starting = "metrics"
            await self._open_metrics()
            self.starting = "storage"
            await self._start_storage()
            for name, observer in composition.observers:
                self.starting = f"observer {name}"
                await observer.start()
                self._when_stopped("observers", partial(self._stop_observer, observer))
            if composition.security is not None:
                self.starting = "security"
                self._when_stopped("security", composition.security.stop)
                await composition.security.start()
            self.starting = "network"
            self._when_stopped("network", self._stop_transport)
            self._when_stopped("peers", broker.peers.stop)
            await self._start_consensus()
            if composition.made("replication") is not None:
                self.starting = "replication"
                await composition.replication.start()
                self._when_stopped("replication", composition.replication.stop)
            self.starting = "network"
            await self._listen(lambda listener: listener.kind != "controller" and listener.port == 0)
            self.starting = "broker"
            # Its stop is legal at any point of its start, which may wait for other nodes and be cancelled.
            self._when_stopped("broker", broker.stop)
            await broker.start()
            self.starting = "network"
            await self._listen(lambda listener: listener.kind != "controller" and listener.port != 0)
            await broker.listens()
            broker.follow_config(self._config_changed)
            self.state = STARTED
            self.starting = "blumfeld_node_started"
            for _ in self.plugins.each(self.starting, composition.view):
                pass
        except BaseException as error:  # also a cancelled start must stop what it has started
            await self._stop_started()
            self.state = STOPPED
            if isinstance(error, Exception):
                raise StartError(self.starting, error) from error
            raise

    async def _start_consensus(self) -> None:
        """Read what the directories hold of the metadata, open the controller listeners, join, and catch up."""
        composition = self.composition
        self.starting = "consensus"
        # Its stop is legal at any point of its start. One that is cancelled has begun to write the metadata log,
        # which the storage may close only when that is over.
        if "consensus" not in self._started:  # one that keeps the cluster's id was asked for it already
            self._when_stopped("consensus", composition.metadata.stop)
        stored = stored_metadata(composition.metadata)
        if stored is not None:
            await stored.open()
            self._check_needs(stored.needs())
        self.starting = "network"
        await self._listen(lambda listener: listener.kind == "controller")
        self.starting = "consensus"
        self._when_stopped("controller", composition.metadata.resign)
        await composition.metadata.start()
        await self._caught_up()
        if stored is not None:
            self._check_needs(stored.needs())  # of what other nodes have written since
            composition.metadata.subscribe(self._image_changed)

    def _check_needs(self, needs: MetadataNeeds) -> None:
        """Refuse to serve metadata that needs what this build lacks.

        :raises BuildLacks: it does
        """
        composition = self.composition
        features = supported_features(composition.features)
        check_needs(needs, features, composition.image_sections, self.plan)

    def _image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Say so, once, when a node of another build has written what this one lacks. This node serves on, and does not
        start again."""
        if not delta.kept_records and not delta.features_changed:
            return
        needs = needs_of(MetadataImage(), delta.kept_records)
        try:
            self._check_needs(msgspec.structs.replace(needs, features=image.features))
        except BuildLacks as error:
            if not self._told_lacking:
                self._events.error(
                    "this build lacks what other nodes use: its next start is refused", error=str(error)
                )
            self._told_lacking = True

    async def _caught_up(self) -> None:
        """Wait for the image, and say so: without a quorum a start waits here for good."""
        runtime, began_ms = self.composition.runtime, self.composition.runtime.monotonic_ms()
        waits = True

        def warn() -> None:
            if waits:
                waited_s = round((runtime.monotonic_ms() - began_ms) / 1_000)
                self._events.warning("the metadata quorum has not answered yet", waited_s=waited_s)
                runtime.call_later(WARN_MS, warn)

        runtime.call_later(WARN_MS, warn)
        try:
            await self.composition.metadata.caught_up()
        finally:
            waits = False

    async def stop(self, grace_ms: int = GRACE_MS) -> None:
        """Leave the cluster, wait up to ``grace_ms`` for open requests, and stop every part, in the order of
        :data:`STOP_ORDER`.

        A part that fails to stop is logged, and the others are still stopped. May be called twice, and without start.
        """
        if self.state in (STOPPING, STOPPED):
            return
        was_started = self.state == STARTED
        self.state = STOPPING
        self._grace_ms = grace_ms
        if was_started:
            try:
                for _ in self.plugins.each("blumfeld_node_stopping", self.composition.view):
                    pass
            except Exception as defect:  # the parts must be stopped all the same
                self._events.error("a hook failed", hook="blumfeld_node_stopping", exc_info=defect)
        await self._stop_started()
        self.state = STOPPED

    async def _stop_started(self) -> None:
        for part in STOP_ORDER:
            for stop in reversed(self._started.pop(part, [])):
                try:
                    await stop()
                except OSError as error:  # mostly a disk that failed earlier: a traceback would not help
                    self._events.error("a part did not stop cleanly", part=part, error=str(error))
                except Exception as error:
                    self._events.error("a part did not stop cleanly", part=part, exc_info=error)

    def _when_stopped(self, stage: str, stop: Callable[[], Awaitable[None]]) -> None:
        self._started.setdefault(stage, []).append(stop)

    async def _start_storage(self) -> None:
        composition = self.composition
        node = self.plan.manifest.node
        directories, wanted = composition.data_dirs, node.cluster_id
        keeper = cluster_id_keeper(composition.metadata)
        if keeper is None:
            composition.cluster_id = cluster_id_of(
                composition.runtime, directories, node.id, wanted, may_be_new=composition.single_node
            )
        else:
            self.starting = "consensus"
            self._when_stopped("consensus", composition.metadata.stop)
            known = known_cluster_id(composition.runtime, directories, node.id, wanted, zookeeper=True)
            formatted = bool(formatted_directories(composition.runtime, directories, zookeeper=True))
            composition.cluster_id = await keeper.agreed_cluster_id(known, is_formatted=formatted)
        self.starting = "storage"
        (innermost,) = self.plugins.of_role("local_storage") or self.plugins.of_role("storage")
        files = composition.runtime.files
        check_marks(files, directories, innermost.name)
        await composition.storage.start(composition.cluster_id, node.id)
        self._when_stopped("storage", self._stop_storage)
        if innermost.name != OF_KAFKAS_FORM and lasting(composition.local_storage) is not None:
            online = {place.path for place in composition.local_storage.log_dirs() if place.online}
            write_marks(files, [path for path in directories if path in online], innermost.name)

    async def _stop_storage(self) -> None:
        await self.composition.storage.stop(self.broker.membership.broker_epoch)

    async def _listen(self, chosen: Callable[[Listener], bool]) -> None:
        composition = self.composition
        listeners = list(composition.listeners)
        for nth, listener in enumerate(listeners):
            if not chosen(self.plan.listeners[nth]):
                continue
            security = composition.security
            served = self.broker.connection_handler(listener.kind)
            handler: ConnectionHandler = served
            layer = None
            if security is not None:
                handler = security.connection_handler(listener, served)
                layer = security.byte_layer(listener)
            limits = self._limits(self.plan.config, listener)
            port = await composition.transport.listen(listener, handler, limits, layer)
            listeners[nth] = msgspec.structs.replace(listener, port=port)
            composition.listeners = tuple(listeners)

    def _limits(self, config: BrokerConfig, listener: Listener) -> Limits:
        return transport_limits(config, listener.name, self.plan.manifest.network.answer_memory_bytes_max)

    def _config_changed(self, config: BrokerConfig) -> None:
        """Apply what was changed at run time: limits of listeners, and keys of security."""
        try:
            for listener in self.composition.listeners:
                self.composition.transport.limit(listener.name, self._limits(config, listener))
        except ConfigError as error:  # another build wrote the value: keep the present limits
            self._events.warning("limits of connections not changed", error=str(error))
        if self.composition.security is not None:
            self.composition.security.reconfigure(config)

    async def _stop_observer(self, observer: Observer) -> None:
        turn: Completion[None] = Completion()
        self.composition.runtime.call_later(0, lambda: turn.complete(None))
        await turn  # observers are told of the last answers one turn later: stop them after that
        await observer.stop()

    async def _stop_transport(self) -> None:
        await self.composition.transport.stop(self._grace_ms)

    def plan_json(self) -> str:
        """Returns the document of the node's plan. It is made when it is asked for first, which takes some
        milliseconds."""
        if self._plan_json is None:
            from blumfeld.kernel.description.document import document_of, encode_document

            document = document_of(self.plan, self.composition, self.broker)
            self._plan_json = encode_document(document).decode()
        return self._plan_json

    def health(self) -> Health:
        """Returns the answer of ``/health``."""
        from blumfeld.kernel.watching.metrics_endpoint import Health

        composition, refusing = self.composition, self.broker.refusing_writes
        return Health(
            status=REFUSING if self.state == STARTED and refusing else self.state,
            node_id=composition.node_id,
            cluster_id=composition.cluster_id,
            partitions_refusing_writes=refusing,
        )

    async def _open_metrics(self) -> None:
        bind = self.plan.manifest.metrics.bind
        if bind is None:
            return
        from blumfeld.kernel.watching.metrics_endpoint import MetricsEndpoint
        from blumfeld.kernel.watching.process_metrics import LoopLag, process_metrics

        lag = LoopLag(self.composition.runtime)
        brought = [metric for _, metrics in self.plugins.each("blumfeld_metrics") for metric in metrics]
        for metric in (
            *self.broker.gauges(),
            *process_metrics(lag, self.composition.runtime.scheduler),
            *brought,
        ):
            self.metrics.add(metric)

        endpoint = MetricsEndpoint(
            self.composition.runtime.scheduler,
            self.metrics,
            self.health,
            self.broker.group_lags,
            self.plan_json,
        )
        self.metrics_port = await endpoint.start(*host_and_port(bind))
        self._when_stopped("metrics", endpoint.stop)
        lag.start()
        self._when_stopped("metrics", lag.stop)
