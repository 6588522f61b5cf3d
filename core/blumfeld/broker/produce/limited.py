"""The straight way of Produce in a build with quotas.

A client without a quota takes it, and one that stays within its quotas. A request beyond them takes the general way,
which has the answer as a message and can say the wait in it.
"""

from __future__ import annotations

from blumfeld.broker.ports import Ports
from blumfeld.broker.produce.straight import OneCommitted, OneWritten, StraightProduce
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.broker.serving.request import ConnectionState, client_id_of, client_id_place
from blumfeld.spi.transport import Exchange
from blumfeld.wire.primitives import DecodeError


class LimitedProduce:
    """Serves Produce of one version: implements ``dispatch.Serve`` in front of two straight ways."""

    def __init__(self, ports: Ports, dispatcher: Dispatcher, general: Route) -> None:
        assert ports.quotas is not None
        self.flexible = general.flexible
        self._quotas = ports.quotas
        self._general = general
        self._now_ms = dispatcher.monotonic_ms
        self._free = StraightProduce(ports, dispatcher, general).serve
        counted = StraightProduce(ports, dispatcher, general)
        counted.waiters = (self._waiter(OneWritten), self._waiter(OneCommitted))
        self._counted = counted.serve
        self._client = ("", "")
        """(user, client id) of the request that is being served, if it counts for a quota. A request is counted before
        the next one is served, so the batches that wait needn't carry this."""
        self._began_ms = 0.0
        """The time when that began."""

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """As ``Serve.serve``."""
        state: ConnectionState = exchange.connection.state
        # A connection may carry requests of several client ids. To compare a memoryview takes longer than to copy it.
        if (
            state.unlimited == self._quotas.generation
            and frame[state.unlimited_at].tobytes() == state.unlimited_id
        ):
            serve = self._free
            serve(exchange, frame, position, correlation_id)
            return
        self._look_up(state, exchange, frame, position, correlation_id)

    def _look_up(
        self,
        state: ConnectionState,
        exchange: Exchange,
        frame: memoryview,
        position: int,
        correlation_id: int,
    ) -> None:
        """Serve a request of which it isn't known whether it counts for a quota."""
        try:
            client_id = client_id_of(frame, state)
        except DecodeError:
            self._general.serve(exchange, frame, position, correlation_id)
            return
        user = state.principal.name
        generation = self._quotas.generation
        if not self._quotas.limits_produce(user, client_id):
            state.unlimited_at = place = client_id_place(frame)
            state.unlimited_id = frame[place].tobytes()
            state.unlimited = generation
            self._free(exchange, frame, position, correlation_id)
            return
        self._client = user, client_id
        self._began_ms = now_ms = self._now_ms()
        within = self._quotas.may_produce(user, client_id, len(frame), now_ms)
        serve = self._counted if within else self._general.serve
        serve(exchange, frame, position, correlation_id)

    def _waiter(self, base: type[OneWritten]) -> type[OneWritten]:
        """Returns what waits for a batch as ``base`` does, and counts the request once its batch has its place. A
        request that isn't placed takes the general way, which counts it."""
        count = self._count

        class Counted(base):  # type: ignore[misc, valid-type]
            __slots__ = ()

            def placed(self) -> None:
                """As ``OneWritten.placed``."""
                count(self.frame_bytes)  # first: the next request may start then, and be another client's
                super().placed()

        return Counted

    def _count(self, frame_bytes: int) -> None:
        now_ms = self._now_ms()
        self._quotas.busy(*self._client, now_ms - self._began_ms, now_ms)
        self._quotas.produced(*self._client, frame_bytes, now_ms)
