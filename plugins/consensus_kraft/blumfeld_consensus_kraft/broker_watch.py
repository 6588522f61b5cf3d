"""Notices at once that a broker's process is dead (ADR 0033). Kafka waits for the end of its session, nine seconds.

Each voter keeps a connection to a listener of each unfenced broker: the one by which brokers dial each other, if this
node knows it. It logs in there, for a silent connection would be closed, and then sends nothing. A process that ends
takes its connections with it. If the listener then refuses another one, no process is there. Only a refusal counts: a
dial that fails otherwise says nothing about the process. And a refusal counts only if the listener was known to be
open before the dial: it accepted a connection, or the broker sent a heartbeat although it was unfenced.

Only the controller reports. The other voters watch because the node that dies may be the controller's own: the next
controller never reached it as a broker, if it begins to watch then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from blumfeld.spi.cluster import BrokerImage, ClusterImage, Endpoint, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, CompositionRefused
from blumfeld.spi.runtime import Task
from blumfeld.wire.messages.api_versions import ApiVersionsRequest
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.client.dialed_client import DialedClient
    from blumfeld.spi.security import PeerSecurity

PLAINTEXT = "PLAINTEXT"

RETRY_MS = 100
"""Pause after a dial that failed. A broker opens its listeners shortly after it is unfenced."""
LOGIN_RETRY_MS = 5_000
"""Pause after a login that failed: too many of them would shut this node's address out."""


