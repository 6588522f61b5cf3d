"""The tree → the image of the cluster, and what a controller has to finish. Reads only."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.slices import SLICE_LOOKS
from blumfeld.spi.cluster import TOPIC_RESOURCE, PartitionImage, TopicImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.storage import TopicPartition
from blumfeld.spi.zookeeper import DeniedError, Node, NodeStat, NoNodeError, Watch, ZooKeeper
from blumfeld.wire.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from blumfeld.wire.primitives import ZERO_UUID
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import (
    ControllerNode,
    TreeError,
    broker_record,
    decode_broker,
    decode_cluster_id,
    decode_controller,
    decode_epoch,
    decode_feature,
    decode_migration,
    decode_producer_ids,
    whole_number,
)
from blumfeld_consensus_zk_compat.tree.forms_configs import (
    SCRAM_MECHANISMS,
    config_resource,
    decode_config,
    decode_quotas,
    decode_scram,
)
from blumfeld_consensus_zk_compat.tree.forms_security import (
    LITERAL,
    PREFIXED,
    RESOURCE_TYPES,
    AclResource,
    acl_path,
    decode_acls,
    decode_token,
)
from blumfeld_consensus_zk_compat.tree.forms_topics import (
    Replicas,
    TopicNode,
    decode_partitions,
    decode_reassignments,
    decode_state,
    decode_topic,
)
from blumfeld_consensus_zk_compat.tree.versions import TreeVersions

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E", bound=BaseException)
IN_FLIGHT = 512
"""Reads that are sent before the first of them is answered."""
SLICE_READS = 128
"""Answers that are taken in one step."""
NO_STATE = -1
"""As epochs of a partition: it has no state in the tree yet."""

WatchOf = Callable[[str], Watch | None]
"""Path → the watch to leave there, or ``None``."""


class Loaded(msgspec.Struct, kw_only=True):
    """The tree as it was read, and what the last controller didn't finish."""

    image: MetadataImage
    """All brokers are unfenced. It has neither the topics of ``marked`` nor those of ``without_id``.

    A partition without a state has no leader, leader epoch and partition epoch -1, and as ISR its live replicas, or all
    if none lives: an election makes its first state."""
    controller: ControllerNode | None
    """``None``: the cluster has none at the moment."""
    controller_epoch: int
    """0 where there was never a controller."""
    versions: TreeVersions
    marked: tuple[TopicImage, ...]
    """Topics that are to be deleted, as the tree has them. One whose nodes are gone already has no partitions."""
    without_state: tuple[TopicPartition, ...]
    """Partitions that need a first state."""
    restarted: tuple[tuple[TopicPartition, Replicas], ...]
    """Partitions whose state is older than the registration of members of their ISR, and these members: an earlier
    process of theirs was in sync. The present one may have lost its page cache, and what two processes write as leaders
    may not have one leader epoch (ADR 0019)."""
    without_id: dict[str, TopicNode]
    """Topics of Kafka before 2.8. The controller writes their ids (``TreeWriter.topic_ids``) and loads again; another
    node leaves them to it."""
    reassignments_asked: Mapping[TopicPartition, Replicas] | None
    """What ``/admin/reassign_partitions`` asks for; ``None``: the node isn't there."""
    elections_asked: tuple[TopicPartition, ...] | None
    """What ``/admin/preferred_replica_election`` asks for; ``None``: the node isn't there."""
    unreadable: Mapping[str, str]
    """Path → why its content isn't in the image. A configuration, quotas and credentials of one entity, or a token."""
    znodes: int
    """Nodes that were read."""


def _no_watch(_: str) -> None:
    return None


def loaded(
    zookeeper: ZooKeeper,
    *,
    section_kinds: SectionKinds = NO_SECTIONS,
    watch_of: WatchOf = _no_watch,
    in_flight: int = IN_FLIGHT,
    in_migration: bool = False,
    for_controller: bool = False,
) -> Steps[Loaded]:
    """Read the tree, in steps for the scheduler. Nothing is written.

    Watches are left where ``watch_of`` gives one: at ``/controller``, ``/brokers/ids`` (children) and each broker,
    ``/brokers/topics`` (children) and each topic, ``/admin/delete_topics`` (children), ``/admin/reassign_partitions``,
    ``/admin/preferred_replica_election``.

    A configuration that can't be read, or that this session may not read, is left out: the entity has its defaults. So
    is a token: nobody gets in with it. ACLs are not left out, because one that denies would be missed.

    :param in_flight: reads that are sent before the first of them is answered
    :param in_migration: the reader takes part in a migration to KRaft, so the cluster may be on its way there
    :param for_controller: leave out what no controller decides on: quotas, credentials, ACLs, tokens. Any node writes
        these. A take-over with 100,000 ACLs would need seconds more for them, and the memory of a second image
    :raises TreeError: any other node can't be read; or the cluster belongs to KRaft, or is on its way there
    :raises ZooKeeperError: a read failed
    """
    loader = _Loader(
        zookeeper,
        section_kinds,
        watch_of,
        in_flight,
        in_migration=in_migration,
        for_controller=for_controller,
    )
    return (yield from loader.load())


