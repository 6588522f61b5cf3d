"""The shared transport closes connections whose peer is idle, and only those."""

from __future__ import annotations

from typing import Any, cast

from blumfeld.net.connections.dialled import OutboundConnection
from blumfeld.net.send_queue import SendQueue
from blumfeld.net.transport import SWEEPS_PER_IDLE_TIME, BaseTransport
from blumfeld.net.turn import ReceivePool, Turn
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.transport import ByteLayer, FrameReceiver, Limits
from blumfeld_kit.fakes.runtime import FakeRuntime

IDLE_MS = 8_000
SWEEP_MS = IDLE_MS / SWEEPS_PER_IDLE_TIME


class StallingRuntime(FakeRuntime):
    """Virtual time in which the loop may stand still: timers fire late by that."""

    lost_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.lost_ms


class Peer(OutboundConnection):
    """A connection without a socket."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reasons: list[str] = []

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def hang_up(self, reason: str) -> None:
        self.reasons.append(reason)


class Driver(BaseTransport):
    """Dials peers that are no sockets."""

    def make_turn(self) -> Turn:
        return Turn(self.runtime, lambda context: None, ReceivePool(1_024))

    async def connect(self, host: str, port: int) -> object:
        return object()

    def outbound(
        self, turn: Turn, sock: Any, receiver: FrameReceiver, limits: Limits, layer: ByteLayer | None
    ) -> Peer:
        return Peer(turn, SendQueue(), receiver, limits, layer, self.forget_dialled)


def dialled(quiet_ms: float = 0) -> tuple[StallingRuntime, Peer]:
    """A new connection of a transport that was quiet for so long."""
    runtime = StallingRuntime()
    driver = Driver(runtime, cast("EventLog", None))
    driver.turn()
    runtime.advance(quiet_ms)
    receiver = cast("FrameReceiver", None)
    peer = runtime.run(driver.dial("nowhere", 1, receiver, Limits(idle_ms_max=IDLE_MS)))
    assert isinstance(peer, Peer)
    return runtime, peer


def test_an_idle_peer_is_closed_within_an_eighth_of_its_time() -> None:
    runtime, peer = dialled()
    runtime.advance(IDLE_MS - 1)
    assert peer.reasons == []
    runtime.advance(SWEEP_MS)
    assert peer.reasons == [f"idle for {IDLE_MS} ms"]


def test_a_new_peer_has_its_whole_time_however_quiet_the_node_was() -> None:
    runtime, peer = dialled(quiet_ms=10 * IDLE_MS)
    runtime.advance(IDLE_MS - 1)
    assert peer.reasons == []


def test_time_in_which_the_loop_stood_still_is_not_the_peers() -> None:
    """The peer's next request lies unread meanwhile, or its answer has just left."""
    runtime, peer = dialled()
    runtime.lost_ms = 2 * IDLE_MS
    runtime.advance(IDLE_MS - SWEEP_MS)
    assert peer.reasons == []
    runtime.advance(2 * SWEEP_MS)
    assert peer.reasons == [f"idle for {IDLE_MS} ms"], "it is idle all the same"
