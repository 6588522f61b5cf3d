"""Requests to other nodes: one connection for each, answers in order, errors for who waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.broker.serving.peer_client import TransportPeerClient
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.parts import Parts, join
from blumfeld.spi.transport import FrameReceiver
from blumfeld.testing.fakes.runtime import FakeRuntime
from blumfeld.wire.codec import encode
from blumfeld.wire.headers import request_header
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.schema import Message


class Wire:
    """A transport whose only peer is the test."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []
        self.frames: list[bytes] = []
        self.receiver: FrameReceiver | None = None
        self.refuse: OSError | None = None
        self.closed = 0

    async def dial(self, host: str, port: int, receiver: FrameReceiver, *_: object) -> Wire:
        self.dialled.append((host, port))
        if self.refuse is not None:
            raise self.refuse
        self.receiver = receiver
        return self

    def send(self, parts: Parts) -> None:
        self.frames.append(join(parts))

    def close(self) -> None:
        self.closed += 1

    def answer(self, code: int, *, at: int = 0) -> None:
        header = request_header(memoryview(self.frames[at]))
        body = encode(HeartbeatResponse(error_code=code), header.api_version)
        frame = header.correlation_id.to_bytes(4, "big") + b"\0" + body
        assert self.receiver is not None
        self.receiver.frame(memoryview(frame))


class World:
    """A peer client on virtual time."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.wire = Wire()
        composition = SimpleNamespace(runtime=self.runtime, transport=self.wire, node_id=3)
        self.client = TransportPeerClient(cast("Composition", composition))

    def send(self, timeout_ms: float = 1000, port: int = 9092) -> Completion[Message]:
        sent = self.client.send("peer", port, HeartbeatRequest(group_id="g"), 4, timeout_ms)
        self.runtime.run_turn()
        return sent


def code_of(sent: Completion[Message]) -> Any:
    answer = sent.result()
    assert isinstance(answer, HeartbeatResponse)
    return answer.error_code


def test_requests_share_a_connection_and_are_answered_in_order() -> None:
    world = World()
    first, second = world.send(), world.send()
    assert world.wire.dialled == [("peer", 9092)]
    header = request_header(memoryview(world.wire.frames[0]))
    assert (header.api_key, header.api_version, header.client_id) == (12, 4, "broker-3")
    world.wire.answer(1)
    world.wire.answer(2, at=1)
    assert (code_of(first), code_of(second)) == (1, 2)
    world.send(port=9093)
    assert len(world.wire.dialled) == 2


def test_a_late_answer_is_dropped_and_the_next_still_fits() -> None:
    world = World()
    late = world.send(timeout_ms=100)
    world.runtime.advance(101)
    assert isinstance(late.error, TimeoutError)
    later = world.send()
    world.wire.answer(1)
    world.wire.answer(2, at=1)
    assert code_of(later) == 2


def test_a_peer_that_is_not_there_fails_the_request_and_is_dialled_again() -> None:
    world = World()
    world.wire.refuse = ConnectionRefusedError("nobody listens")
    assert isinstance(world.send().error, OSError)
    world.wire.refuse = None
    assert not world.send().done
    assert len(world.wire.dialled) == 2


def test_a_lost_connection_fails_what_is_open() -> None:
    world = World()
    sent = world.send()
    assert world.wire.receiver is not None
    world.wire.receiver.lost("reset")
    with pytest.raises(ConnectionError, match="reset"):
        sent.result()
    world.send()
    assert len(world.wire.dialled) == 2


def test_an_unreadable_answer_closes_the_connection() -> None:
    world = World()
    sent = world.send()
    assert world.wire.receiver is not None
    world.wire.receiver.frame(memoryview(b"\0\0"))
    assert isinstance(sent.error, OSError)
    assert world.wire.closed == 1


def test_after_a_stop_nothing_is_sent() -> None:
    world = World()
    sent = world.send()
    world.runtime.run(world.client.stop())
    assert isinstance(sent.error, OSError)
    assert isinstance(world.send().error, OSError)
    assert len(world.wire.frames) == 1
