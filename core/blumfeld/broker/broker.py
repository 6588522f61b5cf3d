"""The broker: what answers on a node's listeners, over the partitions that it hosts.

The kernel makes it from a composition whose parts are made but not started, hands it what plug-ins bring, starts it
when storage, consensus and replication have started, and stops it before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from blumfeld.broker.fetch.sessions import FetchSessions
from blumfeld.broker.membership.config_warnings import ConfigWarnings
from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.broker.membership.log_directories import LogDirectories
from blumfeld.broker.replicas.hosting import PartitionManager
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.serving.dispatch import Dispatcher, RequestMetrics, Route
from blumfeld.broker.serving.looking_inside import LookingInside
from blumfeld.broker.serving.peer_client import TransportPeerClient
from blumfeld.broker.serving.slices import Slices
from blumfeld.broker.upkeep.cleaner import Cleaner
from blumfeld.broker.upkeep.retention import Upkeep
from blumfeld.broker.waiting.parking import PurgatoryParking
from blumfeld.config.values import BROKER_CONFIGS, BrokerConfig, TopicConfig, usable
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, ImageDelta, TopicImage
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupProtocol, TransactionCoordinator
from blumfeld.spi.hooks import Composition, Feature, Metric
from blumfeld.spi.observing import Observer
from blumfeld.spi.replication import Replication
from blumfeld.spi.security import Authorizer
from blumfeld.spi.storage import TopicPartition, several_directories
from blumfeld.spi.transport import ConnectionHandler
from blumfeld.wire.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from blumfeld.broker.coordination.groups import GroupCoordination

LISTENER_KINDS = ("broker", "controller")


class Announcements(Protocol):
    """pluggy's relay, for what is announced."""

    blumfeld_topic_created: Callable[..., object]
    blumfeld_topic_deleted: Callable[..., object]
    blumfeld_leader_changed: Callable[..., object]


class BrokerComposition(Composition, Protocol):
    """What the broker needs of a node beyond what plug-ins are handed."""

    rack: str | None
    features: tuple[Feature, ...]
    group_protocols: tuple[GroupProtocol, ...]
    transactions: TransactionCoordinator | None
    hook: Announcements
    observers: tuple[tuple[str, Observer], ...]
    """Each with the name of its plug-in."""

    @property
    def replication(self) -> Replication:
        """The node's replication."""
        ...


