"""One step of the controller's image, as the tree and the brokers are told of it."""

from __future__ import annotations

import msgspec

from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.wire.schema import Message


class PartitionStep(msgspec.Struct, frozen=True, gc=False):
    """One partition before and after a step."""

    topic: str
    topic_id: bytes
    before: PartitionImage | None
    """``None``: it is new."""
    after: PartitionImage | None
    """``None``: its topic is being deleted."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one step changed. All tuples are in a fixed order; values are frozen, so it may be kept."""

    topics_created: tuple[TopicImage, ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    partitions: tuple[PartitionStep, ...] = ()
    """New, changed and removed ones."""
    brokers: tuple[int, ...] = ()
    """Brokers that came, went or changed."""
    configs: tuple[tuple[int, str], ...] = ()
    """(resource type, name), as ``ImageDelta.configs_changed``."""
    records: tuple[Message, ...] = ()
    """The records of the step that the image's parts above don't show: producer ids, feature levels, kept records."""