class Watched:
    """One registration of a broker, at one of its endpoints."""

    def __init__(self, broker: BrokerImage, endpoint: Endpoint) -> None:
        self.broker_id = broker.broker_id
        self.epoch = broker.epoch
        self.endpoint = endpoint
        self.is_fenced = broker.fenced
        self.was_reached = False
        """Whether its listener was open since it last refused: it accepted a connection, or the broker said so. Without
        this a refusal says nothing.
        """
        self.refused = False
        """It refused a connection after it was reached, and accepted none since."""
        self.told = False
        """It was reported as dead, and the image hasn't shown it fenced."""
        self.was_fenced = False
        """The image showed it fenced after a refusal."""
        self.lives = False
        """It refused, was fenced, and came back in the same epoch: its address refuses although it lives."""
        self.task: Task | None = None
        self.connection: DialedClient | None = None
        self.gone: Completion[None] = Completion()
        self.pause: Completion[None] = Completion()
        """Ends when the next dial is due."""

    def lost(self, _: DialedClient) -> None:
        """The connection has gone."""
        if not self.gone.done:
            self.gone.complete(None)

    def end_pause(self) -> None:
        """Dial now, if it isn't being dialed."""
        if not self.pause.done:
            self.pause.complete(None)

    def seen(self, broker: BrokerImage) -> None:
        """Take note of what the image shows of this registration."""
        self.is_fenced = broker.fenced
        if broker.fenced:
            self.was_fenced = self.was_fenced or self.told or self.refused
            self.told = self.refused = False
        elif self.was_fenced:
            self.lives = True

    def stop(self) -> None:
        """Watch no longer."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class BrokerWatch:
    """Watches the unfenced brokers other than this node's own until ``stop``, and reports while it is told to.

    :param dead: is told a broker's id and epoch when its process is gone, once for each time that it was reached
    """

    def __init__(self, composition: Composition, dead: Callable[[int, int], None]) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._own_id = composition.node_id
        self._between_brokers = str(composition.config.get("inter.broker.listener.name") or "")
        self._dead = dead
        self._reports = False
        self._stopped = False
        self._watched: dict[int, Watched] = {}

    def report(self) -> None:
        """Report from now on. This node is the controller, and also reports the brokers that refused before."""
        self._reports = True
        for watched in list(self._watched.values()):
            if watched.refused and not watched.is_fenced:
                self._report(watched)

    def report_no_more(self) -> None:
        """Only watch. Another node is the controller."""
        self._reports = False
        for watched in self._watched.values():
            watched.told = False

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Watch the brokers of a newer image. An ``ImageListener``."""
        if not self._stopped and (delta.brokers_changed or delta.first):
            self._follow(image)

    def heard(self, broker_id: int, broker_epoch: int) -> None:
        """The controller took a heartbeat of this registration, which didn't ask to be fenced. If the image shows the
        broker unfenced, its listeners are open: a broker opens them once it sees itself unfenced, and then sends a
        heartbeat at once. Kafka's opens them before, and sends its next heartbeat two seconds later.

        So a process that died before its listener could be dialed is noticed, too.
        """
        watched = self._watched.get(broker_id)
        if watched is None or watched.epoch != broker_epoch or watched.is_fenced:
            return
        watched.was_reached = True
        watched.end_pause()

    def _follow(self, image: ClusterImage) -> None:
        for broker_id in [watched_id for watched_id in self._watched if watched_id not in image.brokers]:
            self._watched.pop(broker_id).stop()
        for broker in image.brokers.values():
            if broker.broker_id == self._own_id or not broker.endpoints:
                continue
            watched = self._watched.get(broker.broker_id)
            if watched is None or watched.epoch != broker.epoch:
                if watched is not None:
                    watched.stop()
                watched = self._watched[broker.broker_id] = Watched(broker, self._endpoint_of(broker))
            watched.seen(broker)
            if watched.is_fenced or watched.lives:
                watched.stop()
            elif watched.task is None:
                watched.task = self._runtime.spawn(self._watch(watched), f"watch broker {broker.broker_id}")

    def stop(self) -> None:
        """Watch nothing any more."""
        self._stopped = True
        watched, self._watched = self._watched, {}
        for watch in watched.values():
            watch.stop()

    def _endpoint_of(self, broker: BrokerImage) -> Endpoint:
        known = broker.endpoint(self._between_brokers)
        return broker.endpoints[0] if known is None else known

    async def _watch(self, watched: Watched) -> None:
        peer = self._login_at(watched.endpoint)
        while True:
            was_open = watched.was_reached
            try:
                client = await self._dialled(watched, peer)
            except ConnectionRefusedError:
                if watched.was_reached and not was_open:
                    continue  # the listener was opened while its machine's refusal was on its way
                if was_open:
                    watched.was_reached = False
                    watched.refused = True
                    if self._reports:
                        self._report(watched)
            except OSError:
                pass
            else:
                watched.was_reached = True
                watched.refused = False
                if peer is not None and not await _logged_in(client, peer):
                    client.close()
                    await self._pause(watched, LOGIN_RETRY_MS)
                    continue
                await watched.gone
                continue
            await self._pause(watched, RETRY_MS)

    def _login_at(self, endpoint: Endpoint) -> PeerSecurity | None:
        """Returns the login at an endpoint; ``None`` where it wants none, or this node has none for it."""
        security = self._composition.security
        if security is None or endpoint.security_protocol == PLAINTEXT:
            return None
        try:
            return security.peer(endpoint.listener)
        except CompositionRefused:
            return None

    async def _dialled(self, watched: Watched, peer: PeerSecurity | None) -> DialedClient:
        from blumfeld.client.dialed_client import DialedClient  # not for a node alone

        host, port = watched.endpoint.host, watched.endpoint.port
        watched.gone = Completion()
        about = f"watch of broker {watched.broker_id}"
        client = watched.connection = DialedClient(f"broker-{self._own_id}-watch", about, watched.lost)
        await client.dial(
            self._composition.transport, host, port, None if peer is None else peer.byte_layer(host)
        )
        if watched.gone.done:
            raise client.lost_kind(client.lost_reason)
        return client

    def _report(self, watched: Watched) -> None:
        if not watched.told:
            watched.told = True
            self._dead(watched.broker_id, watched.epoch)

    async def _pause(self, watched: Watched, pause_ms: float) -> None:
        over = watched.pause = Completion()
        timer = self._runtime.call_later(pause_ms, watched.end_pause)
        await over
        timer.cancel()


async def _logged_in(client: DialedClient, peer: PeerSecurity) -> bool:
    """Whether the login came through. TLS begins with the first request, so there is one."""
    answer: Completion[Message] = Completion()
    try:
        await peer.authenticate(client)
        client.send(ApiVersionsRequest(), 0, answer)
        await answer
    except OSError:
        return False
    return True
