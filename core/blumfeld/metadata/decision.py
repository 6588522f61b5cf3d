"""What a command is told and what it comes to (docs/design.md, rule 3). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.brokers.sessions import BrokerSessions
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.hooks import Feature
from blumfeld.wire.schema import Message


class ControllerDecision(msgspec.Struct, frozen=True):
    """Append ``records`` (in one batch, all or nothing), then answer ``response`` when they are committed."""

    records: list[Message]
    response: Message


class Moment(msgspec.Struct, frozen=True):
    """What a command may know of the world."""

    now_ms: float
    """Of the clock that never goes back."""
    next_offset: int
    """The offset that the first of the decision's records will have."""
    new_uuid: Callable[[], bytes]


class ControllerState(msgspec.Struct, frozen=True):
    """What every command reads, and none writes."""

    image: MetadataImage
    """Placed, not only committed: each command sees those before it."""
    config: BrokerConfig
    """The manifest's, without what was set at run time: that is in the image."""
    features: Mapping[str, Feature]
    """What this build can do, by name."""
    sessions: BrokerSessions
