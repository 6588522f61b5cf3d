"""A channel to another node: one connection over ``Transport.dial`` that opens, negotiates, fails and opens again.

The states of a channel: *idle* (no connection), *opening* (dial, authenticate, ask for versions), *ready*, and *backing
off* after a failure. Requests of the first three wait in order, and requests that come while it backs off wait for the
next attempt. Each request ends exactly once: with its answer, with a timeout, or with the failure of its connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from blumfeld.client.dialed_client import DialedClient
from blumfeld.client.errors import NoCommonVersionError, RefusedError
from blumfeld.client.frames import api_key_of
from blumfeld.client.versions import SPOKEN, Handshake, Versions
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import RawAnswer
from blumfeld.spi.runtime import Runtime, Task, Timer
from blumfeld.spi.security import PeerSecurity
from blumfeld.spi.transport import Transport
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.primitives import EncodeError
from blumfeld.wire.schema import Message


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times and limits of a channel, in milliseconds."""

    client_id: str
    connect_timeout_ms: float = 10_000
    """Time limit for dial, authentication and negotiation together (``socket.connection.setup.timeout.ms``)."""
    backoff_ms: float = 50
    """Pause after the first failure, give or take a fifth; it doubles with each failure in a row
    (``reconnect.backoff.ms``)."""
    backoff_max_ms: float = 1_000
    """The longest pause (``reconnect.backoff.max.ms``)."""
    idle_ms: float = 600_000
    """A connection without requests is closed after this time; negative: never (``connections.max.idle.ms``)."""


LIFE_USED = 0.85
"""The part of a login's life after which the connection is exchanged for another (KIP-368)."""


class State(Enum):
    """See the module."""

    IDLE = "idle"
    OPENING = "opening"
    READY = "ready"
    BACKING_OFF = "backing off"


class _Request:
    __slots__ = ("answer", "message", "raw", "sent", "timer", "version_max")

    def __init__(self, message: Message, version_max: int | None, *, raw: bool) -> None:
        self.message = message
        self.version_max = version_max
        self.raw = raw
        self.answer: Completion[Any] = Completion()
        self.sent = False
        self.timer: Timer | None = None


