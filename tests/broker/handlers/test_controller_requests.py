"""Requests of other nodes that only the controller serves: AlterPartition, BrokerRegistration and their like."""

from __future__ import annotations

import pytest

from blumfeld.spi.consensus import Controller
from blumfeld.wire.api import request_class, response_class
from blumfeld.wire.errors import ErrorCode
from tests.broker.harness import CONTROLLER_LISTENER, BrokerHarness, Permissions

REQUESTS = [
    (key, version)
    for key, oldest, newest in ((56, 2, 3), (62, 0, 4), (63, 0, 2), (67, 0, 0), (70, 0, 0), (73, 0, 0))
    for version in range(oldest, newest + 1)
]
each_request = pytest.mark.parametrize(("key", "version"), REQUESTS)


def ask(broker: BrokerHarness, key: int, version: int) -> tuple[int, int]:
    """The error of the answer, and the number of commands that the controller was asked to decide on."""
    kind, before = request_class(key), len(broker.metadata.commands)
    broker.metadata.answers[kind] = lambda _: response_class(key)()
    answer = broker.ask(kind(), version, connection=broker.connect(CONTROLLER_LISTENER))
    assert all(isinstance(command, kind) for command in broker.metadata.commands[before:])
    return answer.error_code, len(broker.metadata.commands) - before


@each_request
def test_a_node_without_cluster_action_is_refused(key: int, version: int) -> None:
    """Anybody else could take partitions from their leaders, or brokers from the cluster."""
    permissions = Permissions()
    broker = BrokerHarness(authorizer=permissions)
    permissions.asked.clear()
    assert ask(broker, key, version) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0)
    assert permissions.asked == [("ClusterAction", "Cluster", "kafka-cluster")]


@each_request
def test_a_node_with_cluster_action_is_served(key: int, version: int) -> None:
    broker = BrokerHarness(authorizer=Permissions(lambda *_: True))
    assert ask(broker, key, version) == (0, 1)


@each_request
@pytest.mark.parametrize("controller", [None, Controller(2, 5)])
def test_another_node_than_the_controller_decides_nothing(
    key: int, version: int, controller: Controller | None
) -> None:
    broker = BrokerHarness()
    broker.metadata.controller = controller
    assert ask(broker, key, version) == (ErrorCode.NOT_CONTROLLER, 0)
