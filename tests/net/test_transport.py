"""The shared transport closes connections whose peer is idle, and only those."""

from __future__ import annotations

from typing import Any, cast

from blumfeld.net.receive import ReceivePool
from blumfeld.net.transport import SWEEPS_PER_IDLE_TIME, BaseTransport
from blumfeld.net.turn import Turn
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.transport import FrameReceiver, Limits
from blumfeld.testing.fakes.runtime import FakeRuntime

IDLE_MS = 8_000
SWEEP_MS = IDLE_MS / SWEEPS_PER_IDLE_TIME


class StallingRuntime(FakeRuntime):
    """Virtual time in which the loop may stand still: timers fire late by that."""

    lost_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.lost_ms


class Peer:
    """A connection that was active at some time."""

    def __init__(self, active_ms: float) -> None:
        self.active_ms = active_ms
        self.reasons: list[str] = []

    def begin(self) -> None:
        pass

    def idle_since(self) -> float:
        return self.active_ms

    def die(self, reason: str) -> None:
        self.reasons.append(reason)


class Driver(BaseTransport):
    """Dials peers that are no sockets."""

    def make_turn(self) -> Turn:
        return Turn(self.runtime, lambda context: None, ReceivePool(1_024))

    async def connect(self, host: str, port: int) -> object:
        return object()

    def outbound(self, turn: Turn, *_: Any) -> Any:
        return Peer(turn.now_ms)


def dialled() -> tuple[StallingRuntime, Peer]:
    runtime = StallingRuntime()
    driver = Driver(runtime, cast("EventLog", None))
    receiver = cast("FrameReceiver", None)
    peer = cast("Peer", runtime.run(driver.dial("nowhere", 1, receiver, Limits(idle_ms_max=IDLE_MS))))
    peer.active_ms = runtime.monotonic_ms()
    return runtime, peer


def test_an_idle_peer_is_closed_within_an_eighth_of_its_time() -> None:
    runtime, peer = dialled()
    runtime.advance(IDLE_MS - 1)
    assert peer.reasons == []
    runtime.advance(SWEEP_MS)
    assert peer.reasons[:1] == [f"idle for {IDLE_MS} ms"]


def test_time_in_which_the_loop_stood_still_is_not_the_peers() -> None:
    """The peer's next request lies unread meanwhile, or its answer has just left."""
    runtime, peer = dialled()
    runtime.lost_ms = 2 * IDLE_MS
    runtime.advance(IDLE_MS - SWEEP_MS)
    assert peer.reasons == []
    runtime.advance(2 * SWEEP_MS)
    assert peer.reasons[:1] == [f"idle for {IDLE_MS} ms"], "it is idle all the same"
