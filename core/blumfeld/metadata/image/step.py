"""Replay of records into an image, and the delta that they make. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.metadata.image.partition_index import NO_LEADER, all_of, along
from blumfeld.metadata.image.partition_table import CHUNK_PARTITIONS, PartitionTable
from blumfeld.metadata.image.security_protocols import protocol_name
from blumfeld.spi.cluster import (
    TOPIC_RESOURCE,
    BrokerImage,
    Endpoint,
    ImageDelta,
    PartitionImage,
    TopicImage,
)
from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from blumfeld.wire.schema import Message

T = TypeVar("T")
NO_LEADER_CHANGE = -2


class BrokenMetadata(ValueError):  # noqa: N818 - the noun says what it is
    """A record contradicts those before it: the log is of another cluster, it is damaged, or there is a defect."""


class ImageStep:
    """Replays records into an image and collects what changed.

    Each record is in the image when :meth:`replay` returns; in a plug-in's section after :meth:`replay_sections` or
    :meth:`finish`, which replay there all records since the one before. Replay decides nothing: it does what the record
    says. A step may span several batches. It ends with :meth:`finish` and is not used again.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._open: dict[bytes, dict[int, PartitionImage] | PartitionTable] = {}
        """Partitions of the topics that this step has touched. A topic's are copied once per step, not once
        per record; a large topic's chunk by chunk.
        """
        self._created: dict[bytes, None] = {}
        self._deleted: list[TopicImage] = []
        self._partitions: dict[tuple[bytes, int], None] = {}
        self._elected = self._elected_uncleanly = 0
        self._brokers: dict[int, None] = {}
        self._configs: dict[tuple[int, str], None] = {}
        self._features = False
        self._section_records: dict[str, list[Message]] = {}
        self._in_sections: dict[str, int] = {}
        """Section → how many of its records are in its value."""
        self._kept: list[Message] = []

    def replay(self, record: Message) -> None:
        """Apply a record. Records of parts that the core gives no meaning are kept for the snapshot.

        :raises BrokenMetadata: the record names a topic, partition or broker that does not exist
        """
        replay = _REPLAYS.get(type(record))
        if replay is None:
            raise BrokenMetadata(f"{type(record).__name__} is not a record of the image")
        replay(self, record)

    def finish(self, offset: int, epoch: int) -> ImageDelta:
        """End the step at ``offset`` in controller epoch ``epoch``, and return the changes.

        :raises BrokenMetadata: a plug-in's section can't replay its records
        """
        image = self.image
        self.replay_sections()
        image.offset = offset
        image.epoch = epoch
        image.features_epoch = offset
        created = [image.topic_by_id(topic_id) for topic_id in self._created]
        changed = []
        for topic_id, number in self._partitions:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                changed.append((topic, topic.partitions[number]))
        return ImageDelta(
            topics_created=tuple(topic for topic in created if topic is not None),
            topics_deleted=tuple(self._deleted),
            partitions_changed=tuple(changed),
            leaders_elected=self._elected,
            leaders_elected_uncleanly=self._elected_uncleanly,
            brokers_changed=tuple(self._brokers),
            configs_changed=tuple(self._configs),
            features_changed=self._features,
            section_records={name: tuple(replayed) for name, replayed in self._section_records.items()},
            kept_records=tuple(self._kept),
        )

    # Topics and partitions

    def _topic(self, record: records.TopicRecord) -> None:
        image = self.image
        if record.name in image.topics or record.topic_id in image.topic_names:
            raise BrokenMetadata(f"topic {record.name} is created twice")
        image.topic_names[record.topic_id] = record.name
        self._open[record.topic_id] = {}
        self._created[record.topic_id] = None
        self._replace(record.name, record.topic_id)

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        image = self.image
        name = image.topic_names.pop(record.topic_id, None)
        if name is None:
            raise BrokenMetadata(f"topic {record.topic_id.hex()} is removed but does not exist")
        topic = image.topics.pop(name)
        image.index.remove_topic(topic.topic_id, topic.partitions)
        image.configs.pop((TOPIC_RESOURCE, name), None)
        self._open.pop(record.topic_id, None)
        if record.topic_id in self._created:
            del self._created[record.topic_id]
        else:
            self._deleted.append(topic)

    def _partition(self, record: records.PartitionRecord) -> None:
        self._put(
            record.topic_id,
            PartitionImage(
                partition=record.partition_id,
                replicas=tuple(record.replicas),
                isr=tuple(record.isr),
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                adding_replicas=tuple(record.adding_replicas),
                removing_replicas=tuple(record.removing_replicas),
                eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
                last_known_elr=tuple(record.last_known_elr or ()),
                leader_recovery_state=record.leader_recovery_state,
                directories=tuple(record.directories),
            ),
        )

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        old = self._partitions_of(record.topic_id).get(record.partition_id)
        if old is None:
            raise BrokenMetadata(f"partition {record.partition_id} changes but does not exist")
        new = changed_partition(old, record)
        if new.leader not in (old.leader, NO_LEADER):
            self._elected += 1
            self._elected_uncleanly += new.leader not in (*old.isr, *old.eligible_leader_replicas)
        self._put(record.topic_id, new)

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        image = self.image
        if record.topic_name and record.topic_name not in image.topics:
            raise BrokenMetadata(f"topic {record.topic_name} loses its ELR but does not exist")
        with_elr = image.index.with_elr()
        # The list is made before the first change, which takes its partition out of the set.
        for topic_id, number, _ in list(along(with_elr, all_of(with_elr))):
            if not record.topic_name or image.topic_names[topic_id] == record.topic_name:
                cleared = records.PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                self._put(topic_id, changed_partition(self._partitions_of(topic_id)[number], cleared))

    def _partitions_of(self, topic_id: bytes) -> dict[int, PartitionImage] | PartitionTable:
        partitions = self._open.get(topic_id)
        if partitions is None:
            topic = self.image.topic_by_id(topic_id)
            if topic is None:
                raise BrokenMetadata(f"topic {topic_id.hex()} changes but does not exist")
            there = topic.partitions
            partitions = there.draft() if isinstance(there, PartitionTable) else dict(there)
            self._open[topic_id] = partitions
            self._replace(topic.name, topic_id)
        return partitions

    def _put(self, topic_id: bytes, partition: PartitionImage) -> None:
        partitions, number = self._partitions_of(topic_id), partition.partition
        self.image.index.put(topic_id, partitions.get(number), partition)
        partitions[number] = partition
        self._partitions[topic_id, number] = None
        if len(partitions) > CHUNK_PARTITIONS and not isinstance(partitions, PartitionTable):
            self._open[topic_id] = PartitionTable(partitions)
            self._replace(self.image.topic_names[topic_id], topic_id)

    def _replace(self, name: str, topic_id: bytes) -> None:
        self.image.topics[name] = TopicImage(name=name, topic_id=topic_id, partitions=self._open[topic_id])

    # Brokers and controllers

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self._set_broker(record)

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self.image.registrations[record.broker_id]
        del self.image.brokers[record.broker_id]
        self._brokers[record.broker_id] = None

    def _fence(self, record: records.FenceBrokerRecord) -> None:
        self._set_broker(msgspec.structs.replace(self._registered(record.id, record.epoch), fenced=True))

    def _unfence(self, record: records.UnfenceBrokerRecord) -> None:
        self._set_broker(msgspec.structs.replace(self._registered(record.id, record.epoch), fenced=False))

    def _broker_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        old = self._registered(record.broker_id, record.broker_epoch)
        cordoned = record.cordoned_log_dirs
        self._set_broker(
            msgspec.structs.replace(
                old,
                fenced=old.fenced if record.fenced == 0 else record.fenced > 0,
                in_controlled_shutdown=old.in_controlled_shutdown or record.in_controlled_shutdown > 0,
                log_dirs=record.log_dirs or old.log_dirs,
                cordoned_log_dirs=old.cordoned_log_dirs if cordoned is None else cordoned,
            )
        )

    def _registered(self, broker_id: int, broker_epoch: int) -> records.RegisterBrokerRecord:
        registration = self.image.registrations.get(broker_id)
        if registration is None or registration.broker_epoch != broker_epoch:
            raise BrokenMetadata(f"broker {broker_id} of epoch {broker_epoch} changes but is not registered")
        return registration

    def _set_broker(self, record: records.RegisterBrokerRecord) -> None:
        self.image.registrations[record.broker_id] = record
        self.image.brokers[record.broker_id] = _broker_image(record)
        self._brokers[record.broker_id] = None

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self.image.controllers[record.controller_id] = record

    # The rest

    def _config(self, record: records.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        # Replaced, not changed: images that were copied from each other share the overrides of a resource.
        values = dict(self.image.configs.get(resource, ()))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.image.configs[resource] = values
        else:
            self.image.configs.pop(resource, None)
        self._configs[resource] = None

    def _feature(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self.image.features.pop(record.name, None)
        else:
            self.image.features[record.name] = record.feature_level
        self._features = True

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.image.producer_ids = record
        self._kept.append(record)

    def _keep(self, record: Message) -> None:
        kept = KEPT[type(record)]
        key = kept.part, kept.entity(record)
        if kept.sets(record):
            self.image.kept[key] = record
        else:
            self.image.kept.pop(key, None)
        self._kept.append(record)
        section = self.image.section_kinds.by_record.get(type(record))
        if section is not None:
            self._section_records.setdefault(section.name, []).append(record)

    def replay_sections(self) -> None:
        """Bring the plug-ins' sections up to the last record. A large step calls this for each part of it.

        :raises BrokenMetadata: a section can't replay its records
        """
        image = self.image
        for name, replayed in self._section_records.items():
            section, begin = image.section_kinds.by_name[name], self._in_sections.get(name, 0)
            if begin == len(replayed):
                continue
            self._in_sections[name] = len(replayed)
            try:
                image.sections[name] = section.replay(image.sections[name], replayed[begin:])
            except Exception as error:
                raise BrokenMetadata(
                    f"section {name} of the image can't replay its records: {error!r}"
                ) from error

    def _nothing(self, record: Message) -> None:
        """Ignore NoOpRecord and the brackets of a transaction: :class:`TransactionGate` has let the
        transaction through whole.
        """


def _changed(old: tuple[T, ...], new: list[T] | None) -> tuple[T, ...]:
    return old if new is None else tuple(new)


def changed_partition(old: PartitionImage, record: records.PartitionChangeRecord) -> PartitionImage:
    """Returns the changed partition: its partition epoch rises by 1, and its leader epoch too if the record
    names a leader.
    """
    led = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    return PartitionImage(
        partition=old.partition,
        replicas=_changed(old.replicas, record.replicas),
        isr=_changed(old.isr, record.isr),
        leader=record.leader if led else old.leader,
        leader_epoch=old.leader_epoch + led,
        partition_epoch=old.partition_epoch + 1,
        adding_replicas=_changed(old.adding_replicas, record.adding_replicas),
        removing_replicas=_changed(old.removing_replicas, record.removing_replicas),
        eligible_leader_replicas=_changed(old.eligible_leader_replicas, record.eligible_leader_replicas),
        last_known_elr=_changed(old.last_known_elr, record.last_known_elr),
        leader_recovery_state=recovery if recovery >= 0 else old.leader_recovery_state,
        directories=_changed(old.directories, record.directories),
    )


def _broker_image(record: records.RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=tuple(
            Endpoint(e.name, e.host, e.port, protocol_name(e.security_protocol)) for e in record.end_points
        ),
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
    )


_REPLAYS: dict[type[Message], Callable[[ImageStep, Any], None]] = {
    records.TopicRecord: ImageStep._topic,
    records.RemoveTopicRecord: ImageStep._remove_topic,
    records.PartitionRecord: ImageStep._partition,
    records.PartitionChangeRecord: ImageStep._partition_change,
    records.ClearElrRecord: ImageStep._clear_elr,
    records.RegisterBrokerRecord: ImageStep._register_broker,
    records.UnregisterBrokerRecord: ImageStep._unregister_broker,
    records.FenceBrokerRecord: ImageStep._fence,
    records.UnfenceBrokerRecord: ImageStep._unfence,
    records.BrokerRegistrationChangeRecord: ImageStep._broker_change,
    records.RegisterControllerRecord: ImageStep._register_controller,
    records.ConfigRecord: ImageStep._config,
    records.FeatureLevelRecord: ImageStep._feature,
    records.ProducerIdsRecord: ImageStep._producer_ids,
    records.NoOpRecord: ImageStep._nothing,
    records.BeginTransactionRecord: ImageStep._nothing,
    records.EndTransactionRecord: ImageStep._nothing,
    records.AbortTransactionRecord: ImageStep._nothing,
    **dict.fromkeys(KEPT, ImageStep._keep),
}


class TransactionGate:
    """A change that spans several batches counts only once it is complete (KIP-868). So records are held back from
    BeginTransactionRecord until EndTransactionRecord; AbortTransactionRecord drops them.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[Message] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended. A new controller must abort it before it writes."""
        return self._held is not None

    def copy(self) -> TransactionGate:
        """Returns an independent gate that holds back the same records."""
        other = TransactionGate()
        other._held = None if self._held is None else list(self._held)
        return other

    def pass_on(self, record: Message) -> list[Message]:
        """Returns the records that may be replayed now that this one has been read; outside of a transaction
        the record itself.
        """
        if isinstance(record, BeginTransactionRecord):
            self._held = []
            return []
        if isinstance(record, EndTransactionRecord):
            held, self._held = self._held or [], None
            return held
        if isinstance(record, AbortTransactionRecord):
            self._held = None
            return []
        if self._held is None:
            return [record]
        self._held.append(record)
        return []