class Channel:
    """Implements ``spi.peers.PeerChannel``.

    :param resolve: where the node is now; ``None`` if that isn't known
    :param about: names node and purpose in errors
    :param lost: is told when the other side ended an open connection
    """

    def __init__(
        self,
        runtime: Runtime,
        transport: Transport,
        resolve: Callable[[], Endpoint | None],
        about: str,
        settings: ChannelSettings,
        security: PeerSecurity | None = None,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self.state = State.IDLE
        self._runtime = runtime
        self._transport = transport
        self._resolve = resolve
        self._about = about
        self._settings = settings
        self._security = security
        self._lost = lost
        self._queue: deque[_Request] = deque()
        """Requests that wait for a connection."""
        self._client: DialedClient | None = None
        """The connection of this attempt, open or not."""
        self._task: Task | None = None
        """Opens the connection."""
        self._endpoint: Endpoint | None = None
        self._versions: Versions | None = None
        self._failures = 0
        self._timer: Timer | None = None
        """Limit of an opening, end of a pause, or next look at an idle connection."""
        self._used_ms = 0.0
        self._stopped = False
        self._is_stale = False
        """Whether the login of the connection ends soon: it takes no more requests."""
        self._life_timer: Timer | None = None

    def send(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[Message]:
        """As ``PeerChannel.send``."""
        return self._begin(_Request(request, version_max, raw=False), timeout_ms)

    def send_raw(
        self, request: Message, timeout_ms: float, version_max: int | None = None
    ) -> Completion[RawAnswer]:
        """As ``PeerChannel.send_raw``."""
        return self._begin(_Request(request, version_max, raw=True), timeout_ms)

    def close(self) -> None:
        """As ``PeerChannel.close``."""
        self._failures = 0
        self._end(ConnectionError(f"{self._about}: closed"))

    def stop(self) -> None:
        """Close for good: what is sent later fails with ``OSError``, too."""
        self._stopped = True
        self.close()

    # Requests

    def _begin(self, request: _Request, timeout_ms: float) -> Completion[Any]:
        request.answer.when_done(partial(self._ended, request))
        if self.state is not State.IDLE and self._resolve() != self._endpoint:
            self._moved()
        if self._stopped:
            request.answer.fail(OSError(f"{self._about}: this node is stopping"))
            return request.answer
        request.timer = self._runtime.call_later(timeout_ms, partial(self._expire, request))
        if self.state is State.READY and not self._queue and not self._is_stale:
            self._transmit(request)
        else:
            self._queue.append(request)
            if self.state is State.IDLE:
                self._open()
            elif self._is_stale:
                self._renew()
        return request.answer

    def _moved(self) -> None:
        """Leave an address. Another node may have it now, so an answer from there may come from the wrong node."""
        if self.state is State.BACKING_OFF:  # what waits has been nowhere yet
            self._stop_timer()
            self.state = State.IDLE
        else:
            self._end(ConnectionError(f"{self._about}: its endpoint has changed"))

    def _ended(self, request: _Request, _: Completion[Any]) -> None:
        """Stop the request's clock. A connection with answers isn't idle."""
        self._used_ms = self._runtime.monotonic_ms()
        if request.timer is not None:
            request.timer.cancel()
        if self._is_stale:
            self._renew()

    def _transmit(self, request: _Request) -> None:
        if request.answer.done:
            return
        assert self._client is not None
        try:
            version = self._version_of(request)
            request.sent = True
            if request.raw:
                self._client.send_raw(request.message, version, request.answer)
            else:
                self._client.send(request.message, version, request.answer)
        except (NoCommonVersionError, EncodeError) as error:
            request.answer.fail(BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"{self._about}: {error}"))

    def _version_of(self, request: _Request) -> int:
        assert self._versions is not None
        key = api_key_of(request.message)
        version = self._versions.of(key)
        if request.version_max is None or version <= request.version_max:
            return version
        least = max(self._versions.offered[key][0], SPOKEN[key][0])
        if least > request.version_max:
            raise NoCommonVersionError(
                key, f"version {least} is needed, {request.version_max} is the highest"
            )
        return request.version_max

    def _expire(self, request: _Request) -> None:
        late = TimeoutError(f"{self._about}: no answer in time")
        if request.sent:
            # The late answer would hold up all answers behind it.
            others = ConnectionError(f"{self._about}: closed, for another request had no answer in time")
            self._failed(others, lambda: request.answer.fail(late))
        else:
            self._queue.remove(request)
            request.answer.fail(late)

    # Connections

    def _open(self) -> None:
        endpoint = self._resolve()
        if endpoint is None:
            self._end(ConnectionError(f"{self._about}: its address is not known"))
            return
        self.state = State.OPENING
        if endpoint != self._endpoint:
            self._failures = 0  # failures at an earlier address say nothing about this one
            self._endpoint = endpoint
        client = DialedClient(self._settings.client_id, self._about, self._gone)
        self._client = client
        self._timer = self._runtime.call_later(
            self._settings.connect_timeout_ms,
            lambda: self._failed(TimeoutError(f"{self._about}: no connection in time")),
        )
        self._task = self._runtime.spawn(self._establish(client, endpoint), f"connect to {self._about}")

    async def _establish(self, client: DialedClient, endpoint: Endpoint) -> None:
        security = self._security
        layer = None if security is None else security.byte_layer(endpoint.host)
        try:
            await client.dial(self._transport, endpoint.host, endpoint.port, layer)
            life_ms = None
            if security is not None and client is self._client:
                life_ms = await security.authenticate(client)
            versions = await self._negotiate(client)
        except (OSError, NoCommonVersionError, RefusedError) as error:
            if client is self._client:
                self._task = None
                self._failed(error if isinstance(error, OSError) else ConnectionError(str(error)))
            return
        if client is self._client:  # or it was lost between the last answer and this task's turn
            self._task = None
            if life_ms is not None:
                self._life_timer = self._runtime.call_later(life_ms * LIFE_USED, self._grow_stale)
            self._ready(versions)

    def _grow_stale(self) -> None:
        self._is_stale = True
        self._renew()

    def _renew(self) -> None:
        """Exchange a connection whose login ends soon, once nothing waits on it. Requests that came meanwhile go to
        the next one."""
        client = self._client
        if client is None or client.waiting or self.state is not State.READY:
            return
        self._client = None  # first: its end is no failure
        self._forget_login()
        self._stop_timer()
        client.close()
        self.state = State.IDLE
        if self._queue:
            self._open()

    async def _negotiate(self, client: DialedClient) -> Versions:
        handshake = Handshake()
        while handshake.versions is None:
            answer: Completion[Message] = Completion()
            client.send(handshake.request, handshake.version, answer)
            handshake.answered(await answer)  # type: ignore[arg-type]
        return handshake.versions

    def _ready(self, versions: Versions) -> None:
        self._stop_timer()
        self.state = State.READY
        self._failures = 0
        self._versions = versions
        self._used_ms = self._runtime.monotonic_ms()
        if self._settings.idle_ms >= 0:
            self._timer = self._runtime.call_later(self._settings.idle_ms, self._look_if_idle)
        # A request that fails here is told at once, and its callback may send or close.
        while self._queue and self.state is State.READY:
            self._transmit(self._queue.popleft())

    def _look_if_idle(self) -> None:
        assert self._client is not None
        idle_ms = self._settings.idle_ms
        left_ms = self._used_ms + idle_ms - self._runtime.monotonic_ms()
        if self._client.waiting or left_ms > 0:
            pause_ms = idle_ms if self._client.waiting else left_ms
            self._timer = self._runtime.call_later(max(pause_ms, 1.0), self._look_if_idle)
        else:
            self.close()

    def _gone(self, client: DialedClient) -> None:
        """Back off: the connection was lost. Its requests fail by themselves."""
        if client is self._client:
            self._task = None  # it ends by itself, and may be the caller
            if self.state is State.READY and self._lost is not None:
                self._lost()
            self._failed(client.lost_kind(f"{self._about}: {client.lost_reason}"))

    def _failed(self, error: Exception, first: Callable[[], None] | None = None) -> None:
        """Fail every request, and pause. Later requests wait for the pause, then open another connection.

        :param first: fails one request before the others
        """
        settings = self._settings
        # As Kafka's clients: nodes that lost the same node don't come back to it all at once.
        jitter = 0.8 + 0.4 * self._runtime.random.random()
        pause_ms = min(settings.backoff_ms * 2 ** min(self._failures, 16) * jitter, settings.backoff_max_ms)
        self._failures += 1
        self._end(error, pause_ms, first)

    def _end(
        self, error: Exception, pause_ms: float | None = None, first: Callable[[], None] | None = None
    ) -> None:
        """Give up the connection and every request, once the channel is in its next state: a request that is told may
        send the next one from its callback."""
        client, self._client = self._client, None
        task, self._task = self._task, None
        queue, self._queue = self._queue, deque()
        self._versions = None
        self._forget_login()
        self._stop_timer()
        self.state = State.IDLE
        if pause_ms is not None:
            self.state = State.BACKING_OFF
            self._timer = self._runtime.call_later(pause_ms, self._pause_is_over)
        if task is not None:
            task.cancel()  # or its socket would try on until the operating system gives up
        if first is not None:
            first()
        if client is not None:
            client.close()
        for request in queue:
            request.answer.fail(error)

    def _pause_is_over(self) -> None:
        self._timer = None
        self.state = State.IDLE
        if self._queue:
            self._open()

    def _forget_login(self) -> None:
        self._is_stale = False
        if self._life_timer is not None:
            self._life_timer.cancel()
            self._life_timer = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
