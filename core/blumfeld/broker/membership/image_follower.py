"""Applies each change of the cluster's image: first configuration, then hosted replicas, then announcements.

A consensus that pushes changes the replicas itself, so here they are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.broker.cluster import ClusterView
from blumfeld.broker.composition import BrokerComposition
from blumfeld.broker.membership.config_warnings import ConfigWarnings
from blumfeld.broker.membership.lifecycle import Lifecycle
from blumfeld.broker.replicas.hosting.partition_manager import PartitionManager
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, ImageDelta, TopicImage
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ReplicaDriver
from blumfeld.spi.scheduler import Lane, Work
from blumfeld.spi.storage import TopicPartition


class ImageFollower:
    """Applies deltas of the image between :meth:`start` and :meth:`stop`, in their order."""

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
        self._events = composition.log("broker")
        self._subscribed = False
        self._following = False
        self._work: Work | None = None
        self._applied: Completion[None] = Completion.of(None)

    def start(self) -> None:
        """Begin. The first delta from the consensus is the whole image. May be called again after :meth:`stop`."""
        self._following = True
        if not self._subscribed:
            self._subscribed = True
            self._composition.metadata.subscribe(self._changed)

    def stop(self) -> None:
        """Ignore deltas from now on, and the rest of one that is being applied. A consensus can't unsubscribe."""
        self._following = False
        if self._work is not None:
            self._work.cancel()
        if not self._applied.done:
            self._applied.complete(None)

    def applied(self) -> Completion[None]:
        """Returns a completion that is done when no delta is being applied."""
        return self._applied

    def _changed(self, image: ClusterImage, delta: ImageDelta) -> Completion[None] | None:
        """Apply a delta: a small one at once, a large one over several turns. The next one comes when it is applied."""
        if not self._following:
            return None
        self._applied = Completion()
        steps = self._apply(image, delta)
        self._work = self._composition.runtime.scheduler.run(Lane.METADATA, steps, self._ended)
        return self._applied

    def _ended(self, _: None, defect: BaseException | None) -> None:
        if defect is not None:
            self._events.error("a change of the image was not applied to its end", exc_info=defect)
        self._applied.complete(None)

    def _apply(self, image: ClusterImage, delta: ImageDelta) -> Steps[None]:
        drives = self._composition.metadata.replica_driver is ReplicaDriver.IMAGE
        if delta.first:
            self._hosted.set_strays_aside(image, orders_come=not drives)
        # Configuration first: a partition that the same delta opens reads it.
        self._configs_changed(delta)
        for topic in delta.topics_deleted if drives else ():
            for number, index in enumerate(sorted(topic.partitions)):
                if number:
                    yield None
                # Closes files and renames a directory: up to 3 ms on a busy disk.
                self._hosted.remove(TopicPartition(topic.name, index))
        if delta.topics_deleted:
            self._topics_deleted(delta.topics_deleted)
        leaders = []
        for number, (topic, partition) in enumerate(delta.partitions_changed):
            if number:
                yield None
            at = TopicPartition(topic.name, partition.partition)
            hosted = self._hosted.find(at.topic, at.partition)
            before = None if hosted is None else hosted.image
            if drives:
                self._hosted.apply(at, topic.topic_id, partition)
            changed = before is None or before.leader_epoch != partition.leader_epoch
            if changed and self._cluster.node_id in partition.replicas:
                leaders.append((at, partition))
        self._lifecycle.image_changed(image, delta.brokers_changed)
        for topic in delta.topics_created if not delta.first else ():
            self._announce("blumfeld_topic_created", topic=topic)
        for topic in delta.topics_deleted:
            self._announce("blumfeld_topic_deleted", topic=topic)
        for at, partition in leaders:
            self._announce("blumfeld_leader_changed", partition=at, image=partition)

    def _announce(self, hook_name: str, **arguments: Any) -> None:
        """Call a hook. A plug-in's defect is logged: the consensus waits for this delta before it brings the next."""
        hook = self._composition.hook
        if hook is None:
            return
        try:
            getattr(hook, hook_name)(**arguments)
        except Exception as defect:
            self._events.error("a hook failed", hook=hook_name, exc_info=defect)

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
