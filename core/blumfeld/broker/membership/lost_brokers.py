"""Brokers whose process is gone: before the image shows it, and shortly after (ADR 0033).

A client that loses its connection to a leader asks for metadata at once. The controller needs a commit to fence the
leader's broker, so the answer would name the dead leader, and many clients wait a second before they ask again. So
Metadata waits for the fencing, for ``HOLD_MS`` at most. After that it names no leader, which makes clients ask again
soon.

The answer with the new leader still lists the broker that has just been fenced. librdkafka (2.16) gives up a broker
that isn't listed any more, and with it the partitions that moved away from it in the same answer: in half of the cases
it looks for their leader again a second later.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.cluster import BrokerImage, ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.runtime import Timer
from blumfeld.spi.transport import DialedConnection, Limits

HOLD_MS = 500
"""Longest wait for the fencing of a broker: time to elect a controller that died with it, and to commit."""
UNNAMED_MS = 3_000
"""Longest time without the name of a leader whose port refuses. The image has the last word: this node may be the only
one that a firewall refuses."""
LISTED_MS = 2_000
"""Time for which a broker is listed after it was fenced. A client that lost it asks within a second."""
LIVES_MS = 50
"""A port that accepts a connection and keeps it so long has a process. One that is dying accepts some until it is
gone."""


class LostBroker:
    """A broker to which a connection ended. Implements ``FrameReceiver`` for the look at its port."""

    def __init__(self, broker: BrokerImage) -> None:
        self.broker = broker
        self.is_waited_for = True
        self.refuses = False
        """Its port refused a connection."""
        self.timer: Timer | None = None
        self.ended: Completion[None] = Completion()
        """The connection that the look opened has ended, or was open for long enough."""
        self.accepted = False
        """It was open for long enough."""

    def frame(self, frame: memoryview) -> None:
        """Nothing was asked, so nothing is answered."""

    def lost(self, reason: str) -> None:
        """The connection has gone."""
        if not self.ended.done:
            self.ended.complete(None)

    def lives(self) -> None:
        """The connection stayed open."""
        if not self.ended.done:
            self.accepted = True
            self.ended.complete(None)


class LostBrokers:
    """Looks at a broker's port when a connection to it ends. The broker is lost until the look is over, and longer if
    the port refuses: until the image shows it fenced, ``UNNAMED_MS`` at most.
    """

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._stopped = False
        self._lost: dict[int, LostBroker] = {}
        self._waiting: list[tuple[frozenset[int], Completion[None]]] = []
        self._live = frozenset[int]()
        self._fenced_ms: dict[int, float] = {}
        """Broker → the time at which the image showed it fenced, after it had been live."""

    def start(self) -> None:
        """Follow the image from now on. What must be opened for a step of it is under way by the time of this."""
        self._composition.metadata.subscribe(self._changed)

    def connection_lost(self, broker_id: int, listener: str) -> None:
        """A connection of this node to a broker's listener ended."""
        broker = self._composition.metadata.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id in self._lost or self._stopped:
            return
        # Lost at once: the clients of that broker ask for metadata in the same moment.
        lost = self._lost[broker_id] = LostBroker(broker)
        lost.timer = self._runtime.call_later(HOLD_MS, lambda: self._wait_no_longer(lost))
        self._runtime.spawn(self._look(lost, listener), f"look for broker {broker_id}")

    async def _look(self, lost: LostBroker, listener: str) -> None:
        endpoint = lost.broker.endpoint(listener)
        # This task may begin after a stop, which ended the transport, too.
        while endpoint is not None and self._lost.get(lost.broker.broker_id) is lost:
            lost.ended = Completion()
            try:
                dialed = await self._composition.transport.dial(
                    endpoint.host, endpoint.port, lost, Limits(idle_ms_max=-1)
                )
            except ConnectionRefusedError:
                lost.refuses = True
                return
            except OSError:
                break
            if await self._stays(lost, dialed):
                break
        self._forget(lost)

    async def _stays(self, lost: LostBroker, dialed: DialedConnection) -> bool:
        timer = self._runtime.call_later(LIVES_MS, lost.lives)
        try:
            await lost.ended
        finally:
            timer.cancel()
            dialed.close()
        return lost.accepted

    def settled(self, brokers: Iterable[int]) -> Completion[None] | None:
        """Returns a completion for the time when none of these brokers is waited for; ``None`` if none is now."""
        if not self._lost:
            return None
        waited_for = self._waited_for() & frozenset(brokers)
        if not waited_for:
            return None
        settled: Completion[None] = Completion()
        self._waiting.append((waited_for, settled))
        return settled

    def refuses(self, broker_id: int) -> bool:
        """Whether the broker's port refused a connection, and the image doesn't show it fenced yet."""
        lost = self._lost.get(broker_id)
        return lost is not None and lost.refuses

    def just_fenced(self) -> list[BrokerImage]:
        """Returns the brokers that are fenced since less than ``LISTED_MS``."""
        if not self._fenced_ms:
            return []
        since_ms = self._runtime.monotonic_ms() - LISTED_MS
        self._fenced_ms = {
            broker_id: at_ms for broker_id, at_ms in self._fenced_ms.items() if at_ms > since_ms
        }
        brokers = self._composition.metadata.image.brokers
        return [
            broker
            for broker_id in self._fenced_ms
            if (broker := brokers.get(broker_id)) is not None and broker.fenced
        ]

    def stop(self) -> None:
        """Let everything that waits go on."""
        self._stopped = True
        for lost in list(self._lost.values()):
            self._forget(lost)

    def _changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if not (delta.first or delta.brokers_changed):
            return
        live = frozenset(broker.broker_id for broker in image.brokers.values() if not broker.fenced)
        for broker_id in self._live - live:
            self._fenced_ms[broker_id] = self._runtime.monotonic_ms()
        self._live = live
        for lost in list(self._lost.values()):
            now = image.brokers.get(lost.broker.broker_id)
            if now is None or now.fenced or now.epoch != lost.broker.epoch:
                self._forget(lost)

    def _wait_no_longer(self, lost: LostBroker) -> None:
        lost.is_waited_for = False
        lost.timer = self._runtime.call_later(UNNAMED_MS - HOLD_MS, lambda: self._forget(lost))
        self._let_go()

    def _forget(self, lost: LostBroker) -> None:
        if self._lost.get(lost.broker.broker_id) is not lost:
            return
        del self._lost[lost.broker.broker_id]
        if lost.timer is not None:
            lost.timer.cancel()
        lost.lost("nobody waits for it")
        self._let_go()

    def _waited_for(self) -> frozenset[int]:
        return frozenset(broker_id for broker_id, lost in self._lost.items() if lost.is_waited_for)

    def _let_go(self) -> None:
        waited_for = self._waited_for()
        waiting, self._waiting = self._waiting, []
        for brokers, settled in waiting:
            if waited_for & brokers:
                self._waiting.append((brokers, settled))
            else:
                settled.complete(None)
