"""Requests to other nodes: implements ``spi.peers.PeerClient`` on the node's own transport.

One connection for each (host, port), opened when it is first needed; answers come in the order of the requests.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Timer
from blumfeld.spi.transport import DialedConnection, Limits
from blumfeld.wire.api import response_class
from blumfeld.wire.codec import decode, encode_parts
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.spi.hooks import Composition


class TransportPeerClient:
    """All connections of this node to others."""

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self._peers: dict[tuple[str, int], Peer] = {}
        self._stopped = False

    def send(
        self, host: str, port: int, request: Message, version: int, timeout_ms: float
    ) -> Completion[Message]:
        """Send a request; completes with the response decoded at the same version."""
        sent = Sent(request, version)
        if self._stopped:
            sent.fail(OSError("this node is stopping"))
            return sent.answer
        peer = self._peers.get((host, port))
        if peer is None:
            peer = self._peers[host, port] = Peer(self, host, port)
            self._composition.runtime.spawn(peer.dial(self._composition), f"dial {host}:{port}")
        sent.timer = self._composition.runtime.call_later(timeout_ms, sent.expire)
        peer.send(sent, f"broker-{self._composition.node_id}")
        return sent.answer

    def gone(self, peer: Peer) -> None:
        """Its connection is lost: the next request dials again."""
        if self._peers.get((peer.host, peer.port)) is peer:
            del self._peers[peer.host, peer.port]

    async def stop(self) -> None:
        """Close every connection; what is open fails with ``OSError``."""
        self._stopped = True
        for peer in list(self._peers.values()):
            peer.close()


class Sent:
    """One request on its way."""

    def __init__(self, request: Message, version: int) -> None:
        self.request = request
        self.version = version
        self.answer: Completion[Message] = Completion()
        self.timer: Timer | None = None

    def fail(self, error: Exception) -> None:
        """There will be no answer."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.answer.done:
            self.answer.fail(error)

    def expire(self) -> None:
        """The answer, if it still comes, is dropped."""
        self.fail(TimeoutError("the other node did not answer in time"))

    def answered(self, frame: memoryview) -> None:
        """Its answer. Raises DecodeError."""
        key = self.request.meta.key
        assert key is not None
        _, position = response_body_offset(frame, key, self.version)
        message = decode(response_class(key), bytes(frame[position:]), self.version)
        if self.timer is not None:
            self.timer.cancel()
        if not self.answer.done:
            self.answer.complete(message)


class Peer:
    """One connection; implements ``FrameReceiver``."""

    def __init__(self, client: TransportPeerClient, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._client = client
        self._connection: DialedConnection | None = None
        self._unsent: list[tuple[Sent, str]] = []
        self._in_flight: deque[Sent] = deque()
        self._correlation_id = 0
        self._lost = False

    async def dial(self, composition: Composition) -> None:
        """Connect, then send what came meanwhile."""
        try:
            self._connection = await composition.transport.dial(self.host, self.port, self, Limits())
        except OSError as error:
            self.lost(str(error))
            return
        if self._lost:
            self._connection.close()
            return
        unsent, self._unsent = self._unsent, []
        for sent, client_id in unsent:
            self.send(sent, client_id)

    def send(self, sent: Sent, client_id: str) -> None:
        """Send it, now or when the connection is there."""
        if self._connection is None:
            self._unsent.append((sent, client_id))
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        key = sent.request.meta.key
        assert key is not None
        header = put_request_header(key, sent.version, self._correlation_id, client_id)
        self._in_flight.append(sent)
        self._connection.send(encode_parts(sent.request, sent.version, header))  # type: ignore[arg-type]

    def frame(self, frame: memoryview) -> None:
        """As ``FrameReceiver.frame``."""
        if not self._in_flight:
            self.close()
            return
        try:
            self._in_flight[0].answered(frame)
        except DecodeError as error:
            self.lost(f"unreadable answer: {error}")
            self.close()
            return
        self._in_flight.popleft()

    def lost(self, reason: str) -> None:
        """As ``FrameReceiver.lost``."""
        if self._lost:
            return
        self._lost = True
        self._client.gone(self)
        error = ConnectionError(f"{self.host}:{self.port}: {reason}")
        for sent in [*self._in_flight, *(sent for sent, _ in self._unsent)]:
            sent.fail(error)
        self._in_flight.clear()
        self._unsent.clear()

    def close(self) -> None:
        """Close; what is open fails."""
        self.lost("closed")
        if self._connection is not None:
            self._connection.close()
