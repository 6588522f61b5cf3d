"""Input and output of a controller command (docs/design.md, rule 3). Pure."""

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
    """The time, the next offset and random ids, which a command may not read for itself."""

    now_ms: float
    """Monotonic time in milliseconds."""
    next_offset: int
    """Offset that the first of the decision's records will have."""
    new_uuid: Callable[[], bytes]


class ControllerState(msgspec.Struct, frozen=True):
    """The state that commands read. No command writes it."""

    image: MetadataImage
    """The image with every appended record, committed or not: a command sees the effects of all commands
    before it.
    """
    config: BrokerConfig
    """The manifest's values. Values set at run time are in the image."""
    features: Mapping[str, Feature]
    """Features that this build supports, by name."""
    sessions: BrokerSessions
