"""Requests of other nodes that only the controller serves: AlterPartition, BrokerRegistration and their like."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.spi.consensus import Controller
from blumfeld.spi.context import Principal
from blumfeld.wire.api import request_class, response_class
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.schema import Message
from tests.broker.harness import CONTROLLER_LISTENER, BrokerHarness

REQUESTS = [
    (key, version)
    for key, oldest, newest in ((56, 2, 3), (62, 0, 4), (63, 0, 2), (67, 0, 0), (70, 0, 0), (73, 0, 0))
    for version in range(oldest, newest + 1)
]
each_request = pytest.mark.parametrize(("key", "version"), REQUESTS)


class Rules:
    """``Authorizer`` that notes what it is asked."""

    def __init__(self, *, allow: bool) -> None:
        self.allow = allow
        self.asked: list[tuple[str, str, str]] = []

    def authorize(
        self, principal: Principal, host: str, operation: str, resource_type: str, name: str
    ) -> bool:
        self.asked.append((operation, resource_type, name))
        return self.allow


def broker_with(rules: Rules) -> tuple[BrokerHarness, list[Message]]:
    """Returns a broker, and the commands that its controller is asked to decide on from now on."""
    broker = BrokerHarness(authorizer=rules)
    decided: list[Message] = []

    def decide(command: Message) -> Message:
        decided.append(command)
        return response_class(command.meta.key or 0)()

    broker.metadata._decide = decide  # type: ignore[method-assign]
    rules.asked.clear()
    return broker, decided


def ask(broker: BrokerHarness, key: int, version: int) -> Any:
    request = request_class(key)()
    exchange = broker.send_frame(broker.frame(request, version), broker.connect(CONTROLLER_LISTENER))
    return broker.response(exchange, request, version)


@each_request
def test_a_node_without_cluster_action_is_refused(key: int, version: int) -> None:
    """Anybody else could take partitions from their leaders, or brokers from the cluster."""
    rules = Rules(allow=False)
    broker, decided = broker_with(rules)
    assert ask(broker, key, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert rules.asked == [("ClusterAction", "Cluster", "kafka-cluster")]
    assert decided == []


@each_request
def test_a_node_with_cluster_action_is_served(key: int, version: int) -> None:
    broker, decided = broker_with(Rules(allow=True))
    assert ask(broker, key, version).error_code == 0
    assert [command.meta.key for command in decided] == [key]


@each_request
@pytest.mark.parametrize("controller", [None, Controller(2, 5)])
def test_another_node_than_the_controller_decides_nothing(
    key: int, version: int, controller: Controller | None
) -> None:
    broker, decided = broker_with(Rules(allow=True))
    broker.metadata.controller = controller
    assert ask(broker, key, version).error_code == ErrorCode.NOT_CONTROLLER
    assert decided == []
