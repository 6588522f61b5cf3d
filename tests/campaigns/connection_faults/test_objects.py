"""Nothing of a connection that died stays in the broker's memory: its objects are counted, in this process."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from campaigns.bad_input.target import Target, good_batch
from campaigns.connection_faults.deaths import client_dies, points
from campaigns.connection_faults.frames import (
    api_versions,
    connect,
    fetch,
    is_served,
    produce,
    receive_frame,
    reset,
)
from campaigns.waits import await_true

POINTS = {point.title: point for point in points()}
PATIENCE_S = 60.0
NEVER_MS = 600_000
LAST_S = 1.0
"""Time in which the last objects of a connection normally go: some go a turn after it."""
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
    # The broker keeps what it makes at the first request of a kind: a handler, an entry for the beginning of a Produce,
    # an encoder. A client that resets its connection may die before the broker reads, so any of the rounds that are
    # counted could be the first.
    with connect(broker.bootstrap_servers) as sock:
        for request in (produce(target.topic, b"x"), fetch(big, 0, 1), api_versions()):
            sock.sendall(request)
            receive_frame(sock)
        sock.sendall(fetch(quiet, 0, 1, max_wait_ms=NEVER_MS))
        assert await_true(lambda: waiting_requests(broker) == 1, PATIENCE_S)
        reset(sock)
    assert settles(broker)
    return SimpleNamespace(
        address=broker.bootstrap_servers,
        target=target,
        quiet_topic=quiet,
        big_topic=big,
        big_bytes=BIG_BATCHES * 1_000_000,
        times=lambda _, least: least,
    )


def objects(broker: EmbeddedBroker) -> Counter[str]:
    """Objects of ours and sockets that the collector knows, by type."""

    def count() -> Counter[str]:
        # Of a foreign type, __module__ may be a property.
        names = (f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))
        return Counter(name for name in names if name.startswith(("blumfeld", "socket")))

    counted: Counter[str] = broker.call(count)
    return counted


def at_rest(broker: EmbeddedBroker) -> bool:
    """Whether no connection is open and no request is parked."""
    return not sum(broker.node.metrics.connections.values()) and not waiting_requests(broker)


def waiting_requests(broker: EmbeddedBroker) -> int:
    """The number of parked requests."""
    waiting: int = cast("Any", broker.node.broker).parking.waiting
    return waiting


def settles(broker: EmbeddedBroker) -> bool:
    """Whether it comes to rest: a connection that is served was accepted after all before it."""
    with connect(broker.bootstrap_servers) as last:
        assert is_served(last)
    return await_true(lambda: at_rest(broker), PATIENCE_S)


@pytest.mark.parametrize("title", POINTS)
def test_nothing_is_left_in_memory_of_a_client_that_died(
    title: str, broker: EmbeddedBroker, scene: Any
) -> None:
    """After a first time, which may make what is kept for good; and without the collector, which servers run rarely.

    A partition may hold its last batch until the next: what is left each time is a leak.
    """
    act = client_dies(POINTS[title], reset)
    act(scene)
    assert settles(broker)
    left = Counter[str]()

    def nothing_is_left() -> bool:
        nonlocal left
        left = objects(broker) - before
        return not left

    gc.disable()
    try:
        end = time.monotonic() + PATIENCE_S
        while True:
            before = objects(
                broker
            )  # anew: a checkpoint that fell into the round before may have left something
            act(scene)
            assert settles(broker)
            if await_true(nothing_is_left, LAST_S) or time.monotonic() > end:
                break
        assert not left, left
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