class _Replay:
    """Replays records into an image, a bounded number in each step of it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._step: ImageStep | None = None
        self._records = 0

    def add(self, records: Iterable[Message]) -> None:
        """Replay more."""
        for record in records:
            if self._step is None:
                self._step = ImageStep(self._image)
            self._step.replay(record)
            self._records += 1
        if self._records >= SLICE_READS * 4:
            self.finish()

    def finish(self) -> None:
        """Everything that was added is in the image."""
        if self._step is not None:
            self._step.finish(0, self._image.epoch)
            self._step, self._records = None, 0


class _Loader:
    def __init__(
        self,
        zookeeper: ZooKeeper,
        section_kinds: SectionKinds,
        watch_of: WatchOf,
        in_flight: int,
        *,
        in_migration: bool,
        for_controller: bool,
    ) -> None:
        self._zookeeper = zookeeper
        self._in_migration = in_migration
        self._for_controller = for_controller
        self._config_kinds = paths.CONTROLLER_CONFIG_KINDS if for_controller else paths.CONFIG_KINDS
        self._watch_of = watch_of
        self._in_flight = in_flight
        self._image = MetadataImage("", section_kinds)
        self._replay = _Replay(self._image)
        self._versions = TreeVersions()
        self._nodes: dict[str, TopicNode] = {}
        self._without_id: dict[str, TopicNode] = {}
        self._without_state: list[TopicPartition] = []
        self._restarted: list[tuple[TopicPartition, Replicas]] = []
        self._unreadable: dict[str, str] = {}
        self._znodes = 0
        self._sent: dict[str, Completion[Any]] = {}
        """Reads that were sent ahead, by path."""

    def load(self) -> Steps[Loaded]:
        self._send_first()
        controller, epoch = yield from self._cluster()
        self._image.epoch = epoch
        yield from self._brokers()
        marked = yield from self._children(paths.DELETIONS, self._watch_of(paths.DELETIONS))
        reassignments = yield from self._asked(paths.REASSIGNMENTS, decode_reassignments)
        elections = yield from self._asked(paths.PREFERRED_ELECTIONS, decode_partitions)
        yield from self._topics(set(marked))
        gone = yield from self._marked(marked)
        self._send_lists()
        yield from self._entities()
        if not self._for_controller:
            yield from self._acls()
            yield from self._tokens()
        yield from self._above_notifications()
        self._replay.finish()
        return Loaded(
            image=self._image,
            controller=controller,
            controller_epoch=epoch,
            versions=self._versions,
            marked=gone,
            without_state=tuple(self._without_state),
            restarted=tuple(self._restarted),
            without_id=self._without_id,
            reassignments_asked=reassignments,
            elections_asked=elections,
            unreadable=self._unreadable,
            znodes=self._znodes,
        )

    # Reads

    def _send_first(self) -> None:
        """Send what each load begins with, in the order in which it is taken: all of it costs one round trip."""
        get, sent, watch_of = self._zookeeper.get, self._sent, self._watch_of
        for path in (paths.MIGRATION, paths.CLUSTER_ID, paths.FEATURE, paths.PRODUCER_IDS):
            sent[path] = get(path)
        sent[paths.CONTROLLER] = get(paths.CONTROLLER, watch_of(paths.CONTROLLER))
        sent[paths.CONTROLLER_EPOCH] = get(paths.CONTROLLER_EPOCH)
        for path in (paths.BROKERS, paths.DELETIONS):
            sent[path] = self._zookeeper.children(path, watch_of(path))
        for path in (paths.REASSIGNMENTS, paths.PREFERRED_ELECTIONS):
            sent[path] = self._zookeeper.exists(path, watch_of(path))
        sent[paths.TOPICS] = self._zookeeper.children(paths.TOPICS, watch_of(paths.TOPICS))

    def _send_lists(self) -> None:
        """Send for the names of all configurations, ACLs and tokens. The topics are read: a topic's configuration is
        there before the topic."""
        others = () if self._for_controller else (paths.ACLS, paths.PREFIXED_ACLS, paths.TOKENS)
        for path in (*map(paths.config, self._config_kinds), *others):
            self._sent[path] = self._zookeeper.children(path)

    def _get(self, path: str, watch: Watch | None = None) -> Steps[Node | None]:
        """A node, ``None`` if it isn't there. Its version is noted."""
        read = self._sent.pop(path, None) or self._zookeeper.get(path, watch)
        node: Node | None = yield from _there(read)
        if node is not None:
            self._versions.nodes[path] = node.stat.version
            self._znodes += 1
        return node

    def _children(self, path: str, watch: Watch | None = None) -> Steps[tuple[str, ...]]:
        """The names of a node's children, none if it isn't there."""
        read = self._sent.pop(path, None) or self._zookeeper.children(path, watch)
        names: tuple[str, ...] | None = yield from _there(read)
        if names is None:
            return ()
        self._versions.nodes.setdefault(path, 0)
        return names

    def _each(
        self, keys: Iterable[K], read: Callable[[K], Completion[V]], take: Callable[[K, V | None], None]
    ) -> Steps[None]:
        """Read many nodes, as :func:`_read_each`. They are counted."""

        def counted(key: K, value: V | None) -> None:
            take(key, value)
            self._znodes += value is not None

        yield from _read_each(keys, read, counted, self._in_flight)

    # The cluster

    def _cluster(self) -> Steps[tuple[ControllerNode | None, int]]:
        migration = yield from self._get(paths.MIGRATION)
        if migration is not None and migration.data and not self._in_migration:
            state = decode_migration(paths.MIGRATION, migration.data)
            if state.kraft_controller_epoch >= 0:
                raise TreeError(
                    paths.MIGRATION,
                    migration.data,
                    "no migration to KRaft that has begun: end it with KRaft's controllers, or after a rollback delete "
                    "this node",
                )
        node = yield from self._get(paths.CLUSTER_ID)
        if node is not None:
            self._image.cluster_id = decode_cluster_id(paths.CLUSTER_ID, node.data)
        node = yield from self._get(paths.FEATURE)
        if node is not None:
            feature = decode_feature(paths.FEATURE, node.data)
            if feature.enabled:
                levels = feature.levels.items()
                self._replay.add(FeatureLevelRecord(name=name, feature_level=at) for name, at in levels)
        yield from self._producer_ids()
        return (yield from self._controller())

    def _producer_ids(self) -> Steps[None]:
        node = yield from self._get(paths.PRODUCER_IDS)
        block = None if node is None else decode_producer_ids(paths.PRODUCER_IDS, node.data)
        if block is not None:
            self._replay.add([ProducerIdsRecord(broker_id=block.broker_id, next_producer_id=block.end + 1)])

    def _controller(self) -> Steps[tuple[ControllerNode | None, int]]:
        controller = None
        node = yield from self._get(paths.CONTROLLER, self._watch_of(paths.CONTROLLER))
        if node is not None:
            controller = decode_controller(paths.CONTROLLER, node.data)
            if controller.kraft_controller_epoch >= 0 and not self._in_migration:
                raise TreeError(
                    paths.CONTROLLER,
                    node.data,
                    "a broker as controller: this cluster belongs to KRaft (KIP-866)",
                )
        node = yield from self._get(paths.CONTROLLER_EPOCH)
        if node is None:
            return controller, 0
        self._versions.controller_epoch = node.stat.version
        return controller, decode_epoch(paths.CONTROLLER_EPOCH, node.data)

    def _brokers(self) -> Steps[None]:
        names = yield from self._children(paths.BROKERS, self._watch_of(paths.BROKERS))
        ids = sorted(whole_number(f"{paths.BROKERS}/{name}", name) for name in names)

        def read(broker_id: int) -> Completion[Node]:
            path = paths.broker(broker_id)
            return self._zookeeper.get(path, self._watch_of(path))

        def take(broker_id: int, node: Node | None) -> None:
            if node is not None:
                registration = decode_broker(paths.broker(broker_id), node.data)
                self._replay.add([broker_record(broker_id, registration, node.stat.czxid)])

        yield from self._each(ids, read, take)

    def _asked(self, path: str, decode: Callable[[str, bytes], V]) -> Steps[V | None]:
        """The content of a node that a tool writes. ``exists`` leaves a watch also where there is none yet."""
        stat = yield from _there(self._sent.pop(path))
        node = None if stat is None else (yield from self._get(path))
        return None if node is None else decode(path, node.data)

    # Topics

    def _topics(self, marked: set[str]) -> Steps[None]:
        """The topics in the order of their creation, those of one request by name."""
        names = yield from self._children(paths.TOPICS, self._watch_of(paths.TOPICS))
        created: dict[int, list[str]] = {}

        def read(name: str) -> Completion[Node]:
            path = paths.topic(name)
            return self._zookeeper.get(path, self._watch_of(path))

        def take(name: str, node: Node | None) -> None:
            if node is not None:
                self._versions.topics[name] = node.stat.version
                self._nodes[name] = decode_topic(paths.topic(name), node.data)
                created.setdefault(node.stat.czxid, []).append(name)

        yield from self._each(names, read, take)
        yield None
        lived: list[str] = []
        for at, czxid in enumerate(sorted(created)):
            for name in created[czxid]:
                if name in marked:
                    continue
                if self._nodes[name].topic_id is None:
                    self._without_id[name] = self._nodes[name]
                else:
                    lived.append(name)
            if not at % SLICE_LOOKS:
                yield None
        yield from self._partitions(lived)

    def _partitions(self, names: list[str]) -> Steps[None]:
        image, bare = self._image, []
        newest = max((broker.epoch for broker in image.brokers.values()), default=-1)

        def keys() -> Iterable[tuple[str, int]]:
            for name in names:
                for number in self._nodes[name].partitions:
                    yield name, number

        def read(key: tuple[str, int]) -> Completion[Node]:
            return self._zookeeper.get(paths.state(*key))

        def take(key: tuple[str, int], node: Node | None) -> None:
            name, number = key
            topic = self._nodes[name]
            if name not in image.topics:
                self._replay.add([TopicRecord(name=name, topic_id=_id(topic))])
            record = _partition_record(image, topic, name, number, node)
            self._replay.add([record])
            if node is None:
                bare.append(key)
            elif newest > node.stat.mzxid:
                self._note_restarted(TopicPartition(name, number), record, node.stat.mzxid)

        yield from self._each(keys(), read, take)
        for at, name in enumerate(names):
            if name not in image.topics:
                self._replay.add([TopicRecord(name=name, topic_id=_id(self._nodes[name]))])
            if not at % SLICE_LOOKS:
                yield None
        self._without_state = [TopicPartition(name, number) for name, number in bare]
        yield from self._above_states(bare)

    def _note_restarted(self, at: TopicPartition, record: PartitionRecord, written: int) -> None:
        brokers = self._image.brokers
        members = tuple(
            member for member in record.isr if member in brokers and brokers[member].epoch > written
        )
        if members:
            self._restarted.append((at, members))

    def _above_states(self, bare: list[tuple[str, int]]) -> Steps[None]:
        """Which nodes above the states that are missing are there."""

        def take_topic(name: str, stat: NodeStat | None) -> None:
            if stat is None:
                self._versions.without_partitions.add(name)

        def take_partition(key: tuple[str, int], stat: NodeStat | None) -> None:
            if stat is not None:
                self._versions.without_state.add(key)

        exists = self._zookeeper.exists
        topics = dict.fromkeys(name for name, _ in bare)
        yield from self._each(topics, lambda name: exists(paths.partitions(name)), take_topic)
        yield from self._each(bare, lambda key: exists(paths.partition(*key)), take_partition)

    def _marked(self, names: Iterable[str]) -> Steps[tuple[TopicImage, ...]]:
        """The topics that are to be deleted."""
        found: dict[str, dict[int, PartitionImage]] = {name: {} for name in names}
        keys = [
            (name, number) for name in found if name in self._nodes for number in self._nodes[name].partitions
        ]

        def take(key: tuple[str, int], node: Node | None) -> None:
            name, number = key
            found[name][number] = _partition_image(self._image, self._nodes[name], name, number, node)

        yield from self._each(keys, lambda key: self._zookeeper.get(paths.state(*key)), take)
        for name in found:
            self._versions.nodes[paths.deletion(name)] = 0
        return tuple(
            TopicImage(
                name=name,
                topic_id=_id(self._nodes[name]) if name in self._nodes else ZERO_UUID,
                partitions=partitions,
            )
            for name, partitions in found.items()
        )

    # Configurations, ACLs, tokens

    def _entities(self) -> Steps[None]:
        entities: list[str] = []
        for kind in self._config_kinds:
            names = yield from self._children(paths.config(kind))
            entities += (f"{kind}/{name}" for name in names)
        users = [entity for entity in entities if entity.startswith("users/")]

        def take_clients(user: str, names: tuple[str, ...] | None) -> None:
            if names is not None:
                self._versions.nodes[f"{paths.config(user)}/clients"] = 0
                entities.extend(f"{user}/clients/{name}" for name in names)

        children = self._zookeeper.children
        yield from self._each(users, lambda user: children(f"{paths.config(user)}/clients"), take_clients)
        yield from self._each(entities, lambda entity: self._allowed(paths.config(entity)), self._take_entity)

    def _allowed(self, path: str) -> Completion[Node | DeniedError]:
        """Read a node that this session may not be allowed to read."""
        return caught(self._zookeeper.get(path), DeniedError)

    def _take_entity(self, entity: str, node: Node | DeniedError | None) -> None:
        path = paths.config(entity)
        if node is None:
            return
        if isinstance(node, DeniedError):
            self._unreadable[path] = str(node)
            return
        self._versions.nodes[path] = node.stat.version
        resource = config_resource(entity)
        if resource is not None and resource[0] == TOPIC_RESOURCE and resource[1] not in self._image.topics:
            return  # what a creation or a deletion that was cut off has left
        values: Mapping[str, str] = {}
        try:
            values = decode_config(path, node.data)
            self._replay.add(entity_records(entity, values))
        except TreeError as error:
            self._unreadable[path] = str(error)
        self._versions.set_others(path, values, are_taken=path not in self._unreadable)

    def _acls(self) -> Steps[None]:
        resources: list[AclResource] = []
        kinds: list[tuple[str, str, int]] = []
        for pattern_type, above in ((LITERAL, paths.ACLS), (PREFIXED, paths.PREFIXED_ACLS)):
            for kind in (yield from self._children(above)):
                path = f"{above}/{kind}"
                if kind not in RESOURCE_TYPES:  # Kafka ignores it, too
                    error = TreeError(path, kind, f"one of {', '.join(RESOURCE_TYPES)}")
                    self._unreadable[path] = str(error)
                    continue
                self._sent[path] = self._zookeeper.children(path)
                kinds.append((path, kind, pattern_type))
        for path, kind, pattern_type in kinds:
            names = yield from self._children(path)
            resources += (AclResource(RESOURCE_TYPES[kind], name, pattern_type) for name in names)

        def take(resource: AclResource, node: Node | None) -> None:
            if node is not None:
                path = acl_path(resource)
                self._versions.nodes[path] = node.stat.version
                records = decode_acls(path, node.data, resource)
                for record in records:
                    self._versions.acls.set(record)
                self._replay.add(records)

        yield from self._each(resources, lambda resource: self._zookeeper.get(acl_path(resource)), take)

    def _tokens(self) -> Steps[None]:
        names = yield from self._children(paths.TOKENS)

        def take(name: str, node: Node | DeniedError | None) -> None:
            path = paths.token(name)
            if isinstance(node, DeniedError):
                self._unreadable[path] = str(node)
            elif node is not None:
                self._versions.nodes[path] = node.stat.version
                try:
                    self._replay.add([decode_token(path, node.data)])
                except TreeError as error:
                    self._unreadable[path] = str(error)

        yield from self._each(names, lambda name: self._allowed(paths.token(name)), take)

    def _above_notifications(self) -> Steps[None]:
        """Which of the nodes that a notification is created in are there, and those above them."""
        wanted = (
            paths.CONFIG_CHANGES,
            paths.ACL_CHANGES,
            paths.EXTENDED_ACL_CHANGES,
            paths.TOKEN_CHANGES,
            paths.CONFIG,
            paths.EXTENDED_ACLS,
            *(f"{paths.CONFIG}/{kind}" for kind in paths.CONFIG_KINDS),
            *paths.above(paths.CLUSTER_ID),
            *paths.above(paths.DELETIONS),
            *paths.above(paths.TOPICS),
            *paths.above(paths.TOKENS),
        )

        def take(path: str, stat: NodeStat | None) -> None:
            if stat is not None:
                self._versions.nodes.setdefault(path, stat.version)

        yield from self._each(wanted, self._zookeeper.exists, take)


