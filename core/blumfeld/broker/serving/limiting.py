"""Throttles clients by the build's quotas. Only a broker with quotas makes it, so no other broker pays for it.

Produce of a client within its quotas is served by ``broker/produce/limited.py``.
"""

from __future__ import annotations

from typing import Any

from blumfeld.broker.serving.request import Request
from blumfeld.spi.completion import Steps
from blumfeld.spi.parts import Parts, size_of
from blumfeld.spi.quotas import ClientQuotas
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.transport import Connection
from blumfeld.wire.api import ApiKey
from blumfeld.wire.messages.fetch import FetchRequest

_PRODUCE, _FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
EXEMPT = frozenset(
    int(key)
    for key in (
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_PARTITION,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    )
)
"""APIs between brokers, and the login: their time counts for nobody."""


class Limiting:
    """The quotas of one node, as its dispatchers ask them."""

    def __init__(self, runtime: Runtime, quotas: ClientQuotas) -> None:
        self.quotas = quotas
        self._runtime = runtime

    def opened(self, connection: Connection) -> None:
        """Count a connection. One beyond the quota of its address is not read, and closed after its wait."""
        if connection.listener.kind != "broker" or connection.listener.inter_broker:
            return
        now_ms = self._runtime.monotonic_ms()
        waits_ms = self.quotas.connected(connection.peer_host, now_ms)
        if waits_ms:
            connection.mute(now_ms + 2 * waits_ms)
            self._runtime.call_later(
                waits_ms, lambda: connection.abort("connection_creation_rate of its address")
            )

    def timed(self, steps: Steps[None], context: Request) -> Steps[None]:
        """Returns the same steps, which count the time that they take."""
        clock = self._runtime.monotonic_ms
        context.busy_ms = 0.0
        while True:
            began_ms = clock()
            try:
                next(steps)
            except StopIteration:
                return
            context.busy_ms += clock() - began_ms
            yield None

    def answered(self, context: Request, request: Any, frame_bytes: int) -> None:
        """Count a request but for the bytes of a Fetch answer, before the answer is encoded. The context has the
        longest wait."""
        if not _counts(context, request):
            return
        now_ms = self._runtime.monotonic_ms()
        user, client_id = context.principal.name, context.client_id
        busy_ms = context.busy_ms or now_ms - context.received_ms
        waits_ms = self.quotas.busy(user, client_id, busy_ms, now_ms)
        if context.api_key == _PRODUCE:
            waits_ms = max(waits_ms, self.quotas.produced(user, client_id, frame_bytes, now_ms))
        if waits_ms:
            context.throttle(waits_ms)

    def begun(self, context: Request, request: Any) -> None:
        """Make a Fetch request smaller, so that the wait behind its answer doesn't become too long."""
        if context.api_key == _FETCH and _counts(context, request):
            bytes_max = self.quotas.fetch_bytes_max(context.principal.name, context.client_id)
            if bytes_max is not None and bytes_max < request.max_bytes:
                request.max_bytes = int(bytes_max)

    def fetched(self, context: Request, request: Any, parts: Parts) -> bool:
        """Count a Fetch answer. Whether its client is to wait, which the answer doesn't say yet."""
        if context.api_key != _FETCH or not _counts(context, request):
            return False
        now_ms = self._runtime.monotonic_ms()
        waits_ms = self.quotas.fetched(context.principal.name, context.client_id, size_of(parts), now_ms)
        if waits_ms <= context.throttle_ms:
            return False
        context.throttle(waits_ms)
        return True


def _counts(context: Request, request: Any) -> bool:
    if context.listener.kind != "broker" or context.api_key in EXEMPT:
        return False
    return context.api_key != _FETCH or not is_follower(request)


def is_follower(request: FetchRequest) -> bool:
    """Whether a replica fetches: its bytes belong to replication's own throttle."""
    return max(request.replica_id, request.replica_state.replica_id) >= 0
