"""The watch over the brokers' processes, by itself. ``test_three_nodes`` has it in a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.cluster import BrokerImage, ClusterImage, Endpoint, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld_consensus_kraft.broker_watch import RETRY_MS, BrokerWatch
from blumfeld_kit.fakes import FakeRuntime

REFUSED = ConnectionRefusedError("no listener")
LOST = TimeoutError("no answer")


class Network:
    """Dials as a test wants, and keeps the connections."""

    def __init__(self) -> None:
        self.failure: OSError | None = None
        self.held: Completion[None] | None = None
        """The outcome of a dial comes when this is complete."""
        self.dials: list[int] = []
        self.open: list[Connection] = []

    async def dial(self, host: str, port: int, receiver: Any, limits: object) -> Connection:
        self.dials.append(port)
        failure = self.failure
        if self.held is not None:
            await self.held
        if failure is not None:
            raise failure
        connection = Connection(self, receiver)
        self.open.append(connection)
        return connection

    def cut(self, failure: OSError | None) -> None:
        """The connections end; the next dials fail so."""
        self.failure = failure
        ended, self.open = self.open, []
        for connection in ended:
            connection.receiver.lost("ended")


class Connection:
    def __init__(self, network: Network, receiver: Any) -> None:
        self.network = network
        self.receiver = receiver

    def close(self) -> None:
        self.network.open.remove(self)


class Watching:
    """The watch of node 1 over broker 2."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.network = Network()
        self.dead: list[tuple[int, int]] = []
        composition = SimpleNamespace(runtime=self.runtime, transport=self.network, node_id=1)
        self.watch = BrokerWatch(
            cast("Any", composition), lambda broker_id, epoch: self.dead.append((broker_id, epoch))
        )

    def image(self, *, epoch: int = 5, fenced: bool = False, port: int = 9092) -> ClusterImage:
        brokers = {
            broker_id: BrokerImage(
                broker_id=broker_id,
                epoch=epoch,
                incarnation_id=bytes(16),
                endpoints=(
                    Endpoint(listener="PLAIN", host="localhost", port=port, security_protocol="PLAINTEXT"),
                ),
                fenced=fenced,
            )
            for broker_id in (1, 2)
        }
        return cast("ClusterImage", SimpleNamespace(brokers=brokers))

    def shows_first(self) -> None:
        self.watch.image_changed(self.image(), ImageDelta(first=True))
        self.turns()

    def shows(self, **changes: Any) -> None:
        self.watch.image_changed(self.image(**changes), ImageDelta(brokers_changed=(2,)))
        self.turns()

    def turns(self) -> None:
        for _ in range(5):
            self.runtime.run_turn()

    def passes(self, milliseconds: float) -> None:
        self.runtime.advance(milliseconds)
        self.turns()

    def cut(self, failure: OSError | None) -> None:
        self.network.cut(failure)
        self.turns()


@pytest.fixture
def watching() -> Watching:
    made = Watching()
    made.shows_first()
    made.watch.report()
    assert len(made.network.open) == 1, "one connection: none to itself"
    return made


def test_a_process_that_refuses_after_it_was_reached_is_dead_once(watching: Watching) -> None:
    watching.cut(REFUSED)
    assert watching.dead == [(2, 5)]
    for _ in range(5):
        watching.passes(RETRY_MS + 1)
    assert watching.dead == [(2, 5)]


@pytest.mark.parametrize("failure", [None, LOST])
def test_an_ended_connection_says_nothing_until_another_is_refused(
    watching: Watching, failure: OSError | None
) -> None:
    watching.cut(failure)
    watching.passes(RETRY_MS + 1)
    assert watching.dead == []
    watching.cut(REFUSED)
    watching.passes(RETRY_MS + 1)
    assert watching.dead == [(2, 5)]


def test_a_refusal_says_nothing_before_the_broker_was_reached() -> None:
    watching = Watching()
    watching.network.failure = REFUSED
    watching.shows_first()
    watching.watch.report()
    watching.passes(RETRY_MS + 1)
    watching.passes(RETRY_MS + 1)
    assert len(watching.network.dials) >= 2
    assert watching.dead == []
    watching.network.failure = None
    watching.passes(RETRY_MS + 1)
    assert len(watching.network.open) == 1


def never_reached(*, heard: bool = True, epoch: int = 5) -> Watching:
    """The watch of a broker whose port refused from the beginning, and whose heartbeat came."""
    watching = Watching()
    watching.network.failure = REFUSED
    watching.shows_first()
    watching.watch.report()
    if heard:
        watching.watch.heard(2, epoch)
        watching.turns()
    return watching


