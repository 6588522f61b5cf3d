"""Every error that a handler may end in can be told in every version that ApiVersions lists, on each listener kind."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.kernel.node import Node
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.spi.parts import join
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld.testing.simulation.machine.host import plan_of
from blumfeld.wire.api import API_BY_KEY, request_class, response_class
from blumfeld.wire.codec import decode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.headers import response_is_flexible
from tests.extreme_values import one_at_a_time

CODES = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@pytest.fixture(scope="module")
def node() -> Node:
    """A combined node with every bundled plug-in, which isn't started."""
    listeners = [
        {"name": "PLAINTEXT", "bind": "127.0.0.1:9092", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": "127.0.0.1:9093"},
    ]
    sections = {
        "node": {"id": 1, "roles": ("broker", "controller"), "data_dir": "/data"},
        "network": {"plugin": "net_asyncio", "listeners": listeners},
    }
    plan = plan_of({"controller.quorum.voters": "1@127.0.0.1:9093"}, "storage_local", sections=sections)
    return Node(plan, FakeRuntime(0), EventLogs(lambda: lambda *_: None))


def served(node: Node, kind: str) -> list[tuple[int, int]]:
    """Each (key, version) that ApiVersions lists and that is served."""
    dispatcher: Any = node.broker.connection_handler(kind)
    listed = node.broker.advertised(kind).items()
    pairs = [(key, version) for key, (low, high) in listed for version in range(low, high + 1)]
    return [(key, version) for key, version in pairs if dispatcher.route(key, version) is not None]


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_every_error_can_be_told_in_every_advertised_version(node: Node, kind: str) -> None:
    dispatcher: Any = node.broker.connection_handler(kind)
    untold = []
    for key, version in served(node, kind):
        route = dispatcher.route(key, version)
        route = getattr(route, "general", route)  # the straight way of Produce makes no errors of its own
        request = next(one_at_a_time(request_class(key), version, {}))
        for code in CODES:
            try:
                answer = route.error_answer(request, BrokerError(code, "what is wrong, and what to do next"))
                parts = route.encode(answer, 7)
            except Exception as error:
                untold.append(
                    f"{API_BY_KEY[key].name} v{version} {code.name}: {type(error).__name__} {error}"
                )
                continue
            header = 5 if response_is_flexible(key, version) else 4
            decode(response_class(key), join(parts)[header:], version)
    assert not untold, "\n".join(untold)