def entity_records(entity: str, values: Mapping[str, str]) -> list[Message]:
    """The records that an entity's configuration is in the image: of a topic or broker ConfigRecord, of a user, client
    or address its quotas and SCRAM credentials.

    :param entity: as a change notification names it, such as ``topics/orders``
    :raises TreeError: a value can't be read
    """
    resource = config_resource(entity)
    if resource is not None:
        resource_type, resource_name = resource
        return [
            ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=key, value=value)
            for key, value in values.items()
        ]
    path = paths.config(entity)
    records: list[Message] = list(decode_quotas(path, entity, values))
    kind, _, name = entity.partition("/")
    if kind == "users" and "/" not in name:
        user = paths.desanitized(name)
        records += (
            decode_scram(path, user, key, values[key])
            for key in values
            if user is not None and key in SCRAM_MECHANISMS and values[key]
        )
    return records


def caught(read: Completion[V], error: type[E]) -> Completion[V | E]:
    """A read whose failure of this kind is its result."""
    outcome: Completion[V | E] = Completion()

    def done(read: Completion[V]) -> None:
        if read.error is not None and not isinstance(read.error, error):
            outcome.fail(read.error)
        else:
            outcome.complete(read.result() if read.error is None else read.error)

    read.when_done(done)
    return outcome


