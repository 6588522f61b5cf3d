"""A change of the controller's image → the writes that bring it into the tree. Pure.

Every ``multi`` begins with a check of ``/controller_epoch``. ADR 0047 says in which order the parts of a change are
written, and what a crash between two of them leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from blumfeld.metadata.brokers.producer_ids import BLOCK_IDS
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.spi.cluster import TOPIC_RESOURCE, PartitionImage, TopicImage
from blumfeld.spi.zookeeper import Check, Create, Delete, Operation, Set, request_bytes
from blumfeld.wire.messages.metadata_records import (
    DelegationTokenRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    ZkMigrationStateRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change, PartitionStep
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import (
    FeatureNode,
    ProducerIdsNode,
    encode_feature,
    encode_producer_ids,
)
from blumfeld_consensus_zk_compat.tree.forms_configs import (
    config_entity,
    encode_config,
)
from blumfeld_consensus_zk_compat.tree.forms_security import (
    acl_resource_at,
    encode_acls,
    encode_token,
)
from blumfeld_consensus_zk_compat.tree.forms_topics import TopicNode, encode_state, encode_topic, topic_node
from blumfeld_consensus_zk_compat.tree.image_entities import kept_records
from blumfeld_consensus_zk_compat.tree.merging import merged_entity, node_path, notification
from blumfeld_consensus_zk_compat.tree.versions import TreeVersions

Multi = tuple[Operation, ...]
Unit = list[Operation]
"""Operations that are in one ``multi``, whatever the size of the change."""

ACL_BYTES_MAX = 43
"""The longest list that a session gives a new node: its creator does everything, everybody reads."""


class TreeWriter:
    """The writes of one controller, from its election to its end. It knows the versions that its writes lead to, so it
    plans a write before those before it are answered.

    A write that fails ends it: the next controller loads the tree.

    :param versions: as loaded. The writer keeps them up, and nobody else may write them
    :param controller_epoch: as this controller has written it to ``/controller_epoch``. That write has given the node
        the version ``versions.controller_epoch``
    :param request_bytes_max: of the session
    :param chroot: of the session: paths are longer by it
    """

    def __init__(
        self, versions: TreeVersions, controller_epoch: int, request_bytes_max: int, chroot: str = ""
    ) -> None:
        self.versions = versions
        self._epoch = controller_epoch
        self._check = Check(paths.CONTROLLER_EPOCH, versions.controller_epoch)
        self._chroot = chroot
        self._bytes_max = request_bytes_max - request_bytes((self._check,), chroot)

    def multis(self, change: Change, image: MetadataImage) -> list[Multi]:
        """The writes of a change, to be sent in this order. None for one that a tree doesn't show.

        A topic's deletion is its mark only: :meth:`removal` has the rest.

        :param image: the controller's, with this change, or later
        :raises NoFormError: a tree can't keep what the change says, such as the configuration of a group
        """
        created = {topic.name for topic in change.topics_created}
        deleted = {topic.name for topic in change.topics_deleted}
        units: list[Unit] = [self._mark(topic.name) for topic in change.topics_deleted]
        by_topic: dict[str, list[PartitionStep]] = {}
        for step in change.partitions:
            if step.after is not None and step.topic not in deleted:
                by_topic.setdefault(step.topic, []).append(step)
        for topic in change.topics_created:
            units += self._topic_creation(topic, by_topic.pop(topic.name, ()), image)
        for name, steps in by_topic.items():
            units += self._partitions(name, steps, image)
        for resource_type, name in change.configs:
            if resource_type != TOPIC_RESOURCE or name not in created | deleted:
                data = encode_config(image.config(resource_type, name))
                units.append(self._change(paths.config(config_entity(resource_type, name)), data))
        units += self._records(change.records, image)
        return self._packed(units)

    def removal(self, name: str, nodes: Sequence[str]) -> list[Multi]:
        """Remove a topic that is marked, once no replica is left: its tree, its configuration, the mark last.

        :param nodes: the topic's tree, as :func:`~.loading.subtree` has read it
        """
        units: list[Unit] = [[Delete(path)] for path in nodes]
        config = paths.config(f"topics/{name}")
        beside = (config, paths.deletion(name))
        units += ([Delete(path)] for path in beside if self.versions.nodes.pop(path, None) is not None)
        self.versions.topics.pop(name, None)
        self.versions.without_partitions.discard(name)
        self.versions.without_state -= {key for key in self.versions.without_state if key[0] == name}
        return self._packed(units)

    def topic_ids(self, nodes: Mapping[str, TopicNode], ids: Mapping[str, bytes]) -> list[Multi]:
        """Give topics of Kafka before 2.8 their ids (``Loaded.without_id``). The controller does it, as Kafka's does,
        before it decides anything."""
        units: list[Unit] = []
        for name, topic_id in ids.items():
            at = nodes[name]
            units.append([self._set_topic(name, TopicNode(at.partitions, topic_id, at.adding, at.removing))])
        return self._packed(units)

    def taken_over(self, path: str) -> list[Multi]:
        """Remove ``/admin/reassign_partitions`` or ``/admin/preferred_replica_election``: what it asked for was done,
        or begun."""
        self.versions.nodes.pop(path, None)
        return self._packed([[Delete(path)]])

    def fits(self, topic: TopicImage) -> bool:
        """Whether the node of a topic fits in one request. Otherwise a tree can't keep the topic: refuse its creation,
        or that it gets so many partitions."""
        node = topic_node(topic.topic_id, topic.partitions.values())
        return self._bytes([Set(paths.topic(topic.name), encode_topic(node))]) <= self._bytes_max

    def seen(self, path: str, version: int | None) -> None:
        """Somebody else has written or removed (``None``) a node: a configuration, quota, ACL or token."""
        if version is None:
            self.versions.nodes.pop(path, None)
        else:
            self.versions.nodes[path] = version

    # Topics and partitions

    def _mark(self, name: str) -> Unit:
        path = paths.deletion(name)
        return [] if path in self.versions.nodes else self._creation(path, b"")

    def _topic_creation(
        self, topic: TopicImage, steps: Sequence[PartitionStep], image: MetadataImage
    ) -> Iterator[Unit]:
        """Configuration, the topic's node, the states. Kafka too writes the configuration first, and tells nobody."""
        name = topic.name
        config = encode_config(image.config(TOPIC_RESOURCE, name))
        yield self._written(paths.config(f"topics/{name}"), config)
        partitions = [step.after for step in steps if step.after is not None]
        self.versions.topics[name] = 0
        yield [
            Create(paths.topic(name), encode_topic(topic_node(topic.topic_id, partitions))),
            Create(paths.partitions(name)),
        ]
        for partition in partitions:
            yield self._state_creation(name, partition)

    def _partitions(self, name: str, steps: Sequence[PartitionStep], image: MetadataImage) -> Iterator[Unit]:
        new = [step for step in steps if step.before is None]
        moved = [step for step in steps if step.before is not None and _is_moved(step.before, step.after)]
        if new or moved:
            yield from self._assignment(name, new, moved, image)
        for step in steps:
            if step.before is not None and not _is_moved(step.before, step.after):
                yield self._state(name, step)

    def _assignment(
        self,
        name: str,
        new: Sequence[PartitionStep],
        moved: Sequence[PartitionStep],
        image: MetadataImage,
    ) -> Iterator[Unit]:
        """More partitions: the topic's node, then their states. Other replicas: node and states in one ``multi``, for
        as many partitions as fit."""
        topic = image.topics.get(name)
        if topic is None:
            return  # a later step has deleted it: its mark follows
        now = dict(topic.partitions)
        for step in moved:
            assert step.before is not None
            now[step.before.partition] = step.before
        for step in new:
            assert step.after is not None
            now[step.after.partition] = step.after
        if new:
            yield [self._set_topic(name, topic_node(topic.topic_id, now.values()))]
            for step in new:
                assert step.after is not None
                yield self._state_creation(name, step.after)
        for part in self._parts_of_moved(name, topic, moved):
            for step in part:
                assert step.after is not None
                now[step.after.partition] = step.after
            unit: Unit = [self._set_topic(name, topic_node(topic.topic_id, now.values()))]
            for step in part:
                unit += self._state(name, step)
            yield unit

    def _parts_of_moved(
        self, name: str, topic: TopicImage, moved: Sequence[PartitionStep]
    ) -> Iterator[list[PartitionStep]]:
        node = topic_node(topic.topic_id, topic.partitions.values())
        # The node grows by what is being added and removed, which the image may not show any more.
        free = self._bytes_max - 2 * self._bytes([Set(paths.topic(name), encode_topic(node))])
        part: list[PartitionStep] = []
        left = free
        for step in moved:
            taken = self._bytes(self._state(name, step))
            if part and taken > left:
                yield part
                part, left = [], free
            part.append(step)
            left -= taken
        if part:
            yield part

    def _set_topic(self, name: str, node: TopicNode) -> Set:
        version = self.versions.topics[name]
        self.versions.topics[name] = version + 1
        return Set(paths.topic(name), encode_topic(node), version)

    def _state(self, name: str, step: PartitionStep) -> Unit:
        """A write for each step of the partition's epoch, because that is the version of its state."""
        before, after = step.before, step.after
        assert before is not None
        assert after is not None
        if before.partition_epoch < 0:
            return self._state_creation(name, after)
        path, data = paths.state(name, after.partition), encode_state(after, self._epoch)
        return [Set(path, data, version) for version in range(before.partition_epoch, after.partition_epoch)]

    def _state_creation(self, name: str, partition: PartitionImage) -> Unit:
        number, versions = partition.partition, self.versions
        unit: Unit = []
        if name in versions.without_partitions:
            versions.without_partitions.discard(name)
            unit.append(Create(paths.partitions(name)))
        if (name, number) in versions.without_state:
            versions.without_state.discard((name, number))
        else:
            unit.append(Create(paths.partition(name, number)))
        path, data = paths.state(name, number), encode_state(partition, self._epoch)
        unit.append(Create(path, data))
        unit += (Set(path, data, version) for version in range(partition.partition_epoch))
        return unit

    # Everything else

    def _records(self, records: Iterable[Message], image: MetadataImage) -> Iterator[Unit]:
        """Each node once, as it is after all records."""
        acls = self.versions.acls
        changed: dict[str, None] = {}
        features = False
        for record in records:
            match record:
                case ProducerIdsRecord():
                    yield self._written(paths.PRODUCER_IDS, encode_producer_ids(_block(record)))
                case FeatureLevelRecord():
                    features = True
                case ZkMigrationStateRecord():
                    pass  # of the quorum's log alone: a tree has ``/migration``
                case _:
                    path = node_path(record, acls)
                    acls.note([record])
                    if path is not None:
                        changed[path] = None
        if features:
            levels = {name: at for name, at in image.features.items() if name != METADATA_VERSION_FEATURE}
            yield self._written(paths.FEATURE, encode_feature(FeatureNode(levels)))
        for path in changed:
            yield self._change(path, self._data(path, image))

    def _change(self, path: str, data: bytes | None) -> Unit:
        """A node with this content (``None``: without any it goes), and the notification for all brokers."""
        write = self._removed(path) if data is None else self._written(path, data)
        told = notification(path)
        return [*write, *self._above(told.path), told]

    def _data(self, path: str, image: MetadataImage) -> bytes | None:
        """The content that a node gets from the image; ``None``: nothing. What else an entity's node has stays."""
        if path.startswith(f"{paths.CONFIG}/"):
            kept = kept_records(image, path.removeprefix(f"{paths.CONFIG}/"))
            return merged_entity(kept.values(), self.versions.others.get(path, {}))
        if path.startswith(f"{paths.TOKENS}/"):
            token = image.kept.get((KEPT[DelegationTokenRecord].part, path.removeprefix(f"{paths.TOKENS}/")))
            return encode_token(token) if isinstance(token, DelegationTokenRecord) else None
        entries = self.versions.acls.of_resource.get(acl_resource_at(path))
        return encode_acls(entries.values()) if entries else None

    # Operations

    def _written(self, path: str, data: bytes) -> Unit:
        version = self.versions.nodes.get(path)
        if version is None:
            return self._creation(path, data)
        self.versions.nodes[path] = version + 1
        return [Set(path, data, version)]

    def _creation(self, path: str, data: bytes) -> Unit:
        """A node, and those above it that aren't there."""
        self.versions.nodes[path] = 0
        return [*self._above(path), Create(path, data)]

    def _removed(self, path: str) -> Unit:
        version = self.versions.nodes.pop(path, None)
        return [] if version is None else [Delete(path, version)]

    def _above(self, path: str) -> Unit:
        """The nodes above this one that aren't there."""
        nodes = self.versions.nodes
        missing = [above for above in paths.above(path) if above not in nodes]
        nodes.update(dict.fromkeys(missing, 0))
        return [*map(Create, missing)]

    def _bytes(self, operations: Unit) -> int:
        """Bytes that these add to a request."""
        return request_bytes(operations, self._chroot, ACL_BYTES_MAX) - request_bytes(())

    def _packed(self, units: Iterable[Unit]) -> list[Multi]:
        """The fewest requests that keep each unit whole and in order."""
        packed: list[Multi] = []
        part: Unit = []
        left = self._bytes_max
        for unit in units:
            taken = self._bytes(unit)
            if part and taken > left:
                packed.append((self._check, *part))
                part, left = [], self._bytes_max
            part += unit
            left -= taken
        if part:
            packed.append((self._check, *part))
        return packed


def _block(record: ProducerIdsRecord) -> ProducerIdsNode:
    start = record.next_producer_id - BLOCK_IDS
    return ProducerIdsNode(record.broker_id, start, record.next_producer_id - 1)


def _is_moved(before: PartitionImage, after: PartitionImage | None) -> bool:
    return after is not None and (
        before.replicas != after.replicas
        or before.adding_replicas != after.adding_replicas
        or before.removing_replicas != after.removing_replicas
    )
