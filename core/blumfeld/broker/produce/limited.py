"""The straight way of Produce in a build with quotas.

A client without a quota takes it, and one that stays within its quotas. A request beyond them takes the general way,
which has the answer as a message and can say the wait in it.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.straight import OneCommitted, OneWritten, StraightProduce
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.broker.serving.request import ConnectionState, client_id_of
from blumfeld.spi.transport import Exchange
from blumfeld.wire.primitives import DecodeError


class LimitedProduce(StraightProduce):
    """Serves Produce of one version, and counts it for the client's quotas."""

    def __init__(self, ports: Ports, dispatcher: Dispatcher, general: Route) -> None:
        super().__init__(ports, dispatcher, general)
        assert ports.quotas is not None
        self.quotas = ports.quotas
        self.counted: tuple[str, str] | None = None
        """(user, client id) of the request that is being served; ``None`` if it counts for no quota."""
        self.now_ms = dispatcher.monotonic_ms
        self.began_ms = 0.0
        """The time when a request that counts began."""
        self._waiters = (LimitedWritten, LimitedCommitted)

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """As ``Serve.serve``."""
        state: ConnectionState = exchange.connection.state
        try:
            client_id = client_id_of(frame, state)
        except DecodeError:
            self.general.serve(exchange, frame, position, correlation_id)
            return
        self.counted = None
        user = state.principal.name
        if self.quotas.limits_produce(user, client_id):
            self.counted = user, client_id
            self.began_ms = now_ms = self.now_ms()
            if not self.quotas.may_produce(user, client_id, len(frame), now_ms):
                self.general.serve(exchange, frame, position, correlation_id)
                return
        super().serve(exchange, frame, position, correlation_id)

    def count(self, frame_bytes: int) -> None:
        """Count the request that is being served."""
        if self.counted is not None:
            now_ms = self.now_ms()
            self.quotas.busy(*self.counted, now_ms - self.began_ms, now_ms)
            self.quotas.produced(*self.counted, frame_bytes, now_ms)


class LimitedWritten(OneWritten):
    """A request with acks=0 or acks=1 that counts for quotas."""

    __slots__ = ()

    way: LimitedProduce

    def placed(self) -> None:
        """As ``OneWritten.placed``. A request that is not placed takes the general way, which counts it."""
        super().placed()
        self.way.count(self.frame_bytes)


class LimitedCommitted(LimitedWritten, OneCommitted):
    """A request with acks=all that counts for quotas."""

    __slots__ = ()
