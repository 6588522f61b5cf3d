"""Input and output of a controller command (docs/design.md, rule 3), and the check of the broker that sends one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.sessions import BrokerSessions
from blumfeld.spi.cluster import BrokerImage
from blumfeld.spi.hooks import Feature
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message


class ControllerDecision(msgspec.Struct, frozen=True):
    """Append ``records``, then answer ``response`` when they are committed.

    A decision over many partitions is made in parts, a part in each turn, with other commands between them. Each part
    but the last has ``rest``. The driver appends the records of the part, calls ``rest`` in a later turn, and answers
    with the response of the last part. ``rest`` decides on the image as it is then, so each part must be right by
    itself: if the controller dies between two parts, the next one must come to the same end from what is there.
    """

    records: list[Message]
    response: Message
    atomic: bool = True
    """All records count, or none. If they take several batches, those are one metadata transaction (KIP-868). Otherwise
    each batch counts once it is committed. In both cases no other command is decided on between the batches.
    """
    rest: Callable[[ControllerState, Moment], ControllerDecision] | None = None
    """Decides on the next part; ``None`` for the last one."""


class Moment(msgspec.Struct, frozen=True):
    """The times, the next offset and chance, which a command may not read for itself."""

    now_ms: float
    """Monotonic time in milliseconds."""
    wall_ms: int
    """Milliseconds since the epoch."""
    next_offset: int
    """Offset that the first of the decision's records will have."""
    new_uuid: Callable[[], bytes]
    new_secret: Callable[[int], bytes]
    """``Runtime.secrets``."""


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


def broker_of_epoch(state: ControllerState, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Returns the broker if the request comes from its present process.

    :raises BrokerError: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH
    """
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {broker_id} is registered")
    if broker.epoch != broker_epoch:
        raise BrokerError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {broker.epoch}, not {broker_epoch}"
        )
    return broker
