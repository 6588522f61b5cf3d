"""The subscription in a classic consumer's metadata. The broker reads it for protocol type ``consumer`` only
(Kafka's ``ConsumerProtocol``).
"""

from __future__ import annotations

from blumfeld.wire.codec import decode_from
from blumfeld.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from blumfeld.wire.primitives import DecodeError

VERSION_MAX = 3


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics of a ConsumerProtocolSubscription; ``None`` if the bytes are not one. A newer version is
    read as the newest known.
    """
    if len(metadata) < 2:
        return None
    version = int.from_bytes(metadata[:2], signed=True)
    if version < 0:
        return None
    try:
        subscription, _ = decode_from(ConsumerProtocolSubscription, metadata, min(version, VERSION_MAX), 2)
    except DecodeError:
        return None
    return tuple(subscription.topics)
