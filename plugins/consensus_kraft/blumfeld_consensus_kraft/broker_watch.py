"""Notices at once that a broker's process is dead (ADR 0033). Kafka waits for the end of its session, nine seconds.

Each voter keeps a connection to a listener of each unfenced broker, and sends nothing over it. A process that ends
takes its connections with it. If the listener then refuses another one, no process is there. Only a refusal counts: a
dial that fails otherwise says nothing about the process. And a refusal counts only if the listener was known to be
open before the dial: it accepted a connection, or the broker sent a heartbeat although it was unfenced.

Only the controller reports. The other voters watch because the node that dies may be the controller's own: the next
controller never reached it as a broker, if it begins to watch then.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.spi.cluster import BrokerImage, ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.runtime import Task
from blumfeld.spi.transport import DialedConnection, Limits

RETRY_MS = 100
"""Pause after a dial that failed. A broker opens its listeners shortly after it is unfenced."""


class Watched:
    """One registration of a broker. Implements ``FrameReceiver``."""

    def __init__(self, broker: BrokerImage) -> None:
        self.broker_id = broker.broker_id
        self.epoch = broker.epoch
        self.endpoint = broker.endpoints[0]
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
        self.connection: DialedConnection | None = None
        self.gone: Completion[None] = Completion()
        self.pause: Completion[None] = Completion()
        """Ends when the next dial is due."""

    def frame(self, frame: memoryview) -> None:
        """Nothing was asked, so nothing is answered."""

    def lost(self, reason: str) -> None:
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
                watched = self._watched[broker.broker_id] = Watched(broker)
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

    async def _watch(self, watched: Watched) -> None:
        while True:
            watched.gone = Completion()
            was_open = watched.was_reached
            try:
                watched.connection = await self._composition.transport.dial(
                    watched.endpoint.host, watched.endpoint.port, watched, Limits(idle_ms_max=-1)
                )
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
                await watched.gone
                watched.connection = None
                continue
            await self._pause(watched)

    def _report(self, watched: Watched) -> None:
        if not watched.told:
            watched.told = True
            self._dead(watched.broker_id, watched.epoch)

    async def _pause(self, watched: Watched) -> None:
        over = watched.pause = Completion()
        timer = self._runtime.call_later(RETRY_MS, watched.end_pause)
        await over
        timer.cancel()
