"""Applies each change of the cluster's image: first configuration, then hosted replicas, then announcements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blumfeld.broker.membership.cluster import ClusterView
from blumfeld.broker.membership.config_warnings import ConfigWarnings
from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.broker.ports import BrokerComposition
from blumfeld.broker.replicas.hosting import PartitionManager
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, ImageDelta, TopicImage
from blumfeld.spi.storage import TopicPartition


class ImageFollower:
    """Applies deltas of the image between :meth:`start` and :meth:`stop`."""

    def __init__(
        self,
        composition: BrokerComposition,
        cluster: ClusterView,
        hosted: PartitionManager,
        lifecycle: Lifecycle,
        warnings: ConfigWarnings,
        topics_deleted: Callable[[Sequence[TopicImage]], None],
    ) -> None:
        self._composition = composition
        self._cluster = cluster
        self._hosted = hosted
        self._lifecycle = lifecycle
        self._warnings = warnings
        self._topics_deleted = topics_deleted
        self._subscribed = False
        self._following = False

    def start(self) -> None:
        """Begin. The first delta from the consensus is the whole image. May be called again after :meth:`stop`."""
        self._following = True
        if not self._subscribed:
            self._subscribed = True
            self._composition.metadata.subscribe(self._changed)

    def stop(self) -> None:
        """Ignore deltas from now on. A consensus has no way to unsubscribe."""
        self._following = False

    def _changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if not self._following:
            return
        if delta.first:
            self._hosted.set_strays_aside(image)
        # Configuration first: a partition that the same delta opens reads it.
        self._configs_changed(delta)
        for topic in delta.topics_deleted:
            for index in sorted(topic.partitions):
                self._hosted.remove(TopicPartition(topic.name, index))
        if delta.topics_deleted:
            self._topics_deleted(delta.topics_deleted)
        leaders = []
        for topic, partition in delta.partitions_changed:
            at = TopicPartition(topic.name, partition.partition)
            hosted = self._hosted.find(at.topic, at.partition)
            before = None if hosted is None or hosted.image is None else hosted.image
            self._hosted.apply(at, topic.topic_id, partition)
            changed = before is None or before.leader_epoch != partition.leader_epoch
            if changed and self._cluster.node_id in partition.replicas:
                leaders.append((at, partition))
        self._lifecycle.image_changed(image)
        hook = self._composition.hook
        if hook is None:
            return
        for topic in delta.topics_created if not delta.first else ():
            hook.blumfeld_topic_created(topic=topic)
        for topic in delta.topics_deleted:
            hook.blumfeld_topic_deleted(topic=topic)
        for at, partition in leaders:
            hook.blumfeld_leader_changed(partition=at, image=partition)

    def _configs_changed(self, delta: ImageDelta) -> None:
        self._warnings.changed(delta.configs_changed)
        own = str(self._cluster.node_id)
        if any(kind == BROKER_RESOURCE and name in ("", own) for kind, name in delta.configs_changed):
            self._cluster.reconfigure()
            self._hosted.reconfigure("")
            return
        for kind, name in delta.configs_changed:
            if kind == TOPIC_RESOURCE:
                self._hosted.reconfigure(name)