def _there(read: Completion[Any]) -> Steps[Any]:
    """The result of a read, ``None`` if the node isn't there."""
    if not read.done:
        yield read
    return None if isinstance(read.error, NoNodeError) else read.result()


def _id(topic: TopicNode) -> bytes:
    return topic.topic_id or ZERO_UUID


def _partition_image(
    image: MetadataImage, topic: TopicNode, name: str, number: int, node: Node | None
) -> PartitionImage:
    replicas = topic.partitions[number]
    adding, removing = topic.adding.get(number, ()), topic.removing.get(number, ())
    if node is None:
        alive = tuple(replica for replica in replicas if replica in image.brokers)
        return PartitionImage(
            partition=number,
            replicas=replicas,
            isr=alive or replicas,
            leader=-1,
            leader_epoch=NO_STATE,
            partition_epoch=NO_STATE,
            adding_replicas=adding,
            removing_replicas=removing,
        )
    state = decode_state(paths.state(name, number), node.data)
    return PartitionImage(
        partition=number,
        replicas=replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=node.stat.version,
        adding_replicas=adding,
        removing_replicas=removing,
        leader_recovery_state=state.leader_recovery_state or 0,
    )


def _partition_record(
    image: MetadataImage, topic: TopicNode, name: str, number: int, node: Node | None
) -> PartitionRecord:
    at = _partition_image(image, topic, name, number, node)
    return PartitionRecord(
        partition_id=number,
        topic_id=_id(topic),
        replicas=list(at.replicas),
        isr=list(at.isr),
        adding_replicas=list(at.adding_replicas),
        removing_replicas=list(at.removing_replicas),
        leader=at.leader,
        leader_recovery_state=at.leader_recovery_state,
        leader_epoch=at.leader_epoch,
        partition_epoch=at.partition_epoch,
    )


