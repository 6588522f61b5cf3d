"""The context that a handler is handed with each request, and the results that it may return."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.transport import Listener
from blumfeld.wire.schema import Message


class Principal(msgspec.Struct, frozen=True):
    """The client's principal: ``User:ANONYMOUS`` without authentication."""

    name: str = "ANONYMOUS"
    type: str = "User"
    token_authenticated: bool = False
    """Whether the client logged in by a delegation token (KIP-48). Such a client can't get further tokens.
    An authorizer looks at type and name alone."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal()


class RequestContext(Protocol):
    """One request's circumstances. Lives as long as the request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    """"" when the client sent null."""
    listener: Listener
    peer_host: str
    peer_port: int
    connection_id: int
    received_ms: float
    """``Runtime.monotonic_ms()`` when the frame was cut."""
    is_large: bool
    """Whether the request has more than some hundred elements: it is to be served in steps (:class:`ApiHandler`)."""

    @property
    def principal(self) -> Principal:
        """Principal of the connection now. Re-authentication changes it while the connection lives (KIP-368)."""
        ...

    def set_principal(self, principal: Principal) -> None:
        """Set the principal of the live connection: a first authentication or a later one (KIP-368). Requests of the
        connection that wait have it from now on, too; other connections keep theirs.

        Provisional: first used by a gate that knows the request alone.
        """
        ...

    @property
    def rights_generation(self) -> int:
        """Another number whenever an answer of :meth:`authorize` may have changed. A request that waited asks again
        if it has."""
        ...

    def authorize(self, operation: str, resource_type: str, name: str, *, quiet: bool = False) -> bool:
        """Whether the principal may do ``operation`` (``"Read"``, ``"Write"``, ``"Describe"``…) on the resource
        (``"Topic"``, ``"Group"``, ``"Cluster"``, ``"TransactionalId"``). Every handler asks, also while
        everything is allowed.

        :param quiet: as of ``Authorizer.authorize``
        """
        ...

    def authorize_any(self, operation: str, resource_type: str) -> bool:
        """Whether the principal may do ``operation`` on at least one resource of this type (KIP-679)."""
        ...

    def close_connection(self, reason: str) -> None:
        """Close it instead of answering: what Kafka does where no error response is possible."""
        ...

    def throttle(self, duration_ms: float) -> None:
        """A quota was exceeded: the response says so in its ``throttle_time_ms``, and the connection is not read for so
        long (KIP-219).
        """
        ...

    def let_next_start(self) -> None:
        """Let the connection's next request start. Only a Produce request whose batches are placed may call this: its
        offsets are fixed, so the next request can't overtake it.
        """
        ...

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        """Call ``callback()`` if the connection goes while the request waits. Its answer then reaches no client, but
        the request must be answered all the same. ``None`` takes the callback back; a connection has one at a time.
        """
        ...


class NoAnswer:
    """The return value of a handler for a request without a response (Produce with acks=0)."""


NO_ANSWER = NoAnswer()

Handle: TypeAlias = Callable[[Any, RequestContext], "Message | NoAnswer | Completion[Any] | Steps[Any]"]
"""The answer to one request: the response, a completion of it, or the steps to either."""
ErrorResponse: TypeAlias = Callable[[Any, int, str | None], "Message | Steps[Message]"]
"""(request, error code, message) → the response that says so for everything asked, or the steps to it."""


class ApiHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler for some versions of an API on some kinds of listener.

    ``handle(request, context)`` gives the response message, a completion of it, or ``NO_ANSWER``. It must not
    block. ``BrokerError`` that escapes becomes the response's error where the message has a place for one
    (``error_response``); any other exception is logged and becomes UNKNOWN_SERVER_ERROR likewise.

    A handler whose requests may have many elements gives steps to one of these (:mod:`blumfeld.spi.steps`) if
    ``context.is_large``: they yield where a turn for others may come. A small request that takes much work may be given
    steps, too. It is decoded again then, in memory that lasts, and ``handle`` is called once more, as for a large one:
    steps that have not begun have done nothing. ``spi.steps`` has what makes a handler of steps (``small_at_once``), or
    of a function that answers each element for itself (``in_parts``).
    """

    key: int
    min_version: int
    max_version: int
    handle: Handle
    error_response: ErrorResponse
    """The response comes in its newest form: what the request's version has no place for at the top of it is left out.
    Steps to it (``spi.steps.errors_by_elements``) wait for nothing. They are for an answer that may have many
    elements."""
    listeners: tuple[str, ...] = ("broker",)
    in_steps: Callable[[Any, RequestContext], Steps[Any] | None] | None = None
    """The old form of steps, until Blumfeld 0.2.0: ``handle`` gives them."""
    error_in_steps: Callable[[Any, int, str | None], Steps[Message]] | None = None
    """The old form of an error's steps, until Blumfeld 0.2.0: ``error_response`` gives them."""
    advertised_min: int | None = None
    """Shown in ApiVersions instead of ``min_version`` (Produce shows 0: KAFKA-18659)."""

    def __post_init__(self) -> None:
        if self.in_steps is None and self.error_in_steps is None:
            return
        warnings.warn(
            "handle and error_response give steps: Blumfeld 0.2.0 will not have in_steps and error_in_steps",
            DeprecationWarning,
            stacklevel=2,
        )
        if self.in_steps is not None:
            force_setattr(self, "handle", _in_one_form(self.handle, self.in_steps))
            force_setattr(self, "in_steps", None)
        if self.error_in_steps is not None:
            force_setattr(self, "error_response", self.error_in_steps)
            force_setattr(self, "error_in_steps", None)


class TakesSteps(Exception):  # noqa: N818 - it says what the request needs
    """Raised by a ``handle`` of the old form, before it has done anything: ``in_steps`` serves the request. It goes
    with Blumfeld 0.2.0."""


def _in_one_form(handle: Handle, in_steps: Callable[[Any, RequestContext], Steps[Any] | None]) -> Handle:
    def serve(request: Any, context: RequestContext) -> Any:
        steps = in_steps(request, context) if context.is_large else None
        if steps is not None:
            return steps
        try:
            return handle(request, context)
        except TakesSteps:
            return in_steps(request, context)

    return serve


class LazyHandler:
    """Stands for the handler of an API, which is made with the first request: a start imports no module for it. From
    then on the registered handler has that one's functions."""

    def __init__(self, key: int, load: Callable[[], Sequence[ApiHandler]]) -> None:
        """:param load: imports what serves the API, and returns the handlers in it; one has this key"""
        self._key = key
        self._load_all = load
        self._loaded: ApiHandler | None = None
        self._registered: list[ApiHandler] = []

    def handler(
        self,
        min_version: int,
        max_version: int,
        listeners: tuple[str, ...] = ("broker",),
        advertised_min: int | None = None,
    ) -> ApiHandler:
        """Returns the handler to register."""
        handler = ApiHandler(
            key=self._key,
            min_version=min_version,
            max_version=max_version,
            listeners=listeners,
            advertised_min=advertised_min,
            handle=self._handle,
            error_response=self._error_response,
        )
        self._registered.append(handler)
        return handler

    def _load(self) -> ApiHandler:
        if self._loaded is None:
            loaded = self._loaded = next(
                candidate for candidate in self._load_all() if candidate.key == self._key
            )
            for handler in self._registered:
                force_setattr(handler, "handle", loaded.handle)
                force_setattr(handler, "error_response", loaded.error_response)
        return self._loaded

    def _handle(self, request: Any, context: RequestContext) -> Any:
        return self._load().handle(request, context)

    def _error_response(self, request: Any, code: int, message: str | None) -> Message | Steps[Message]:
        return self._load().error_response(request, code, message)


class ParkedOperation(Protocol):
    """A request that can't be answered yet. The purgatory calls these; none may raise."""

    def try_complete(self) -> bool:
        """Check whether it can be answered now, and if so answer it and return True. Called on each wake, and
        once when parked.
        """
        ...

    def expire(self) -> None:
        """The deadline has passed: answer with what there is."""
        ...


class Parking(Protocol):
    """The purgatory, as a plug-in is handed it (docs/design.md, rule 6)."""

    def park(self, operation: ParkedOperation, keys: Sequence[Hashable], timeout_ms: float) -> None:
        """Try to complete it now; if it can't be, keep it until a key wakes it or ``timeout_ms`` has passed."""
        ...

    def wake(self, key: Hashable) -> None:
        """Something changed for ``key``: its watchers are tried again in Phase.COMPLETE of this turn, in the
        order in which they parked.
        """
        ...
