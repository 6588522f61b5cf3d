"""The watch over the brokers' processes, by itself. ``test_three_nodes`` has it in a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.cluster import BrokerImage, ClusterImage, Endpoint, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import CompositionRefused
from blumfeld_consensus_kraft.broker_watch import LOGIN_RETRY_MS, RETRY_MS, BrokerWatch
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
        self.layers: list[object] = []
        self.open: list[Connection] = []

    async def dial(
        self, host: str, port: int, receiver: Any, limits: object, byte_layer: object
    ) -> Connection:
        self.dials.append(port)
        self.layers.append(byte_layer)
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
        self.requests: list[bytes] = []

    def send(self, parts: Sequence[bytes]) -> None:
        self.requests.append(b"".join(parts))

    def answer(self) -> None:
        """Answer ApiVersions with nothing."""
        correlation_id = self.requests[0][4:8]
        self.receiver.frame(memoryview(correlation_id + bytes(6)))

    def close(self) -> None:
        if self in self.network.open:
            self.network.open.remove(self)


class Login:
    """The security of node 1, and its login at other nodes."""

    def __init__(self) -> None:
        self.listeners: list[str] = []
        self.outcomes: list[Completion[None]] = []
        self.refuses_to_compose = False

    def peer(self, listener: str) -> Login | None:
        self.listeners.append(listener)
        if self.refuses_to_compose:
            raise CompositionRefused("security.options.peer_login", "nothing", "a file")
        return self if listener == "SECURE" else None

    def byte_layer(self, host: str) -> object:
        return f"TLS to {host}"

    async def authenticate(self, connection: object) -> None:
        self.outcomes.append(Completion())
        await self.outcomes[-1]


class Watching:
    """The watch of node 1 over broker 2."""

    def __init__(self, security: Login | None = None, between_brokers: str | None = None) -> None:
        self.runtime = FakeRuntime()
        self.network = Network()
        self.dead: list[tuple[int, int]] = []
        composition = SimpleNamespace(
            runtime=self.runtime,
            transport=self.network,
            node_id=1,
            security=security,
            config={"inter.broker.listener.name": between_brokers},
        )
        self.watch = BrokerWatch(
            cast("Any", composition), lambda broker_id, epoch: self.dead.append((broker_id, epoch))
        )

    def image(
        self, *, epoch: int = 5, fenced: bool = False, port: int = 9092, protocol: str = "PLAINTEXT"
    ) -> ClusterImage:
        brokers = {
            broker_id: BrokerImage(
                broker_id=broker_id,
                epoch=epoch,
                incarnation_id=bytes(16),
                endpoints=(
                    Endpoint(listener="FIRST", host="localhost", port=port, security_protocol=protocol),
                    Endpoint(listener="SECURE", host="localhost", port=9093, security_protocol="SASL_SSL"),
                ),
                fenced=fenced,
            )
            for broker_id in (1, 2)
        }
        return cast("ClusterImage", SimpleNamespace(brokers=brokers))

    def shows_first(self, **given: Any) -> None:
        self.watch.image_changed(self.image(**given), ImageDelta(first=True))
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


def test_the_watch_logs_in_where_brokers_dial_each_other() -> None:
    """A connection that stays silent there is closed, again and again, and counted as a failed login."""
    login = Login()
    watching = Watching(login, "SECURE")
    watching.shows_first()
    assert (watching.network.dials, watching.network.layers) == ([9093], ["TLS to localhost"])
    login.outcomes[0].complete(None)
    watching.turns()
    [connection] = watching.network.open
    assert len(connection.requests) == 1, "TLS begins with the first request"
    connection.answer()
    watching.turns()
    watching.watch.report()
    watching.cut(REFUSED)
    assert watching.dead == [(2, 5)]


def test_a_watch_in_plain_text_asks_nothing(watching: Watching) -> None:
    assert watching.network.layers == [None]
    assert not watching.network.open[0].requests


def test_a_refused_login_is_tried_again_after_a_while() -> None:
    login = Login()
    watching = Watching(login, "SECURE")
    watching.shows_first()
    login.outcomes[0].fail(ConnectionError("the other node refuses"))
    watching.turns()
    assert not watching.network.open
    watching.passes(RETRY_MS + 1)
    assert len(watching.network.dials) == 1
    watching.passes(LOGIN_RETRY_MS)
    assert len(watching.network.dials) == 2


def test_a_controller_without_a_login_watches_all_the_same() -> None:
    """It is only a controller, and knows no listener of brokers: the connection is of use as long as it lives."""
    login = Login()
    login.refuses_to_compose = True
    watching = Watching(login)
    watching.shows_first(protocol="SASL_SSL")
    assert (login.listeners, watching.network.layers) == (["FIRST"], [None])
    watching.watch.report()
    watching.cut(REFUSED)
    assert watching.dead == [(2, 5)]