def subtree(zookeeper: ZooKeeper, path: str) -> Steps[list[str]]:
    """Every node from ``path`` down, each after those below it: in this order they can be deleted. Empty if there is
    none."""
    found, level = [path], [path]
    while level:
        below: list[str] = []
        yield from _read_each(level, zookeeper.children, partial(_add_paths, below))
        found += below
        level = below
    if not found[1:] and (yield from _there(zookeeper.exists(path))) is None:
        return []
    found.reverse()
    return found


def _add_paths(found: list[str], parent: str, names: tuple[str, ...] | None) -> None:
    found += (f"{parent}/{name}" for name in names or ())


def _read_each(
    keys: Iterable[K],
    read: Callable[[K], Completion[V]],
    take: Callable[[K, V | None], None],
    in_flight: int = IN_FLIGHT,
) -> Steps[None]:
    """Read many nodes: ``in_flight`` reads are sent ahead. ``take`` gets each in order, ``None`` for one that isn't
    there."""
    waiting: deque[tuple[K, Completion[V]]] = deque()
    taken = 0

    def take_first() -> Steps[None]:
        nonlocal taken
        key, sent = waiting.popleft()
        take(key, (yield from _there(sent)))
        taken += 1
        if not taken % SLICE_READS:
            yield None

    for key in keys:
        waiting.append((key, read(key)))
        if len(waiting) >= in_flight:
            yield from take_first()
    while waiting:
        yield from take_first()