class Broker:
    """Made → started → stopped."""

    def __init__(
        self,
        composition: BrokerComposition,
        authorizer: Authorizer | None = None,
        metrics: RequestMetrics | None = None,
    ) -> None:
        self.composition = composition
        self.runtime = composition.runtime
        self.node_id = composition.node_id
        self.config: BrokerConfig = composition.config
        """With what was changed at run time."""
        self._config_followers: list[Callable[[BrokerConfig], None]] = []
        self.events = composition.log("broker")
        self.parking = PurgatoryParking(composition.runtime, self.events)
        self.partitions = PartitionManager(
            node_id=composition.node_id,
            runtime=composition.runtime,
            parking=self.parking,
            events=self.events,
            config_of=self.topic_config,
        )
        self.replicas = self.partitions
        self.peers = TransportPeerClient(composition)
        self.fetch_sessions = FetchSessions(
            lambda: composition.runtime.random.randrange(0x7FFFFFFF) + 1,
            self.config.int("max.incremental.fetch.session.cache.slots"),
        )
        self.lifecycle = Lifecycle(composition)
        self.log_directories = LogDirectories(self)
        several = several_directories(composition.storage)
        if several is not None:
            several.watch(self.log_directories)
        self._upkeep = Upkeep(self)
        self._cleaner = Cleaner(self)
        self._config_warnings = ConfigWarnings(self)
        self.looking_inside = LookingInside(composition.runtime)
        slices = Slices(composition.runtime)
        observing = None
        if composition.observers:
            from blumfeld.broker.serving.observing import Observing

            observing = Observing(composition.runtime, self.events, composition.observers)
        self._dispatchers = {
            kind: Dispatcher(kind, composition.runtime, self.events, authorizer, metrics, slices, observing)
            for kind in LISTENER_KINDS
        }
        self._groups: GroupCoordination | None = None
        self._own_registered = False
        self._subscribed = False
        self._following = False

    # What is served

    def register(self, handlers: Iterable[ApiHandler]) -> None:
        """Serve these too.

        :raises PluginContractError: two for one (API key, version, listener kind)
        """
        for handler in handlers:
            for kind in handler.listeners:
                self._dispatchers[kind].register(handler)

    def connection_handler(self, listener_kind: str) -> ConnectionHandler:
        """What answers on a listener of this kind."""
        self._register_own()
        return self._dispatchers[listener_kind]

    def advertised(self, listener_kind: str) -> dict[int, tuple[int, int]]:
        """API key → (lowest, highest) version, as ApiVersions says on a listener of this kind."""
        self._register_own()
        return self._dispatchers[listener_kind].advertised()

    def _register_own(self) -> None:
        """The broker's own handlers: late, since which there are depends on the parts that were made."""
        if self._own_registered:
            return
        self._own_registered = True
        from blumfeld.broker.handlers import own_handlers
        from blumfeld.broker.produce.straight import FastProduce

        self.register(own_handlers(self))
        self._coordinate_groups()
        dispatcher = self._dispatchers["broker"]
        if self.composition.observers:
            return  # they are told of answers as messages, which the shorter way never makes
        for version in range(3, 14):
            general = dispatcher.route(0, version)
            if isinstance(general, Route):
                dispatcher.replace(0, version, FastProduce(self, dispatcher, general))

    def _coordinate_groups(self) -> None:
        """Where a group protocol is composed: its coordinator follows the leadership of its topic."""
        composition = self.composition
        if not composition.group_protocols:
            return
        from blumfeld.broker.coordination.groups import GroupCoordination

        self._groups = GroupCoordination(
            runtime=self.runtime,
            events=composition.log("groups"),
            config=self.config,
            partitions=self.partitions,
            protocols=composition.group_protocols,
            image=lambda: self.image,
            transactions=composition.transactions is not None,
        )
        self.register(self._groups.handlers())

    def gauges(self) -> list[Metric]:
        """Depths of queues and counts of what is hosted, for who scrapes."""
        purgatory, partitions = self.parking.purgatory, self.partitions
        return [
            Metric("blumfeld_parked_requests", "Requests that wait", "gauge", lambda: len(purgatory)),
            Metric(
                "blumfeld_parked_requests_completed_total",
                "Requests that were answered after they had waited",
                "counter",
                lambda: purgatory.completed_total,
            ),
            Metric(
                "blumfeld_parked_requests_expired_total",
                "Requests whose time to wait was over",
                "counter",
                lambda: purgatory.expired_total,
            ),
            Metric(
                "blumfeld_hosted_partitions",
                "Partitions that this node hosts",
                "gauge",
                lambda: sum(map(len, partitions.by_name.values())),
            ),
            *partitions.refused_writes.gauges(),
            *self._cleaner.gauges(),
            *self.log_directories.gauges(),
            *(() if self._groups is None else self._groups.metrics()),
        ]

    # What handlers ask

    @property
    def groups(self) -> GroupCoordination | None:
        """What coordinates groups here; None in a build without any."""
        return self._groups

    @property
    def image(self) -> ClusterImage:
        """The cluster, as of now."""
        return self.composition.metadata.image

    @property
    def broker_epoch(self) -> int:
        """Of this registration; -1 before."""
        return self.lifecycle.broker_epoch

    def topic_config(self, topic: str) -> TopicConfig:
        """What holds for a topic now."""
        return TopicConfig.stored(self.image.config(TOPIC_RESOURCE, topic), self.config)

    def topic_image(self, name: str, topic_id: bytes, by_id: bool) -> TopicImage | None:
        """A topic, by its id or its name."""
        return self.image.topic_by_id(topic_id) if by_id else self.image.topics.get(name)

    def leading(self, topic: str, index: int) -> Partition:
        """The partition, which this node leads.

        :raises BrokerError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR
        """
        partition = self.partitions.find(topic, index)
        if partition is not None and partition.leader is not None:
            return partition
        if partition is not None and partition.closed is not None:
            raise BrokerError(partition.closed)
        image = self.image.topics.get(topic)
        if image is None or index not in image.partitions:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.partitions.is_offline(topic, index):
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Life

    async def start(self) -> None:
        """Host what the image says, register, and return when the controller has unfenced this node and all its logs
        are open.

        :raises BrokerError: the controller refused the registration: DUPLICATE_BROKER_REGISTRATION…
        :raises TimeoutError: the controller did not answer for ``initial.broker.registration.timeout.ms``
        """
        composition = self.composition
        self._register_own()
        if "broker" not in composition.roles:
            return
        self._reconfigure()
        threads_per_dir = self.config.int("num.recovery.threads.per.data.dir")
        self.partitions.start(composition.storage, composition.replication, threads_per_dir)
        self._following = True
        if not self._subscribed:
            self._subscribed = True
            composition.metadata.subscribe(self._image_changed)
        await self.partitions.settled()
        self._upkeep.start()
        self._cleaner.start()
        self._config_warnings.start()
        await self.lifecycle.register()

    async def stop(self) -> None:
        """Tell the controller, answer what is parked, close the logs. Legal without start."""
        await self.lifecycle.shut_down()
        self._upkeep.stop()
        self._cleaner.stop()
        self._config_warnings.stop()
        self.log_directories.stop()
        if self._groups is not None:
            self._groups.stop()
        self.parking.stop()
        self._following = False
        self.partitions.stop()
        self._upkeep.checkpoint()
        await self.peers.stop()

    # The image

    def _image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if not self._following:
            return
        hook = self.composition.hook
        if delta.first:
            self.partitions.set_strays_aside(image)
        self._configs_changed(delta)
        for topic in delta.topics_deleted:
            for index in sorted(topic.partitions):
                self.partitions.remove(TopicPartition(topic.name, index))
        if self._groups is not None and delta.topics_deleted:
            self._groups.topics_deleted(delta.topics_deleted)
        leaders = []
        for topic, partition in delta.partitions_changed:
            at = TopicPartition(topic.name, partition.partition)
            hosted = self.partitions.find(at.topic, at.partition)
            before = None if hosted is None or hosted.image is None else hosted.image
            self.partitions.apply(at, topic.topic_id, partition)
            changed = before is None or before.leader_epoch != partition.leader_epoch
            if changed and self.node_id in partition.replicas:
                leaders.append((at, partition))
        self.lifecycle.image_changed(image)
        if hook is None:
            return
        for topic in delta.topics_created if not delta.first else ():
            hook.blumfeld_topic_created(topic=topic)
        for topic in delta.topics_deleted:
            hook.blumfeld_topic_deleted(topic=topic)
        for at, partition in leaders:
            hook.blumfeld_leader_changed(partition=at, image=partition)

    def _configs_changed(self, delta: ImageDelta) -> None:
        self._config_warnings.changed(delta.configs_changed)
        own = str(self.node_id)
        if any(kind == BROKER_RESOURCE and name in ("", own) for kind, name in delta.configs_changed):
            self._reconfigure()
            self.partitions.reconfigure("")
            return
        for kind, name in delta.configs_changed:
            if kind == TOPIC_RESOURCE:
                self.partitions.reconfigure(name)

    def _reconfigure(self) -> None:
        self.config = self.composition.config.with_overrides(
            dynamic_default=usable(BROKER_CONFIGS, self.image.config(BROKER_RESOURCE, "")),
            dynamic=usable(BROKER_CONFIGS, self.image.config(BROKER_RESOURCE, str(self.node_id))),
        )
        for follower in self._config_followers:
            follower(self.config)

    def follow_config(self, follower: Callable[[BrokerConfig], None]) -> None:
        """Call ``follower`` with the configuration now, and each time it has changed."""
        self._config_followers.append(follower)
        follower(self.config)