def test_a_broker_that_sent_a_heartbeat_and_refuses_is_dead_at_once() -> None:
    """It died before its port could be dialed."""
    watching = never_reached()
    assert watching.dead == [(2, 5)]
    watching.watch.heard(2, 5)
    watching.passes(RETRY_MS + 1)
    assert watching.dead == [(2, 5)], "one report, though its heartbeats go on"


@pytest.mark.parametrize("dies", [False, True])
def test_a_refusal_from_before_the_heartbeat_says_nothing(dies: bool) -> None:
    """The dial was refused, the listener was opened, and the controller read the heartbeat first."""
    watching = Watching()
    watching.watch.report()
    watching.network.failure, watching.network.held = REFUSED, Completion()
    watching.shows_first()
    watching.watch.heard(2, 5)
    held, watching.network.held = watching.network.held, None
    watching.network.failure = REFUSED if dies else None
    held.complete(None)
    watching.turns()
    assert watching.dead == ([(2, 5)] if dies else [])
    assert len(watching.network.open) == (not dies)
    assert len(watching.network.dials) == 2


def test_a_heartbeat_of_an_earlier_process_says_nothing_of_this_one() -> None:
    assert never_reached(epoch=4).dead == []


def test_the_heartbeat_of_a_fenced_broker_says_nothing_of_its_listeners() -> None:
    """It asks to be unfenced: the listeners open afterwards."""
    watching = Watching()
    watching.network.failure = REFUSED
    watching.watch.image_changed(watching.image(fenced=True), ImageDelta(first=True))
    watching.watch.report()
    watching.watch.heard(2, 5)
    watching.shows()
    watching.passes(RETRY_MS + 1)
    assert watching.dead == []


def test_heartbeats_of_a_broker_whose_address_refuses_do_not_fence_it_again() -> None:
    """A firewall refuses: fenced once, unfenced by its next heartbeat, and not watched any more."""
    watching = never_reached()
    watching.shows(fenced=True)
    watching.watch.heard(2, 5)
    watching.shows()
    watching.watch.heard(2, 5)
    watching.passes(RETRY_MS + 1)
    assert watching.dead == [(2, 5)]


def test_a_broker_that_comes_back_in_the_same_epoch_is_watched_no_more_in_it(watching: Watching) -> None:
    watching.cut(REFUSED)
    watching.shows(fenced=True)
    watching.network.failure = None
    watching.shows()
    watching.passes(RETRY_MS + 1)
    assert watching.network.open == []
    watching.shows(epoch=6)
    assert len(watching.network.open) == 1
    watching.cut(REFUSED)
    assert watching.dead == [(2, 5), (2, 6)]


def test_a_broker_that_restarted_is_watched_at_its_new_address(watching: Watching) -> None:
    watching.shows(epoch=6, port=9095)
    assert watching.network.dials == [9092, 9095]
    assert len(watching.network.open) == 1


def test_a_fenced_broker_is_not_watched(watching: Watching) -> None:
    watching.shows(fenced=True)
    assert watching.network.open == []
    watching.shows()
    assert len(watching.network.open) == 1, "it was not reported, so it is watched again"


def test_a_new_controller_reports_a_broker_that_died_before_its_time() -> None:
    watching = Watching()
    watching.shows_first()
    watching.cut(REFUSED)
    assert watching.dead == [], "another node is the controller"
    watching.watch.report()
    assert watching.dead == [(2, 5)]
    watching.passes(RETRY_MS + 1)
    assert watching.dead == [(2, 5)]


@pytest.mark.parametrize("came_back", [True, False])
def test_a_new_controller_reports_no_broker_that_lives_or_is_fenced(came_back: bool) -> None:
    watching = Watching()
    watching.shows_first()
    watching.cut(REFUSED)
    if came_back:
        watching.network.failure = None
        watching.passes(RETRY_MS + 1)
    else:
        watching.shows(fenced=True)
    watching.watch.report()
    assert watching.dead == []


def test_a_controller_that_lost_its_place_only_watches(watching: Watching) -> None:
    watching.watch.report_no_more()
    watching.cut(REFUSED)
    assert watching.dead == []
    watching.watch.report()
    assert watching.dead == [(2, 5)]


def test_the_watch_ends_with_the_node(watching: Watching) -> None:
    watching.watch.stop()
    assert watching.network.open == []
    watching.shows(epoch=6)
    assert watching.network.open == []
