"""The APIs that a node with a ZooKeeper serves on broker listeners, and the requests that it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler
from blumfeld.wire.api import request_class, response_class
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.handlers import ASKED, ORDERS, node_handlers

KEYS = [key for key, _, _ in (*ORDERS, *ASKED)]


class Node:
    """Notes what is handed on."""

    def __init__(self) -> None:
        self.obeyed: list[int] = []
        self.decided: list[int] = []
        made = node_handlers(lambda r: self._serve(self.obeyed, r), lambda r: self._serve(self.decided, r))
        self.handlers: dict[int, ApiHandler] = {handler.key: handler for handler in made}

    def _serve(self, notes: list[int], request: Message) -> Completion[Message]:
        key = next(key for key in KEYS if isinstance(request, request_class(key)))
        notes.append(key)
        return Completion.of(response_class(key)())

    def ask(self, key: int, *, allowed: bool = True) -> Any:
        asked: list[tuple[str, ...]] = []

        def authorize(*what: str, quiet: bool = False) -> bool:
            asked.append(what)
            return allowed

        context = cast("Any", SimpleNamespace(authorize=authorize))
        try:
            return self.handlers[key].handle(request_class(key)(), context)
        finally:
            assert asked == [("ClusterAction", "Cluster", "kafka-cluster")]


@pytest.mark.parametrize("key", KEYS)
def test_only_brokers_may_order_and_ask(key: int) -> None:
    """Anybody else could delete replicas."""
    node = Node()
    with pytest.raises(BrokerError) as caught:
        node.ask(key, allowed=False)
    assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert node.obeyed + node.decided == []


def test_orders_are_obeyed_here_and_questions_are_the_controllers() -> None:
    node = Node()
    for key in KEYS:
        node.ask(key)
    assert node.obeyed == [4, 5, 6]
    assert node.decided == [7, 56, 67]


@pytest.mark.parametrize("key", KEYS)
def test_an_error_stands_at_the_top_of_the_answer(key: int) -> None:
    failed: Any = Node().handlers[key].error_response(request_class(key)(), ErrorCode.NOT_CONTROLLER, "text")
    assert failed.error_code == ErrorCode.NOT_CONTROLLER
    assert type(failed) is response_class(key)


def test_they_are_on_broker_listeners_in_the_versions_that_name_topic_ids() -> None:
    served = {h.key: (h.min_version, h.max_version, h.listeners) for h in Node().handlers.values()}
    assert served == {
        key: (low, high, ("broker",))
        for key, low, high in (
            (4, 5, 7),
            (5, 3, 4),
            (6, 7, 8),
            (7, 1, 3),
            (56, 2, 3),
            (67, 0, 0),
        )
    }
