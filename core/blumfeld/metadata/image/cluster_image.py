"""The cluster image: the state that the metadata records describe. Pure.

Only an :class:`~blumfeld.metadata.image.step.ImageStep` changes a :class:`MetadataImage`. Topics and
brokers in it are frozen values that are replaced, so a reader may keep one for as long as it likes. All
mappings are in the order of creation, so that two nodes with the same records iterate alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any

from blumfeld.config.values import BROKER_CONFIGS, BrokerConfig, TopicConfig, usable
from blumfeld.metadata.image.partition_index import PartitionIndex
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.metadata.slices import SLICE_LOOKS
from blumfeld.spi.cluster import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    BrokerImage,
    Endpoint,
    ImageDelta,
    TopicImage,
)
from blumfeld.spi.completion import Steps
from blumfeld.spi.steps import drained
from blumfeld.wire.messages.metadata_records import (
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from blumfeld.wire.schema import Message

_NONE_SET: Mapping[str, str] = MappingProxyType({})
METADATA_VERSION_FEATURE = "metadata.version"
ELR_FEATURE = "eligible.leader.replicas.version"
LARGE_TABLE = 10_000
"""Entries of a table that is copied in a turn of its own."""


class MetadataImage:
    """The cluster as of the record at ``offset``.

    It is a :class:`blumfeld.spi.cluster.ClusterImage` plus what only the controller and snapshots need.
    """

    __slots__ = (
        "brokers",
        "cluster_id",
        "configs",
        "controllers",
        "epoch",
        "features",
        "features_epoch",
        "index",
        "kept",
        "offset",
        "producer_ids",
        "registrations",
        "section_kinds",
        "sections",
        "topic_names",
        "topics",
    )

    cluster_id: str
    brokers: dict[int, BrokerImage]
    topics: dict[str, TopicImage]
    features: dict[str, int]
    features_epoch: int
    offset: int
    """Offset of the last replayed record; -1 before the first."""
    epoch: int
    """Epoch of the controller that wrote that record; -1 before the first."""
    topic_names: dict[bytes, str]
    configs: dict[tuple[int, str], dict[str, str]]
    """(Resource type, name) → dynamic overrides. No entry is empty. The overrides of a resource are replaced, never
    changed.
    """
    index: PartitionIndex
    registrations: dict[int, RegisterBrokerRecord]
    """Complete registration of each broker, with later changes; ``brokers`` holds a part of it."""
    controllers: dict[int, RegisterControllerRecord]
    producer_ids: ProducerIdsRecord | None
    """The block of producer ids that was allocated last."""
    kept: dict[tuple[str, Hashable], Message]
    """Records of parts that the core gives no meaning (ACLs, quotas, SCRAM…), by the entity that each describes. A
    snapshot must not lose them, also in a build whose plug-ins bring no section for them.
    """
    section_kinds: SectionKinds
    sections: dict[str, Any]
    """Values of the plug-ins' sections, by name. A value is replaced, never changed."""

    def __init__(self, cluster_id: str = "", section_kinds: SectionKinds = NO_SECTIONS) -> None:
        self.cluster_id = cluster_id
        self.brokers = {}
        self.topics = {}
        self.features = {}
        self.features_epoch = -1
        self.offset = -1
        self.epoch = -1
        self.topic_names = {}
        self.configs = {}
        self.registrations = {}
        self.controllers = {}
        self.producer_ids = None
        self.kept = {}
        self.section_kinds = section_kinds
        self.sections = {name: section.empty() for name, section in section_kinds.by_name.items()}
        self.index = PartitionIndex()

    def controller_endpoints(self, listener: str) -> list[tuple[int, Endpoint]]:
        """Returns the registered controllers that have a listener of this name, by id."""
        return [
            (controller.controller_id, Endpoint(listener, at.host, at.port))
            for _, controller in sorted(self.controllers.items())
            for at in controller.end_points
            if at.name == listener
        ]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Returns the topic with this id, or ``None``."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Returns a resource's dynamic overrides, empty if there are none. Broker ``""`` is the cluster-wide
        default.
        """
        return self.configs.get((resource_type, name), _NONE_SET)

    def configured(self, resource_type: int) -> tuple[str, ...]:
        """Returns the names of a type's resources that have dynamic overrides, sorted."""
        return tuple(sorted(name for kind, name in self.configs if kind == resource_type))

    def broker_config(self, config: BrokerConfig) -> BrokerConfig:
        """Returns the broker configuration: values set at run time for all brokers, then the manifest's, ``config``."""
        known = usable(BROKER_CONFIGS, self.config(BROKER_RESOURCE, ""))
        return config.with_overrides(dynamic_default=known) if known else config

    def topic_config(self, topic: str, config: BrokerConfig) -> TopicConfig:
        """Returns a topic's configuration. Keys that a later Kafka stored and this build does not know are ignored.

        :param config: as :meth:`broker_config` returns it
        """
        return TopicConfig.stored(self.config(TOPIC_RESOURCE, topic), config)

    def section(self, name: str) -> Any:
        """Returns the value of a plug-in's section.

        :raises KeyError: no plug-in of the build brings a section of this name
        """
        return self.sections[name]

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.features.get(ELR_FEATURE, 0) >= 1

    def is_active(self, broker_id: int) -> bool:
        """Whether the broker may lead: registered, not fenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def copy(self) -> MetadataImage:
        """Returns an independent image with the same content. The frozen values are shared."""
        return drained(self.copied())

    def copied(self) -> Steps[MetadataImage]:
        """The steps of :meth:`copy`: one table in each, because a table of 100,000 topics takes milliseconds. The image
        must not change between them.
        """
        other = MetadataImage(self.cluster_id, self.section_kinds)
        for name in MetadataImage.__slots__:
            value = getattr(self, name)
            if isinstance(value, dict):
                setattr(other, name, dict(value))
                if len(value) >= LARGE_TABLE:
                    yield None
            else:
                setattr(other, name, value)
        other.index = yield from self.index.copied(LARGE_TABLE)
        return other

    def first_delta(self) -> ImageDelta:
        """Returns the delta from the empty image to this one."""
        topics = tuple(self.topics.values())
        return ImageDelta(
            topics_created=topics,
            partitions_changed=tuple((topic, p) for topic in topics for p in topic.partitions.values()),
            brokers_changed=tuple(self.brokers),
            configs_changed=tuple(self.configs),
            features_changed=bool(self.features),
            section_records=self.section_records(),
            first=True,
        )

    def section_records(self) -> dict[str, tuple[Message, ...]]:
        """Returns the records that the plug-ins' sections consist of, by section."""
        return drained(self.records_by_section())

    def records_by_section(self) -> Steps[dict[str, tuple[Message, ...]]]:
        """The steps of :meth:`section_records`: there may be 100,000 ACLs. The image must not change between them."""
        by_section: dict[str, list[Message]] = {}
        for number, record in enumerate(self.kept.values(), 1):
            section = self.section_kinds.by_record.get(type(record))
            if section is not None:
                by_section.setdefault(section.name, []).append(record)
            if not number % SLICE_LOOKS:
                yield None
        return {name: tuple(records) for name, records in by_section.items()}

    def __eq__(self, other: object) -> bool:
        """Whether both images describe the same cluster state; offsets and epochs don't count."""
        if not isinstance(other, MetadataImage):
            return NotImplemented
        ignored = ("offset", "epoch", "features_epoch", "cluster_id", "section_kinds")
        return all(
            getattr(self, name) == getattr(other, name)
            for name in MetadataImage.__slots__
            if name not in ignored
        )

    __hash__ = None  # type: ignore[assignment]
