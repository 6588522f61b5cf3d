"""A client of the simulation gives an answer up for a reason only. Each test plants a bug that a wider excuse hid."""

from __future__ import annotations

from random import Random

import pytest

from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.simulation.clients.client import ANSWER_S_MAX, ClientConnection, connect
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.network.network import CLIENTS, Network, Wire
from blumfeld_kit.simulation.trace import Trace

BROKER, OTHER = "10.0.0.1", "10.0.0.2"


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
