"""The cluster as every node sees it: values that consensus makes and everyone else reads.

Nothing here assumes one metadata log: in ZooKeeper mode each broker gets these by pushes that arrive on their
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from blumfeld.wire.schema import Message

BROKER_RESOURCE = 4
TOPIC_RESOURCE = 2
GROUP_RESOURCE = 32
"""Config resource types (KIP-133, KIP-848)."""


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a broker on one listener."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerImage(msgspec.Struct, frozen=True, kw_only=True):
    """One registered broker."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    fenced: bool = False
    in_controlled_shutdown: bool = False
    log_dirs: tuple[bytes, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        """Its endpoint on the named listener."""
        return next((e for e in self.endpoints if e.listener == listener), None)


class PartitionImage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One partition as the controller has it.

    The garbage collector doesn't track it (``gc=False``): it holds numbers and bytes only, so it is in no cycle. A pass
    over the new images of 10⁵ changed partitions would hold the loop for 65 ms.
    """

    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    """-1 when there is none."""
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    directories: tuple[bytes, ...] = ()


class TopicImage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One topic. ``partitions`` has every number from 0 on; it is replaced, never changed.

    The garbage collector doesn't track it (``gc=False``): nothing in it refers back to it.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]


class ClusterImage(Protocol):
    """The committed state as of now. Only its maker writes it. Read it anew each time, and keep no part of it over an
    await.
    """

    @property
    def cluster_id(self) -> str:
        """As ``meta.properties`` has it."""
        ...

    @property
    def brokers(self) -> Mapping[int, BrokerImage]:
        """Registered brokers, fenced ones too."""
        ...

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        """All topics, in the order in which they were created."""
        ...

    @property
    def features(self) -> Mapping[str, int]:
        """Finalized levels, 0 left out."""
        ...

    @property
    def features_epoch(self) -> int:
        """-1 when unknown."""
        ...

    def controller_endpoints(self, listener: str) -> Sequence[tuple[int, Endpoint]]:
        """Registered controllers that have a listener of this name, by id."""
        ...

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """The topic with this id."""
        ...

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Dynamic overrides of a resource; broker ``""`` is the cluster-wide default. Empty when there are none."""
        ...

    def configured(self, resource_type: int) -> tuple[str, ...]:
        """Names of the resources of a type that have dynamic overrides, sorted."""
        ...

    def section(self, name: str) -> Any:
        """The value of a section that a plug-in brings (:mod:`blumfeld.spi.image_sections`). Read-only.

        :raises KeyError: no plug-in of the build brings a section of this name
        """
        ...


class ImageDelta(msgspec.Struct, kw_only=True):
    """The changes of one step of the image. All tuples are in a fixed order."""

    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    partitions_changed: tuple[tuple[TopicImage, PartitionImage], ...] = ()
    """New and changed partitions, those of created topics included."""
    leaders_elected: int = 0
    """Partitions that got another leader, new ones not counted. A step that takes over a snapshot tells of none."""
    leaders_elected_uncleanly: int = 0
    """Partitions whose new leader may lack committed records: it was neither in sync nor eligible (KIP-966)."""
    brokers_changed: tuple[int, ...] = ()
    configs_changed: tuple[tuple[int, str], ...] = ()
    """(resource type, name)."""
    features_changed: bool = False
    section_records: Mapping[str, tuple[Message, ...]] = {}
    """Records of the plug-ins' sections in this step, by the section's name, in the order of the log."""
    kept_records: tuple[Message, ...] = ()
    """Records of parts that the core gives no meaning, and of producer ids, in the order of the log. A step that takes
    over a snapshot, and the first one, tell of none."""
    first: bool = False
    """The first delta: everything that there is."""


class Membership(Protocol):
    """This broker's registration with the controller."""

    @property
    def broker_epoch(self) -> int:
        """The epoch that the controller gave this process; -1 before the registration. The image may show the epoch of
        an earlier process of this node (KIP-903).
        """
        ...
