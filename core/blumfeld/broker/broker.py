"""The broker: answers requests on a node's listeners, from the partitions that the node hosts. Wiring only.

The kernel makes it from a composition whose parts are made but not started, and registers the plug-ins' handlers. It
starts the broker after storage, consensus and replication, and stops it before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.composition import BrokerComposition
from blumfeld.broker.fetch_sessions import FetchSessions
from blumfeld.broker.membership.cluster_gauges import ClusterGauges
from blumfeld.broker.membership.config_warnings import ConfigWarnings
from blumfeld.broker.membership.image_follower import ImageFollower
from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.broker.membership.log_directories import LogDirectories
from blumfeld.broker.membership.lost_brokers import LostBrokers
from blumfeld.broker.ports import CoordinatorKind, Ports
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.broker.replicas.hosting.pushes import PushedReplicas
from blumfeld.broker.replicas.led_partitions import LedPartitions
from blumfeld.broker.replicas.rules.record_inspection import RecordInspection
from blumfeld.broker.serving.counts import NodeMetrics
from blumfeld.broker.serving.dispatch import Dispatcher, Route, Serve
from blumfeld.broker.serving.peer_client import TransportPeerClient
from blumfeld.broker.upkeep.cleaner import Cleaner
from blumfeld.broker.upkeep.retention import Upkeep
from blumfeld.broker.upkeep.topic_gauges import topic_gauges
from blumfeld.broker.waiting.parking import PurgatoryParking
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.cluster import Membership, TopicImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.hooks import Metric
from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.spi.security import Authorizer, BrokerConnectionHandler
from blumfeld.spi.storage import several_directories
from blumfeld.wire.errors import ErrorCode

if TYPE_CHECKING:
    from blumfeld.broker.coordination.group_lag import Lags
    from blumfeld.broker.coordination.groups import GroupCoordination
    from blumfeld.broker.coordination.producer_ids import ProducerIds
    from blumfeld.broker.handlers.auto_create import AutoCreate
    from blumfeld.client.envelope import Forwarded
    from blumfeld.coordinator.runtime.coordinator import Coordinator
    from blumfeld.wire.schema import Message

LISTENER_KINDS = ("broker", "controller")

PEER_TIMEOUT_MS = 30_000
"""Time that another broker has to answer a coordinator of transactions (Kafka's ``request.timeout.ms``)."""


class Broker:
    """Made → started → stopped."""

    def __init__(
        self,
        composition: BrokerComposition,
        authorizer: Authorizer | None = None,
        metrics: NodeMetrics | None = None,
    ) -> None:
        self.composition = composition
        self._metrics = metrics
        self.runtime = composition.runtime
        self.node_id = composition.node_id
        self.cluster = ClusterView(composition)
        self.events = composition.log("broker")
        self.parking = PurgatoryParking(composition.runtime, self.events)
        self.partitions = PartitionManager(composition, self.parking.counts, self.events, self.cluster)
        self.cluster.follow_config(self.partitions.throttles.reconfigure)
        self.replicas = PushedReplicas(self.partitions, composition.metadata.replica_driver)
        self.local_partitions = LedPartitions(self.partitions, self.events)
        self._lost = LostBrokers(composition)
        self.peers = TransportPeerClient(composition, lost=self._lost.connection_lost)
        self.fetch_sessions = FetchSessions(
            lambda: composition.runtime.random.randrange(0x7FFFFFFF) + 1,
            self.cluster.config.int("max.incremental.fetch.session.cache.slots"),
        )
        self.lifecycle = Lifecycle(composition)
        self.log_directories = LogDirectories(
            composition, self.cluster, self.partitions, self.lifecycle, self.events
        )
        several = several_directories(composition.storage)
        if several is not None:
            several.watch(self.log_directories)
        parts = (self.cluster, self.partitions, composition.storage, composition.runtime, self.events)
        self._upkeep = Upkeep(*parts)
        self._cleaner = Cleaner(*parts)
        self._config_warnings = ConfigWarnings(self.cluster, composition.runtime, self.events)
        self._follower = ImageFollower(
            composition,
            self.cluster,
            self.partitions,
            self.lifecycle,
            self._config_warnings,
            self._topics_deleted,
        )
        self.ports = self._make_ports()
        observation = None
        if composition.observers:
            from blumfeld.broker.serving.observation import Observation

            observation = Observation(composition.runtime, self.events, composition.observers)
        limiting = None
        if composition.quotas is not None:
            from blumfeld.broker.serving.limiting import Limiting

            limiting = Limiting(composition.runtime, composition.quotas)
        self._dispatchers = {
            kind: Dispatcher(
                kind, composition.runtime, self.events, authorizer, metrics, observation, limiting
            )
            for kind in LISTENER_KINDS
        }
        self.groups: GroupCoordination | None = None
        """The coordinator of groups; ``None`` in a composition without a group protocol."""
        self.transactions: Coordinator | None = None
        """The shards of the transactions plug-in; ``None`` in a composition without one."""
        self._auto_create: AutoCreate | None = None
        self._producer_ids: ProducerIds | None = None
        self._own_registered = False

    def _make_ports(self) -> Ports:
        composition = self.composition
        return Ports(
            runtime=composition.runtime,
            events=self.events,
            cluster=self.cluster,
            hosted=self.partitions,
            controller=composition.metadata,
            parking=self.parking,
            membership=self.lifecycle,
            quotas=composition.quotas,
            storage=composition.storage,
            fetch_sessions=self.fetch_sessions,
            record_inspection=RecordInspection(composition.runtime),
            groups=lambda: self.groups,
            transactions=lambda: composition.transactions,
            producer_ids=self._next_producer_id,
            coordinators=self._coordinators,
            serve_inner=self._serve_inner,
            lost=self._lost,
            single_node=composition.single_node,
            quorum=composition.metadata.quorum,
            features=composition.features,
            count_error=self._count_error,
            advertised=self.advertised,
            plan_json=composition.plan_json,
        )

    def _count_error(self, api_key: int, code: int) -> None:
        if self._metrics is not None:
            self._metrics.counts_of(api_key).failed(code)

    def _serve_inner(self, forwarded: Forwarded, outer: RequestContext) -> Completion[bytes]:
        from blumfeld.broker.serving.inner import InnerRequests

        return InnerRequests(self._dispatchers["broker"]).serve(forwarded, outer)

    def _next_producer_id(self) -> Completion[int]:
        if self._producer_ids is None:
            from blumfeld.broker.coordination.producer_ids import ProducerIds

            parts = (self.cluster, self.lifecycle, self.composition.metadata, self.events)
            self._producer_ids = ProducerIds(*parts)
        return self._producer_ids.next()

    def _coordinators(self) -> dict[int, CoordinatorKind]:
        composition = self.composition
        kinds = []
        if composition.group_protocols:
            kinds.append(CoordinatorKind(0, OFFSETS_TOPIC, "Group", ErrorCode.GROUP_AUTHORIZATION_FAILED))
        if composition.transactions is not None:
            refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            kinds.append(CoordinatorKind(1, TRANSACTIONS_TOPIC, "TransactionalId", refusal))
        return {kind.key_type: kind for kind in kinds}

    # What is served

    def register(self, handlers: Iterable[ApiHandler]) -> None:
        """Serve APIs with these handlers, too.

        :raises PluginContractError: two handlers for one (API key, version, listener kind)
        """
        for handler in handlers:
            for kind in handler.listeners:
                self._dispatchers[kind].register(handler)

    def connection_handler(self, listener_kind: str) -> BrokerConnectionHandler:
        """Returns the handler for the connections of a listener of this kind."""
        self._register_own()
        return self._dispatchers[listener_kind]

    def advertised(self, listener_kind: str) -> dict[int, tuple[int, int]]:
        """Returns API key → (lowest, highest) version, as ApiVersions says on a listener of this kind."""
        self._register_own()
        return self._dispatchers[listener_kind].advertised()

    def _register_own(self) -> None:
        """Register the broker's own handlers. Not in the constructor: the composition's parts decide which there
        are."""
        if self._own_registered:
            return
        self._own_registered = True
        from blumfeld.broker.handlers import own_handlers
        from blumfeld.broker.produce.straight import StraightProduce

        authorizes = self._dispatchers["broker"].authorizer is not None
        self.register(own_handlers(self.ports, authorizes=authorizes))
        self._coordinate_transactions()
        self._coordinate_groups()
        dispatcher = self._dispatchers["broker"]
        if self.composition.observers:
            return  # they are given answers as messages, and the straight way makes none
        made: Callable[[Ports, Dispatcher, Route], Serve] = StraightProduce
        if self.composition.quotas is not None:
            from blumfeld.broker.produce.limited import LimitedProduce

            made = LimitedProduce
        for version in range(3, 14):
            general = dispatcher.route(0, version)
            if isinstance(general, Route):
                dispatcher.replace(0, version, made(self.ports, dispatcher, general))

    def _coordinate_groups(self) -> None:
        """Make the groups' coordinator, if a group protocol is composed. It follows the leadership of its topic."""
        composition = self.composition
        if not composition.group_protocols:
            return
        from blumfeld.broker.coordination.groups import GroupCoordination

        self.groups = GroupCoordination(
            runtime=self.runtime,
            events=composition.log("groups"),
            config=self.cluster.config,
            partitions=self.partitions,
            protocols=composition.group_protocols,
            image=lambda: self.cluster.image,
            transactions=composition.transactions,
        )
        self.register(self.groups.handlers())

    def _coordinate_transactions(self) -> None:
        """Hand the plug-in its shards, if one is composed. They follow the leadership of their topic."""
        plugin = self.composition.transactions
        if plugin is None:
            return
        from blumfeld.broker.coordination.led_topic import LedTopic
        from blumfeld.spi.transactions import TransactionSurroundings

        self.transactions = LedTopic(
            TRANSACTIONS_TOPIC,
            lambda _: plugin.new_shard(),
            runtime=self.runtime,
            events=self.composition.log("transactions"),
            partitions=self.partitions,
            image=lambda: self.cluster.image,
            perform=plugin.perform,
        ).coordinator
        plugin.attach(
            TransactionSurroundings(
                coordinator=self.transactions,
                metadata=self.composition.metadata,
                new_producer_id=self._next_producer_id,
                make_offsets_topic=lambda: self._create_topics([OFFSETS_TOPIC]),
                send=self._send_for_transactions,
            )
        )
        self.register(plugin.handlers())

    def _send_for_transactions(self, node_id: int, request: Message) -> Completion[Message]:
        """As ``TransactionSurroundings.send``."""
        if node_id == self.node_id:
            return self._write_markers(request)
        return self.peers.channel(node_id, self._inter_broker, "transactions").send(request, PEER_TIMEOUT_MS)

    def _transaction_metrics(self) -> Iterable[Metric]:
        plugin = self.composition.transactions
        if plugin is None or self.transactions is None:
            return ()
        from blumfeld.broker.coordination.shard_metrics import shard_metrics

        return *shard_metrics(self.transactions, "transaction"), *plugin.metrics()

    def _create_topics(self, names: list[str]) -> None:
        from blumfeld.broker.handlers.auto_create import AutoCreate

        if self._auto_create is None:
            self._auto_create = AutoCreate(self.ports)
        self._auto_create.create(names)

    def _write_markers(self, request: Any) -> Completion[Message]:
        from blumfeld.broker.handlers.broker.api_27_write_txn_markers import WriteTxnMarkers

        return WriteTxnMarkers(self.ports).write(request)

    def gauges(self) -> list[Metric]:
        """Depths of queues and counts of what is hosted, read at each scrape. Bytes of topics count from this call on,
        so a node that is not scraped doesn't pay for them.
        """
        # The metrics port opens first, and without this there are no groups to measure yet.
        self._register_own()
        parking, partitions = self.parking, self.partitions
        purgatory, counts = parking.purgatory, parking.counts
        partitions.count_bytes()
        cluster_gauges = ClusterGauges(self.composition.metadata, self.node_id)
        return [
            Metric(
                "blumfeld_parked_requests",
                "Requests that wait",
                "gauge",
                lambda: parking.waiting + counts.waiting,
            ),
            Metric(
                "blumfeld_parked_requests_completed_total",
                "Requests that were answered after they had waited",
                "counter",
                lambda: purgatory.completed_total + counts.completed_total,
            ),
            Metric(
                "blumfeld_parked_requests_expired_total",
                "Requests whose time to wait was over",
                "counter",
                lambda: purgatory.expired_total + counts.expired_total,
            ),
            Metric(
                "blumfeld_hosted_partitions",
                "Partitions that this node hosts",
                "gauge",
                lambda: sum(map(len, partitions.by_name.values())),
            ),
            *topic_gauges(partitions, self.cluster, self.node_id),
            *cluster_gauges.metrics(),
            *partitions.refused_writes.gauges(),
            *partitions.throttles.gauges(),
            *self._cleaner.gauges(),
            *self.log_directories.gauges(),
            *(() if self.groups is None else self.groups.metrics()),
            *self._transaction_metrics(),
        ]

    async def group_lags(self, group_id: str | None) -> Lags:
        """Returns the lag of a group, wherever it is coordinated; ``None``: of each group that this node coordinates.
        Groups without committed offsets are left out.

        :raises BrokerError: the group's coordinator isn't known, or didn't answer
        :raises OSError: it can't be reached
        """
        if self.groups is None:
            from blumfeld.broker.coordination.group_lag import Lags

            return Lags({}, 0)
        return await self.groups.lags(
            self.node_id, lambda node_id: self.peers.channel(node_id, self._inter_broker, "lag")
        ).of(group_id)

    @property
    def _inter_broker(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return next((listener.name for listener in self.composition.listeners if listener.inter_broker), "")

    @property
    def refusing_writes(self) -> int:
        """Number of hosted partitions that can't be written now: the disk is full, or failed."""
        return self.partitions.refusing_count()

    # Life

    async def start(self) -> None:
        """Register, host the replicas that the image places here, and have this node unfenced.

        Registration comes first: it ends the leaderships of a former process, so that no partition is led in an old
        leader epoch. Logs are open before the node is unfenced: a client that is sent here must not meet partitions
        that aren't open.

        :raises BrokerError: the controller refused the registration: DUPLICATE_BROKER_REGISTRATION…
        :raises TimeoutError: the controller did not unfence this node in ``initial.broker.registration.timeout.ms``
        """
        composition = self.composition
        self._register_own()
        self.log_directories.start()
        if "broker" not in composition.roles:
            return
        await self.lifecycle.register()
        self.cluster.reconfigure()
        threads_per_dir = self.cluster.config.int("num.recovery.threads.per.data.dir")
        self.partitions.start(threads_per_dir)
        self._follower.start()
        if not composition.single_node:
            self._lost.start()
        await self._follower.applied()
        await self.partitions.settled()
        self._upkeep.start()
        self._cleaner.start()
        self._config_warnings.start()
        await self.lifecycle.unfence()

    async def listens(self) -> None:
        """Tell the controller that all listeners of the node are open, as :meth:`Lifecycle.listens`. On a single node
        no other node could notice its death.
        """
        if not self.composition.single_node:
            await self.lifecycle.listens()

    async def stop(self) -> None:
        """Leave the cluster, answer parked requests, close the logs, write the last checkpoint. Legal without start.
        Peers can still be reached afterwards.

        The order matters: the controller moves leadership away first, parked requests are answered while logs are open,
        and the checkpoint takes the high watermarks after the logs have stopped.
        """
        await self.lifecycle.shut_down()
        self._upkeep.stop()
        self._cleaner.stop()
        self._config_warnings.stop()
        self.log_directories.stop()
        if self.groups is not None:
            self.groups.stop()
        if self.transactions is not None:
            self.transactions.stop()
        self.parking.stop()
        self._lost.stop()
        self._follower.stop()
        self.partitions.stop()
        # A worker may be recovering a log. The storage must not release its lock meanwhile, or another process would
        # recover the same log.
        await self.partitions.settled()
        self._upkeep.checkpoint()

    def _topics_deleted(self, topics: Sequence[TopicImage]) -> None:
        if self.groups is not None:
            self.groups.topics_deleted(topics)

    # For the kernel

    @property
    def membership(self) -> Membership:
        """This broker's registration."""
        return self.lifecycle

    def follow_config(self, follower: Callable[[BrokerConfig], None]) -> None:
        """As :meth:`ClusterView.follow_config`."""
        self.cluster.follow_config(follower)
