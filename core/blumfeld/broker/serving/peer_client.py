"""Requests to other nodes: implements ``spi.peers.PeerClient`` on the node's own transport.

One connection for each (node, listener, purpose), opened when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import Endpoints, PeerChannel, RawAnswer
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.client.channel import Channel
    from blumfeld.spi.cluster import Endpoint
    from blumfeld.spi.hooks import Composition

Key = tuple[int, str, str]


class ImageEndpoints:
    """Broker listeners, as the cluster's image shows them. Implements ``Endpoints``."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """As ``Endpoints.endpoint``; a fenced broker can be reached, too."""
        broker = self._composition.metadata.image.brokers.get(node_id)
        return None if broker is None else broker.endpoint(listener)


class TransportPeerClient:
    """All connections from this node to others.

    :param lost: is told a broker and the name of its listener when it ended an open connection
    """

    def __init__(
        self,
        composition: Composition,
        lost: Callable[[int, str], None] | None = None,
    ) -> None:
        self._composition = composition
        self._lost = lost
        self._image = ImageEndpoints(composition)
        self._channels: dict[Key, Channel] = {}
        self._stopped = False

    def channel(
        self, node_id: int, listener: str, purpose: str, endpoints: Endpoints | None = None
    ) -> PeerChannel:
        """As ``PeerClient.channel``."""
        if self._stopped:
            return StoppedChannel()
        key = (node_id, listener, purpose)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._made(key, self._image if endpoints is None else endpoints)
        return channel

    def _made(self, key: Key, endpoints: Endpoints) -> Channel:
        # Imported here: a node alone asks nobody.
        from blumfeld.client.channel import Channel, ChannelSettings

        composition, (node_id, listener, purpose) = self._composition, key
        lost = None
        if self._lost is not None and endpoints is self._image:
            lost = partial(self._lost, node_id, listener)
        return Channel(
            composition.runtime,
            composition.transport,
            lambda: endpoints.endpoint(node_id, listener),
            f"{purpose} at node {node_id} ({listener})",
            ChannelSettings(
                client_id=f"broker-{composition.node_id}-{purpose}",
                connect_timeout_ms=composition.config.int("socket.connection.setup.timeout.ms"),
                idle_ms=composition.config.int("connections.max.idle.ms"),
            ),
            None if composition.security is None else composition.security.peer(listener),
            lost,
        )

    async def stop(self) -> None:
        """Close every channel. Requests without an answer fail with ``OSError``."""
        self._stopped = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.stop()


class StoppedChannel:
    """A channel of a node that is stopping."""

    def send(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[Message]:
        """Fail with ``OSError``."""
        return _stopping()

    def send_raw(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[RawAnswer]:
        """Fail with ``OSError``."""
        return _stopping()

    def close(self) -> None:
        """Do nothing."""


def _stopping() -> Completion:  # type: ignore[type-arg]
    answer: Completion[Message] = Completion()
    answer.fail(OSError("this node is stopping"))
    return answer
