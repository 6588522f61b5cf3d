"""Each excuse of the simulation's oracle is as narrow as its reason. Each test plants a bug that a wider excuse hid."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.clients.client import ANSWER_S_MAX, ClientConnection, connect
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.clients.producer import Batch, Producer
from blumfeld_kit.simulation.network.network import CLIENTS, Network, Wire
from blumfeld_kit.simulation.trace import Trace

BROKER, OTHER = "10.0.0.1", "10.0.0.2"
AT = TopicPartition("topic", 0)
REFUSED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# A refused batch


class Story:
    """A producer with a burst of two batches to one partition, and the oracle's view of its broker."""

    def __init__(self, *, flushed: bool = True, base_sequence: int = 5) -> None:
        loop = SimulatedLoop()
        network = Network(loop, Random(1), Trace(loop.time))
        self.oracle = Oracle()
        self.oracle.add(AT, flushed=flushed)
        self.producer = Producer("p", network, (BROKER, 1), self.oracle, Random(1), [AT], pause_s=1)
        self.producer._identity.given(1, 0)
        self.first = Batch(AT, base_sequence, [b"p#1#"], tries=1, is_followed=True)
        self.second = Batch(AT, base_sequence + 1, [b"p#2#"], tries=1)

    @property
    def ledger(self):  # type: ignore[no-untyped-def]
        return self.oracle.partitions[AT]

    def tried_again(self) -> None:
        self.first.tries = self.second.tries = 2

    def refused(self) -> None:
        partition = PartitionProduceResponse(index=0, error_code=REFUSED, base_offset=-1)
        answer = ProduceResponse(
            responses=[TopicProduceResponse(name="topic", partition_responses=[partition])]
        )
        self.producer._answered([self.first, self.second], self.first, answer)


def test_a_repetition_may_be_refused_after_a_restart_and_then_stands_in_the_log() -> None:
    story = Story()
    story.tried_again()
    story.oracle.restarted()
    story.refused()
    story.ledger.check_claims([(5, b"p#1#")])
    with pytest.raises(ViolationError, match="the repetition of b'p#1#' was refused"):
        story.ledger.check_claims([(5, b"p#2#")])


def test_a_power_cut_may_take_the_batch_whose_repetition_was_refused() -> None:
    story = Story()
    story.tried_again()
    story.oracle.restarted()
    story.refused()
    story.oracle.power_cut()
    story.ledger.check_claims([])


def test_a_broker_that_was_not_restarted_knows_its_producers() -> None:
    story = Story()
    story.tried_again()
    with pytest.raises(ViolationError, match="forgot a producer"):
        story.refused()


def test_a_batch_that_is_sent_for_the_first_time_is_no_repetition() -> None:
    story = Story()
    story.second.tries = 2
    story.oracle.restarted()
    with pytest.raises(ViolationError, match="forgot a producer"):
        story.refused()


def test_a_producer_that_began_with_its_second_batch_is_no_loss() -> None:
    story = Story(base_sequence=0)
    story.first.write_failed = True
    story.refused()
    alone = Story(base_sequence=0)
    alone.first.write_failed, alone.first.is_followed = True, False
    with pytest.raises(ViolationError, match="forgot a producer"):
        alone.refused()


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_cached_is_forgotten_only_by_a_power_cut(cut: bool) -> None:
    story = Story(flushed=False)
    if cut:
        story.oracle.power_cut()
        story.refused()
        return
    with pytest.raises(ViolationError, match="forgot a producer"):
        story.refused()


# An answer that never comes


class Mute:
    """A broker that never answers."""

    def data(self, data: bytes) -> None:
        pass

    def lost(self, reason: str) -> None:
        pass


class Asking:
    """A client that waits for an answer of a mute broker."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.network = Network(self.loop, Random(1), Trace(self.loop.time))
        self.network.listen(BROKER, 1, self.accept)
        connection: ClientConnection = self.loop.run(connect(self.network, (BROKER, 1), "client"))
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        self.asked = self.loop.create_task(connection.ask(request, 3, HeartbeatResponse))

    def accept(self, wire: Wire) -> Mute:
        return Mute()

    def wait(self, seconds: float) -> None:
        self.loop.advance(seconds * 1000)


def test_trouble_elsewhere_excuses_no_missing_answer() -> None:
    asking = Asking()
    asking.wait(1)
    asking.network.cut(CLIENTS, OTHER)
    asking.network.trouble(OTHER)
    asking.wait(ANSWER_S_MAX + 1)
    with pytest.raises(ViolationError, match="no answer"):
        asking.asked.result()


def test_trouble_that_is_over_excuses_no_missing_answer() -> None:
    asking = Asking()
    asking.wait(1)
    asking.network.cut(BROKER, CLIENTS)
    asking.wait(10)
    asking.network.heal(BROKER, CLIENTS)
    asking.wait(ANSWER_S_MAX)
    assert not asking.asked.done()
    asking.wait(20)
    with pytest.raises(ViolationError, match="no answer"):
        asking.asked.result()


def test_a_client_gives_up_while_trouble_stands_and_after_a_silent_end() -> None:
    cut = Asking()
    cut.wait(1)
    cut.network.cut(BROKER, CLIENTS)
    dark = Asking()
    dark.wait(1)
    dark.network.site(BROKER).power_lost()
    dark.network.site(BROKER).boot()
    for asking in (cut, dark):
        asking.wait(21)
        with pytest.raises(ConnectionError):
            asking.asked.result()
