"""What an operator reads of a node's sessions."""

from __future__ import annotations

from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import ZooKeeper
from blumfeld_consensus_zk_compat.node.sessions import Sessions
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from tests.broker.harness import Quiet

TIMEOUT_MS = 5_000
BEGUN = "ZooKeeper session begun"
UNREACHED = "no ZooKeeper server is reached; produce and fetch go on"
REACHED = "ZooKeeper is reached again"
OVER = "the ZooKeeper session is over; another one is begun"


def test_a_node_says_when_zookeeper_is_reached_again_and_of_another_session_that_it_is_another() -> None:
    runtime, log = FakeRuntime(), Quiet()
    zookeeper = SimulatedZooKeeper(runtime)

    def present() -> ZooKeeper:
        return zookeeper.session(runtime)

    sessions = Sessions(
        make=present,
        runtime=runtime,
        events=log,
        connection_timeout_ms=TIMEOUT_MS,
        begun=lambda _: None,
        ended=lambda: None,
    )

    async def pause(ms: float) -> None:
        over: Completion[None] = Completion()
        runtime.call_later(ms, lambda: over.complete(None))
        await over

    async def story() -> None:
        session = await sessions.open()
        session.cut()  # type: ignore[attr-defined]
        await pause(session.timeout_ms * 0.8)  # type: ignore[attr-defined]
        session.heal()  # type: ignore[attr-defined]
        await pause(1_000)
        session.cut()  # type: ignore[attr-defined]
        await pause(session.timeout_ms * 3)  # type: ignore[attr-defined]
        session.heal()  # type: ignore[attr-defined]
        await pause(10_000)
        await sessions.close()

    runtime.run(story())
    assert [event for _, event, _ in log.events] == [BEGUN, UNREACHED, REACHED, UNREACHED, OVER, BEGUN]
