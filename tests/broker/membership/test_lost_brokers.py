"""Metadata waits for the fencing of a leader whose process is gone."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from blumfeld.broker.membership.lost_brokers import HOLD_MS
from blumfeld.spi.cluster import BrokerImage, Endpoint, ImageDelta
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.harness import BrokerHarness, FakeExchange
from tests.client.test_channel import Peer

DEAD = 2
VERSION = 9


class World(BrokerHarness):
    """A broker that follows a partition of broker 2."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = Peer()
        cast("Any", self.composition).transport = self.peer
        self.create_topic("theirs")
        self.create_topic("ours")
        brokers = self.metadata.image.brokers
        endpoints = (Endpoint("PLAINTEXT", "elsewhere", 9092),)
        brokers[DEAD] = BrokerImage(broker_id=DEAD, epoch=9, incarnation_id=bytes(16), endpoints=endpoints)
        partition = self.metadata.image.topics["theirs"].partitions[0]
        self.metadata.change_partition("theirs", msgspec.structs.replace(partition, leader=DEAD))

    def lose(self, failure: OSError | None) -> None:
        self.peer.refuse = failure
        self.broker.ports.lost.connection_lost(DEAD, "PLAINTEXT")  # type: ignore[attr-defined]

    def ask_for(self, name: str = "theirs") -> FakeExchange:
        return self.send(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), VERSION)

    def shows(self, **changes: Any) -> None:
        brokers = self.metadata.image.brokers
        brokers[DEAD] = msgspec.structs.replace(brokers[DEAD], **changes)
        self.metadata.tell(ImageDelta(brokers_changed=(DEAD,)))
        self.runtime.run_turn()

    def turns(self) -> None:
        for _ in range(5):
            self.runtime.run_turn()


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("change", [{"fenced": True}, {"epoch": 10}])
def test_metadata_of_a_dead_leader_waits_for_its_fencing(world: World, change: dict[str, Any]) -> None:
    world.lose(ConnectionRefusedError())
    waiting = world.ask_for()
    world.turns()
    assert not waiting.settled
    world.shows(**change)
    assert waiting.settled
    assert world.ask_for().settled


def test_other_topics_are_not_waited_for(world: World) -> None:
    world.lose(ConnectionRefusedError())
    assert world.ask_for("ours").settled


def test_the_wait_begins_with_the_end_of_the_connection(world: World) -> None:
    """The dial takes a turn or more, and the clients ask in the meantime."""
    world.peer.silent = True
    world.lose(None)
    assert not world.ask_for().settled


@pytest.mark.parametrize("failure", [None, TimeoutError()])
def test_a_broker_that_does_not_refuse_is_not_lost(world: World, failure: OSError | None) -> None:
    world.lose(failure)
    waiting = world.ask_for()
    world.turns()
    assert waiting.settled
    assert world.ask_for().settled
    assert all(connection.closed for connection in world.peer.connections)


def test_the_wait_has_an_end(world: World) -> None:
    world.lose(ConnectionRefusedError())
    waiting = world.ask_for()
    world.turns()
    world.runtime.advance(HOLD_MS - 1)
    world.turns()
    assert not waiting.settled
    world.runtime.advance(2)
    world.turns()
    assert waiting.settled


def test_a_stopped_node_dials_nobody(world: World) -> None:
    """The look begins in the next turn. A transport that was stopped before raises ``RuntimeError`` (seed 50043)."""
    world.lose(ConnectionRefusedError())
    world.broker.ports.lost.stop()  # type: ignore[attr-defined]
    world.turns()
    assert not world.peer.dialled


def test_a_stop_lets_the_waiting_go_on(world: World) -> None:
    world.lose(ConnectionRefusedError())
    waiting = world.ask_for()
    world.turns()
    world.broker.ports.lost.stop()  # type: ignore[attr-defined]
    world.turns()
    assert waiting.settled
