"""The channels of a node: one for each (node, listener, purpose), resolved by the image."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from blumfeld.broker.serving.peer_client import TransportPeerClient
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.cluster import BrokerImage, Endpoint
from blumfeld.spi.hooks import Composition
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.client.test_channel import Peer


class World:
    """A peer client on virtual time, and a cluster of which node 2 is known."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.peer = Peer()
        endpoints = (Endpoint("PLAINTEXT", "two", 9092), Endpoint("OTHER", "two", 9093))
        two = BrokerImage(broker_id=2, epoch=1, incarnation_id=bytes(16), endpoints=endpoints)
        composition = SimpleNamespace(
            runtime=self.runtime,
            transport=self.peer,
            node_id=3,
            security=None,
            config=BrokerConfig(),
            metadata=SimpleNamespace(image=SimpleNamespace(brokers={2: two})),
        )
        self.client = TransportPeerClient(cast("Composition", composition))

    def send(self, *channel: Any) -> Any:
        sent = self.client.channel(*channel).send(HeartbeatRequest(group_id="g"), 1_000)
        self.runtime.run_turn()
        return sent


def test_each_purpose_has_a_connection_of_its_own() -> None:
    """A fetch that waits at the other node must not delay a vote."""
    world = World()
    for purpose in ("fetch", "vote", "fetch"):
        world.send(2, "PLAINTEXT", purpose)
    world.send(2, "OTHER", "fetch")
    assert world.peer.dialled == [("two", 9092), ("two", 9092), ("two", 9093)]
    assert world.client.channel(2, "OTHER", "fetch") is world.client.channel(2, "OTHER", "fetch")


def test_a_node_that_the_image_does_not_know_has_no_address() -> None:
    world = World()
    assert "its address is not known" in str(world.send(7, "PLAINTEXT", "fetch").error)
    assert world.peer.dialled == []


def test_voters_are_resolved_by_the_voter_set() -> None:
    """A controller that is no broker is in no image."""
    world = World()

    class Voters:
        def endpoint(self, node_id: int, listener: str) -> Endpoint | None:
            return Endpoint(listener, f"voter{node_id}", 9000)

    world.send(9, "CONTROLLER", "vote", Voters())
    assert world.peer.dialled == [("voter9", 9000)]


def test_after_a_stop_nothing_is_sent() -> None:
    world = World()
    channel = world.client.channel(2, "PLAINTEXT", "fetch")
    sent = world.send(2, "PLAINTEXT", "fetch")
    world.runtime.run(world.client.stop())
    assert isinstance(sent.error, OSError)
    assert isinstance(channel.send(HeartbeatRequest(), 1_000).error, OSError)
    assert isinstance(world.send(2, "PLAINTEXT", "fetch").error, OSError)
    assert isinstance(world.client.channel(2, "X", "y").send_raw(HeartbeatRequest(), 1_000).error, OSError)
    assert len(world.peer.dialled) == 1
