"""The APIs that only a cluster with a ZooKeeper has on broker listeners: what a controller orders (4, 5, 6), and what
brokers ask their controller for (7, 56, 67).

LeaderAndIsr 5–7, StopReplica 3–4 and UpdateMetadata 7–8: older versions name no topic ids, and a controller of
inter.broker.protocol.version 2.8 or later sends none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.api import response_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message

ORDERS = ((4, 5, 7), (5, 3, 4), (6, 7, 8))
ASKED = ((7, 1, 3), (56, 2, 3), (67, 0, 0))
"""API key, lowest and highest version."""

Serve = Callable[[Message], Completion[Message]]


def node_handlers(obey: Serve, decide: Serve) -> list[ApiHandler]:
    """Returns the handlers.

    :param obey: does what a controller orders
    :param decide: has this node's controller decide; fails with NOT_CONTROLLER where it is another node's
    """
    return [*_handlers(ORDERS, obey), *_handlers(ASKED, decide)]


def shutdown_handlers(decide: Serve) -> list[ApiHandler]:
    """Returns the handler of ControlledShutdown (7) on controller listeners, for a quorum that a cluster migrates to:
    it has the others already."""
    return _handlers(ASKED[:1], decide, ("controller",))


def _handlers(
    apis: Sequence[tuple[int, int, int]], serve: Serve, listeners: tuple[str, ...] = ("broker",)
) -> list[ApiHandler]:
    def handle(request: Message, context: RequestContext) -> Completion[Message]:
        if not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return serve(request)

    return [
        ApiHandler(
            key=key,
            min_version=low,
            max_version=high,
            handle=handle,
            error_response=_failure_of(key),
            listeners=listeners,
        )
        for key, low, high in apis
    ]


def _failure_of(key: int) -> Callable[[Any, int, str | None], Message]:
    def failed(_request: Message, code: int, _message: str | None) -> Message:
        response: Any = response_class(key)()
        response.error_code = code
        return response  # type: ignore[no-any-return]

    return failed
