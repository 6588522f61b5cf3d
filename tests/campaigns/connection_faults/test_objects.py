"""Nothing of a connection that died stays in the broker's memory: its objects are counted, in this process."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.testing.brokers.embedded import EmbeddedBroker
from campaigns.bad_input.target import Target, good_batch
from campaigns.connection_faults.frames import connect, is_served, produce, receive_frame
from campaigns.connection_faults.killed import connection_reset, points

POINTS = {point.title: point for point in points()}
TIMES_MAX = 4
PATIENCE_S = 60.0
LAST_S = 1.0
"""What a connection was served with may go a turn after it."""
BIG_BATCHES = 4


@pytest.fixture(scope="module", params=["net_asyncio", "net_uring"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """With each transport; ``net_uring`` serves on readiness where there is no ring."""
    with EmbeddedBroker(storage="storage_local", manifest={"network": {"plugin": request.param}}) as broker:
        yield broker


@pytest.fixture(scope="module")
def scene(broker: EmbeddedBroker) -> Any:
    target = Target(broker.bootstrap_servers, "objects")
    quiet, big = target.make_topic("quiet"), target.make_topic("big")
    for _ in range(BIG_BATCHES):
        assert target.refusal(good_batch(bytes(1_000_000)), topic=big) == "NONE"
    # The broker keeps one entry for each beginning of a Produce that it has served. A client that resets its connection
    # may die before the broker reads: the entry would then be made in any of the rounds that are counted.
    with connect(broker.bootstrap_servers) as sock:
        sock.sendall(produce(target.topic, b"x"))
        receive_frame(sock)
    return SimpleNamespace(
        address=broker.bootstrap_servers,
        target=target,
        quiet_topic=quiet,
        big_topic=big,
        big_bytes=BIG_BATCHES * 1_000_000,
        times=lambda _, least: least,
    )


def objects(broker: EmbeddedBroker) -> Counter[str]:
    """What the collector knows of ours and of sockets, by type."""

    def count() -> Counter[str]:
        # Of a foreign type, __module__ may be a property.
        names = (f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))
        return Counter(name for name in names if name.startswith(("blumfeld", "socket")))

    counted: Counter[str] = broker.call(count)
    return counted


def at_rest(broker: EmbeddedBroker) -> bool:
    """Whether no connection is open and no request is parked."""
    node = broker.node
    return not sum(node.metrics.connections.values()) and not cast("Any", node.broker).parking.waiting


def settles(broker: EmbeddedBroker) -> bool:
    """Whether it comes to rest: a connection that is served was accepted after all before it."""
    with connect(broker.bootstrap_servers) as last:
        assert is_served(last)
    return eventually(lambda: at_rest(broker))


def eventually(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """The broker notices a reset after it was sent."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("title", POINTS)
def test_nothing_is_left_in_memory_of_a_client_that_died(
    title: str, broker: EmbeddedBroker, scene: Any
) -> None:
    """After a first time, which may make what is kept for good; and without the collector, which servers run rarely.

    A partition may hold its last batch until the next: what is left each time is a leak.
    """
    act = connection_reset(POINTS[title])
    act(scene)
    assert settles(broker)
    gc.disable()
    try:
        before = objects(broker)
        for _ in range(TIMES_MAX):
            act(scene)
            assert settles(broker)
            if eventually(lambda: not objects(broker) - before, LAST_S):
                break
        assert objects(broker) - before == Counter()
    finally:
        gc.enable()


def test_a_count_sees_an_open_connection(broker: EmbeddedBroker, scene: Any) -> None:
    assert settles(broker)
    before = objects(broker)
    with connect(scene.address) as sock:
        assert is_served(sock)
        more = objects(broker) - before
    assert more["socket.socket"] >= 1
    assert any(name.endswith("Accepted") for name in more)
