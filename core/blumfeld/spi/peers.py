"""Requests to other nodes: a client of the wire protocol for plug-ins, on the node's own transport."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.wire.schema import Message


class RawAnswer(NamedTuple):
    """An answer that was not decoded."""

    body: memoryview
    """The response without its header. It stays unchanged until the end of this turn's Phase.WRITE, and may be written
    to a log without a copy."""
    version: int
    """Version of the API in which the other node answered."""


class Endpoints(Protocol):
    """The source of the nodes' addresses: the cluster's image, a voter set, or a list of bootstrap servers."""

    def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
        """Returns where the node can be reached on this listener now; ``None`` if that isn't known."""
        ...


class PeerChannel(Protocol):
    """Requests to one node for one purpose, over one pipelined connection.

    The connection is opened when it is needed, and negotiates versions first (KIP-35). Requests are sent and answered
    in the order of the calls. Nothing is sent twice: after a failure the caller decides.
    """

    def send(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[Message]:
        """Send a request in the highest version that both nodes and ``version_max`` allow.

        Completes with the response, which is a copy. Fails with ``OSError``: there is no endpoint, the connection
        failed or was lost, or the node broke the protocol; ``ConnectionRefusedError`` where no process listens at the
        address; ``TimeoutError``; or ``BrokerError`` UNSUPPORTED_VERSION.
        A request that was sent and has no answer in time closes the connection, because the late answer would hold up
        all answers behind it; the other requests on it fail with ``OSError``.
        """
        ...

    def send_raw(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[RawAnswer]:
        """Send as :meth:`send`, and complete with the answer's bytes, within the turn in which they arrived."""
        ...

    def close(self) -> None:
        """Close the connection; what waits fails with ``OSError``. The next request opens another one."""
        ...


class PeerClient(Protocol):
    """Channels to other nodes."""

    def channel(
        self, node_id: int, listener: str, purpose: str, endpoints: Endpoints | None = None
    ) -> PeerChannel:
        """Returns the channel to a node's listener for a purpose, always the same one. Each purpose has a connection of
        its own, so that a fetch that waits at the other node delays no vote.

        :param endpoints: resolves the node; ``None``: the cluster's image. The first caller's counts
        """
        ...

    async def stop(self) -> None:
        """Close every channel; what waits fails with ``OSError``, and so does what is sent later."""
        ...
