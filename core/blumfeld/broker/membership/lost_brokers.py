"""Brokers whose process is gone, while the image still shows them alive (ADR 0033).

A client that loses its connection to a leader asks for metadata at once. The controller needs a commit to fence the
leader's broker, so the answer would name the dead leader, and many clients wait a second before they ask again. So
Metadata waits for the fencing, for ``HOLD_MS`` at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.spi.cluster import BrokerImage, ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.runtime import Timer
from blumfeld.spi.transport import Limits

HOLD_MS = 500
"""Longest wait for the fencing of a broker: time to elect a controller that died with it, and to commit."""


class LostBrokers:
    """Looks at a broker's port when a connection to it ends. The broker is lost until the look is over, and longer if
    the port refuses: until the image shows it fenced, ``HOLD_MS`` at most.
    """

    def __init__(self, composition: Composition) -> None:
        self._composition = composition
        self._runtime = composition.runtime
        self._subscribed = False
        self._stopped = False
        self._lost: dict[int, BrokerImage] = {}
        self._timers: dict[int, Timer] = {}
        self._waiting: list[tuple[frozenset[int], Completion[None]]] = []

    def connection_lost(self, broker_id: int, listener: str) -> None:
        """A connection of this node to a broker's listener ended."""
        broker = self._composition.metadata.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id in self._lost or self._stopped:
            return
        # Lost at once: the clients of that broker ask for metadata in the same moment.
        self._lost[broker_id] = broker
        self._timers[broker_id] = self._runtime.call_later(HOLD_MS, lambda: self._forget(broker_id))
        self._runtime.spawn(self._look(broker, listener), f"look for broker {broker_id}")

    async def _look(self, broker: BrokerImage, listener: str) -> None:
        if not await self._refuses(broker, listener):
            self._forget(broker.broker_id)
        elif not self._subscribed:
            self._subscribed = True
            self._composition.metadata.subscribe(self._changed)

    async def _refuses(self, broker: BrokerImage, listener: str) -> bool:
        endpoint = broker.endpoint(listener)
        # This task may begin after a stop, which ended the transport, too.
        if endpoint is None or self._stopped:
            return False
        try:
            dialed = await self._composition.transport.dial(
                endpoint.host, endpoint.port, Silent(), Limits(idle_ms_max=-1)
            )
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        dialed.close()
        return False

    def settled(self, brokers: Iterable[int]) -> Completion[None] | None:
        """Returns a completion for the time when none of these brokers is lost; ``None`` if none is now."""
        if not self._lost:
            return None
        lost = self._lost.keys() & frozenset(brokers)
        if not lost:
            return None
        settled: Completion[None] = Completion()
        self._waiting.append((frozenset(lost), settled))
        return settled

    def stop(self) -> None:
        """Let everything that waits go on."""
        self._stopped = True
        for one in list(self._lost):
            self._forget(one)

    def _changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        for broker in list(self._lost.values()):
            now = image.brokers.get(broker.broker_id)
            if now is None or now.fenced or now.epoch != broker.epoch:
                self._forget(broker.broker_id)

    def _forget(self, broker_id: int) -> None:
        if self._lost.pop(broker_id, None) is None:
            return
        self._timers.pop(broker_id).cancel()
        waiting, self._waiting = self._waiting, []
        for brokers, settled in waiting:
            if self._lost.keys() & brokers:
                self._waiting.append((brokers, settled))
            else:
                settled.complete(None)


class Silent:
    """Receives from a connection that only shows that a port is open. Implements ``FrameReceiver``."""

    def frame(self, frame: memoryview) -> None:
        """Nothing was asked, so nothing is answered."""

    def lost(self, reason: str) -> None:
        """The connection has gone."""
