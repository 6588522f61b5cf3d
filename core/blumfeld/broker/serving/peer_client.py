"""Requests to other nodes: implements ``spi.peers.PeerClient`` on the node's own transport.

One connection for each (host, port), opened when it is first needed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from blumfeld.client.dialed import DialedClient
from blumfeld.spi.completion import Completion
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.spi.hooks import Composition

Address = tuple[str, int]


class TransportPeerClient:
    """All connections from this node to others."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self._peers: dict[Address, DialedClient] = {}
        self._stopped = False

    def send(
        self, host: str, port: int, request: Message, version: int, timeout_ms: float
    ) -> Completion[Message]:
        """Send a request. Completes with the response, decoded at the same version.

        Fails with ``OSError`` if there is no connection, and ``TimeoutError`` after ``timeout_ms``.
        """
        answer: Completion[Message] = Completion()
        if self._stopped:
            answer.fail(OSError("this node is stopping"))
            return answer
        timer = self._composition.runtime.call_later(timeout_ms, partial(_expire, answer))
        answer.when_done(lambda _: timer.cancel())
        self._peer((host, port)).send(request, version, answer)
        return answer

    def _peer(self, address: Address) -> DialedClient:
        peer = self._peers.get(address)
        if peer is None:
            host, port = address
            client_id = f"broker-{self._composition.node_id}"
            peer = DialedClient(client_id, f"{host}:{port}", partial(self._gone, address))
            self._peers[address] = peer
            dialing = peer.dial(self._composition.transport, host, port)
            self._composition.runtime.spawn(dialing, f"dial {host}:{port}")
        return peer

    def _gone(self, address: Address, peer: DialedClient) -> None:
        """Forget a closed connection, so that the next request to this address dials again."""
        if self._peers.get(address) is peer:
            del self._peers[address]

    async def stop(self) -> None:
        """Close every connection. Requests without an answer fail with ``OSError``."""
        self._stopped = True
        for peer in list(self._peers.values()):
            peer.close()


def _expire(answer: Completion[Message]) -> None:
    # Only the caller stops waiting. The connection still expects the late answer, reads it and drops it: answers come
    # in the order of the requests.
    if not answer.done:
        answer.fail(TimeoutError("the other node did not answer in time"))
