"""Metadata waits for the fencing of a leader whose process is gone, and shows the change so that clients follow it."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from blumfeld.broker.membership.lost_brokers import HOLD_MS, LISTED_MS, LIVES_MS, UNNAMED_MS
from blumfeld.spi.cluster import BrokerImage, Endpoint, ImageDelta
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.harness import NODE, BrokerHarness, FakeExchange
from tests.client.test_channel import Peer

DEAD = 2
VERSION = 9


class World(BrokerHarness):
    """A broker that follows a partition of broker 2."""

    def __init__(self) -> None:
        super().__init__(single_node=False)
        self.peer = Peer()
        cast("Any", self.composition).transport = self.peer
        self.create_topic("theirs")
        self.create_topic("ours")
        brokers = self.metadata.image.brokers
        endpoints = (Endpoint("PLAINTEXT", "elsewhere", 9092),)
        brokers[DEAD] = BrokerImage(broker_id=DEAD, epoch=9, incarnation_id=bytes(16), endpoints=endpoints)
        partition = self.metadata.image.topics["theirs"].partitions[0]
        self.metadata.change_partition("theirs", msgspec.structs.replace(partition, leader=DEAD))
        self.shows(fenced=False)

    def lose(self, failure: OSError | None) -> None:
        self.peer.refuse = failure
        self.broker.ports.lost.connection_lost(DEAD, "PLAINTEXT")

    def ask_for(self, name: str = "theirs") -> FakeExchange:
        return self.send(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), VERSION)

    def names(self, asked: FakeExchange | None = None) -> tuple[int, int, list[int]]:
        """Error and leader of broker 2's partition, and the brokers that are listed."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name="theirs")])
        answer = self.response(asked or self.ask_for(), request, VERSION)
        partition = answer.topics[0].partitions[0]
        return partition.error_code, partition.leader_id, [one.node_id for one in answer.brokers]

    def elects(self, leader: int) -> None:
        partition = self.metadata.image.topics["theirs"].partitions[0]
        moved = msgspec.structs.replace(partition, leader=leader, leader_epoch=1)
        self.metadata.change_partition("theirs", moved)

    def shows(self, **changes: Any) -> None:
        brokers = self.metadata.image.brokers
        brokers[DEAD] = msgspec.structs.replace(brokers[DEAD], **changes)
        self.metadata.tell(ImageDelta(brokers_changed=(DEAD,)))
        self.runtime.run_turn()

    def turns(self, after_ms: float = 0) -> None:
        self.runtime.advance(after_ms)
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


def test_a_broker_that_keeps_a_connection_open_is_not_lost(world: World) -> None:
    world.lose(None)
    waiting = world.ask_for()
    world.turns()
    assert not waiting.settled, "a process that is dying accepts, too"
    world.turns(after_ms=LIVES_MS)
    assert world.names(waiting) == (0, DEAD, [NODE, DEAD])
    assert world.names() == (0, DEAD, [NODE, DEAD])
    assert all(connection.closed for connection in world.peer.connections)


def test_a_port_that_accepts_and_then_refuses_has_lost_its_process(world: World) -> None:
    """Its connections end one by one, and the listener after those of some clients."""
    world.lose(None)
    waiting = world.ask_for()
    world.turns()
    world.peer.refuse = ConnectionRefusedError()
    world.peer.connections[-1].receiver.lost("reset")
    world.turns()
    world.turns(after_ms=LIVES_MS)
    assert not waiting.settled
    assert len(world.peer.dialled) == 2


def test_a_broker_that_does_not_answer_is_not_lost(world: World) -> None:
    world.lose(TimeoutError())
    waiting = world.ask_for()
    world.turns()
    assert world.names(waiting) == (0, DEAD, [NODE, DEAD])


def test_a_wait_that_is_over_names_no_leader_so_that_the_client_asks_again_soon(world: World) -> None:
    world.lose(ConnectionRefusedError())
    waiting = world.ask_for()
    world.turns()
    world.turns(after_ms=HOLD_MS - 1)
    assert not waiting.settled
    world.turns(after_ms=2)
    nobody = (ErrorCode.LEADER_NOT_AVAILABLE, -1, [NODE, DEAD])
    assert world.names(waiting) == nobody
    assert world.names() == nobody, "nobody waits any more"
    world.shows(fenced=True)
    world.elects(NODE)
    assert world.names() == (0, NODE, [NODE, DEAD])


def test_the_image_has_the_last_word(world: World) -> None:
    """A firewall may refuse this node only."""
    world.lose(ConnectionRefusedError())
    world.turns()
    world.turns(after_ms=UNNAMED_MS - 1)
    assert world.names()[1] == -1
    world.turns(after_ms=2)
    assert world.names() == (0, DEAD, [NODE, DEAD])


def test_a_port_that_says_nothing_is_waited_for_and_named(world: World) -> None:
    """A machine that is gone refuses nothing."""
    world.peer.silent = True
    world.lose(None)
    waiting = world.ask_for()
    world.turns(after_ms=HOLD_MS + 1)
    assert world.names(waiting) == (0, DEAD, [NODE, DEAD])


def test_a_broker_is_still_listed_when_its_partitions_have_just_moved(world: World) -> None:
    """librdkafka gives a broker up that isn't listed, and with it the partitions that move away in the same answer."""
    world.shows(fenced=True)
    world.elects(NODE)
    assert world.names() == (0, NODE, [NODE, DEAD])
    world.runtime.advance(LISTED_MS - 1)
    assert world.names() == (0, NODE, [NODE, DEAD])
    world.runtime.advance(2)
    assert world.names() == (0, NODE, [NODE])


def test_a_broker_that_was_fenced_before_is_not_listed(world: World) -> None:
    """It has registered and isn't there yet; or this node has just started."""
    brokers = world.metadata.image.brokers
    brokers[3] = msgspec.structs.replace(brokers[DEAD], broker_id=3, fenced=True)
    world.shows(fenced=False)
    assert world.names() == (0, DEAD, [NODE, DEAD])


def test_a_broker_that_is_no_more_in_the_image_is_not_listed(world: World) -> None:
    world.elects(NODE)
    del world.metadata.image.brokers[DEAD]
    world.metadata.tell(ImageDelta(brokers_changed=(DEAD,)))
    assert world.names() == (0, NODE, [NODE])


def test_a_stopped_node_dials_nobody(world: World) -> None:
    """The look begins in the next turn. A transport that was stopped before raises ``RuntimeError`` (seed 50043)."""
    world.lose(ConnectionRefusedError())
    world.broker.ports.lost.stop()
    world.turns()
    assert not world.peer.dialled


def test_a_stop_lets_the_waiting_go_on(world: World) -> None:
    world.lose(ConnectionRefusedError())
    waiting = world.ask_for()
    world.turns()
    world.broker.ports.lost.stop()
    world.turns()
    assert waiting.settled
