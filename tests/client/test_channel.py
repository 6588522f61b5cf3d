"""A channel to another node, on virtual time: what each request comes to, whatever its connection does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from blumfeld.client.channel import Channel, ChannelSettings, State
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import Parts, join
from blumfeld.spi.peers import RawAnswer
from blumfeld.spi.runtime import Timer
from blumfeld.spi.security import Dialled
from blumfeld.spi.transport import ByteLayer, FrameReceiver, Limits, Transport
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.headers import request_header, response_header, response_is_flexible
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.everyday import first

SETTINGS = ChannelSettings(
    client_id="broker-3", connect_timeout_ms=1_000, backoff_ms=50, backoff_max_ms=200, idle_ms=5_000
)
OFFERED = {12: (0, 4), 18: (0, 4)}


class Connection:
    """One connection, as the other node sees it."""

    def __init__(self, peer: Peer, receiver: FrameReceiver) -> None:
        self.peer = peer
        self.receiver = receiver
        self.frames: list[bytes] = []
        self.closed = False

    def send(self, parts: Parts) -> None:
        frame = join(parts)
        header = request_header(memoryview(frame))
        if header.api_key == 18 and self.peer.answers_versions:
            self.tell_versions(header.correlation_id, header.api_version)
        else:
            self.frames.append(frame)

    def tell_versions(self, correlation_id: int, version: int) -> None:
        keys = [
            ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.peer.offered.items()
        ]
        body = encode(ApiVersionsResponse(api_keys=keys), version)
        self.receiver.frame(memoryview(bytearray(response_header(correlation_id, False) + body)))

    def answer(self, at: int, code: int) -> bytearray:
        """Answer the request ``at`` with a number; the frame, which the transport uses again."""
        header = request_header(memoryview(self.frames[at]))
        flexible = response_is_flexible(header.api_key, header.api_version)
        body = encode(HeartbeatResponse(error_code=code), header.api_version)
        frame = bytearray(response_header(header.correlation_id, flexible) + body)
        self.receiver.frame(memoryview(frame))
        return frame

    def close(self) -> None:
        self.closed = True


class Peer:
    """``Transport`` whose only other node is the test."""

    def __init__(self) -> None:
        self.dialled: list[tuple[str, int]] = []
        self.connections: list[Connection] = []
        self.offered = dict(OFFERED)
        self.answers_versions = True
        self.refuse: OSError | None = None
        self.silent = False
        self.dialling = 0
        self.limits = Limits()
        self.layers: list[Any] = []

    async def dial(
        self, host: str, port: int, receiver: FrameReceiver, limits: Any, byte_layer: Any = None
    ) -> Connection:
        self.dialled.append((host, port))
        self.limits = limits
        self.layers.append(byte_layer)
        if self.silent:
            self.dialling += 1
            try:
                await cast("Completion[None]", Completion())
            finally:
                self.dialling -= 1
        if self.refuse is not None:
            raise self.refuse
        self.connections.append(Connection(self, receiver))
        return self.connections[-1]


class World:
    """A channel and its peer."""

    def __init__(self, settings: ChannelSettings = SETTINGS, security: Any = None, seed: int = 0) -> None:
        self.runtime = FakeRuntime(seed)
        self.peer = Peer()
        self.endpoint: Endpoint | None = Endpoint("L", "peer", 9092)
        self.lost = 0
        self.channel = Channel(
            self.runtime,
            cast("Transport", self.peer),
            lambda: self.endpoint,
            "fetch at node 2",
            settings,
            security,
            self.note_lost,
        )

    def note_lost(self) -> None:
        self.lost += 1

    def send(self, timeout_ms: float = 10_000, version_max: int | None = None) -> Completion[Message]:
        sent = self.channel.send(HeartbeatRequest(group_id="g"), timeout_ms, version_max)
        self.runtime.run_turn()
        return sent

    @property
    def connection(self) -> Connection:
        return self.peer.connections[-1]


def code_of(sent: Completion[Message]) -> int:
    answer = sent.result()
    assert isinstance(answer, HeartbeatResponse)
    return answer.error_code


def test_requests_share_a_connection_and_are_answered_in_order() -> None:
    world = World()
    first, second = world.send(), world.send()
    assert world.peer.dialled == [("peer", 9092)]
    header = request_header(memoryview(world.connection.frames[0]))
    assert (header.api_key, header.api_version, header.client_id) == (12, 4, "broker-3")
    world.connection.answer(0, 1)
    world.connection.answer(1, 2)
    assert (code_of(first), code_of(second)) == (1, 2)


def test_the_end_of_an_open_connection_is_told() -> None:
    world = World()
    world.send()
    world.connection.receiver.lost("reset")
    assert world.lost == 1


def test_a_failed_dial_and_an_own_end_are_not_told() -> None:
    world = World()
    world.peer.refuse = ConnectionRefusedError()
    world.send()
    world.peer.refuse = None
    world.runtime.advance(SETTINGS.backoff_max_ms)
    world.send()
    assert world.peer.connections
    world.channel.close()
    assert world.lost == 0


def test_versions_are_negotiated_and_limited_by_the_caller() -> None:
    world = World()
    world.peer.offered[12] = (1, 3)
    world.send()
    world.send(version_max=2)
    assert [request_header(memoryview(f)).api_version for f in world.connection.frames] == [3, 2]
    refused = world.send(version_max=0)
    assert isinstance(refused.error, BrokerError)
    assert refused.error.code == ErrorCode.UNSUPPORTED_VERSION


def test_an_api_that_the_other_node_lacks_fails_only_its_request() -> None:
    world = World()
    del world.peer.offered[12]
    sent = world.send()
    assert isinstance(sent.error, BrokerError)
    assert sent.error.code == ErrorCode.UNSUPPORTED_VERSION
    assert not world.connection.closed


def test_a_request_that_times_out_closes_the_connection() -> None:
    """Its late answer would hold up all answers behind it."""
    world = World()
    late, other = world.send(timeout_ms=100), world.send()
    old = world.connection
    world.runtime.advance(101)
    assert isinstance(late.error, TimeoutError)
    assert isinstance(other.error, ConnectionError)
    assert old.closed
    later = world.send()
    world.runtime.advance(61)
    assert len(world.peer.dialled) == 2
    old.answer(0, 1)
    world.connection.answer(0, 2)
    assert code_of(later) == 2


@pytest.mark.parametrize("stuck", ["dial", "negotiation"])
def test_an_opening_that_takes_too_long_is_given_up(stuck: str) -> None:
    world = World()
    world.peer.silent = stuck == "dial"
    world.peer.answers_versions = stuck == "dial"
    sent = world.send()
    world.runtime.advance(999)
    assert not sent.done
    world.runtime.advance(2)
    assert isinstance(sent.error, TimeoutError)
    world.runtime.run_turn()
    assert world.peer.dialling == 0
    if stuck == "negotiation":
        assert world.connection.closed


def test_failures_back_off_and_a_success_ends_that() -> None:
    """50, 100, 200, 200 ms, give or take a fifth; nothing is dialled in between, and each request fails with its
    attempt.
    """
    world = World()
    world.peer.refuse = ConnectionRefusedError("nobody listens")
    began: list[float] = []
    for _ in range(5):
        sent = world.send()
        while not sent.done:
            world.runtime.advance(1)
        assert isinstance(sent.error, ConnectionError)
        assert "nobody listens" in str(sent.error)
        began.append(world.runtime.monotonic_ms())
    pauses = [b - a for a, b in itertools.pairwise(began)]
    for pause, (least, most) in zip(pauses, [(40, 61), (80, 121), (160, 201), (200, 201)], strict=True):
        assert least <= pause <= most, pauses
    assert len(world.peer.dialled) == 5
    world.peer.refuse = None
    sent = world.send()
    world.runtime.advance(201)
    world.connection.answer(0, 3)
    assert code_of(sent) == 3
    world.connection.receiver.lost("reset")
    world.send()
    world.runtime.advance(61)
    assert len(world.peer.dialled) == 7


def test_pauses_of_several_nodes_differ() -> None:
    """Nodes that lost the same node don't come back to it all at once."""
    pauses: set[int] = set()
    for seed in range(8):
        world = World(msgspec.structs.replace(SETTINGS, backoff_ms=1_000, backoff_max_ms=10_000), seed=seed)
        world.peer.refuse = ConnectionRefusedError("nobody listens")
        world.send()
        waits, ms = world.send(), 0
        while not waits.done:
            world.runtime.advance(10)
            ms += 10
        pauses.add(ms)
    assert len(pauses) > 4
    assert 800 <= min(pauses) <= max(pauses) <= 1_210


def test_a_connection_that_is_lost_with_its_last_answer_is_lost() -> None:
    world = World()
    world.peer.answers_versions = False
    sent = world.send()
    header = request_header(memoryview(world.connection.frames[0]))
    world.connection.tell_versions(header.correlation_id, header.api_version)
    world.connection.receiver.lost("reset")
    world.runtime.run_turn()
    assert isinstance(sent.error, ConnectionError)
    assert world.channel.state is State.BACKING_OFF


def test_a_new_endpoint_is_dialled_at_once() -> None:
    """Failures at the old address say nothing of it."""
    world = World()
    world.peer.refuse = ConnectionRefusedError("nobody listens")
    for _ in range(3):
        world.send()
        world.runtime.advance(201)
    world.send()
    waits = world.send()
    dialled = len(world.peer.dialled)
    world.peer.refuse = None
    world.runtime.advance(1)
    assert not waits.done
    assert len(world.peer.dialled) == dialled
    world.endpoint = Endpoint("L", "elsewhere", 9)
    later = world.send()
    assert world.peer.dialled[dialled:] == [("elsewhere", 9)]
    world.connection.answer(0, 1)
    world.connection.answer(1, 2)
    assert (code_of(waits), code_of(later)) == (1, 2)


@pytest.mark.parametrize("end", ["timeout", "loss", "close", "move"])
def test_a_caller_may_send_again_from_its_callback(end: str) -> None:
    """It is told when the channel has left the old connection, so the next request isn't lost with it."""
    world = World()
    again: list[Completion[Message]] = []
    sent = [world.send(timeout_ms=100), world.send()]
    old = world.connection
    for completion in sent:
        completion.when_done(
            lambda _: again.append(world.channel.send(HeartbeatRequest(group_id="again"), 9_000))
        )
    if end == "timeout":
        world.runtime.advance(101)
    elif end == "loss":
        world.connection.receiver.lost("reset")
    elif end == "close":
        world.channel.close()
    else:
        world.endpoint = Endpoint("L", "elsewhere", 9)
        again.append(world.send())
    world.runtime.advance(61)
    assert len(world.peer.connections) == 2
    assert end == "loss" or old.closed
    for at in range(len(again)):
        world.connection.answer(at, at)
    assert all(isinstance(answer.error, OSError) for answer in sent)
    assert sorted(code_of(answer) for answer in again) == list(range(len(again)))
    assert len(again) == (3 if end == "move" else 2)


def test_a_callback_may_close_while_waiting_requests_are_sent() -> None:
    world = World()
    world.peer.answers_versions = False
    refused = world.channel.send(HeartbeatRequest(group_id="g"), 1_000, -1)
    refused.when_done(lambda _: world.channel.close())
    behind = world.send()
    header = request_header(memoryview(world.connection.frames[0]))
    world.connection.tell_versions(header.correlation_id, header.api_version)
    world.runtime.run_turn()
    assert isinstance(refused.error, BrokerError)
    assert isinstance(behind.error, ConnectionError)
    assert world.channel.state is State.IDLE


def test_without_an_address_requests_fail_at_once() -> None:
    world = World()
    world.endpoint = None
    assert isinstance(world.send().error, ConnectionError)
    world.endpoint = Endpoint("L", "peer", 1)
    assert not world.send().done


def test_a_connection_is_idle_from_its_last_answer_on_and_opened_again() -> None:
    world = World()
    world.send()
    world.runtime.advance(6_000)
    assert not world.connection.closed, "a request waits"
    world.connection.answer(0, 1)
    world.runtime.advance(4_900)
    assert not world.connection.closed
    world.runtime.advance(200)
    assert world.connection.closed
    world.send()
    assert len(world.peer.dialled) == 2


def test_an_idle_connection_may_stay_for_ever() -> None:
    """``connections.max.idle.ms=-1``."""
    world = World(msgspec.structs.replace(SETTINGS, idle_ms=-1))
    world.send()
    world.connection.answer(0, 1)
    world.runtime.advance(10_000_000)
    assert not world.connection.closed
    assert world.peer.limits.idle_ms_max < 0  # the transport does not close it either


def test_a_long_wait_costs_no_look_each_millisecond() -> None:
    world = World(msgspec.structs.replace(SETTINGS, idle_ms=10))
    world.send(timeout_ms=5_000)
    looks: list[float] = []
    call_later = world.runtime.call_later

    def counted(delay_ms: float, callback: Callable[[], None]) -> Timer:
        looks.append(delay_ms)
        return call_later(delay_ms, callback)

    world.runtime.call_later = counted  # type: ignore[method-assign]
    world.runtime.advance(1_000)
    assert 1 <= len(looks) <= 101


def test_raw_answers_are_views_into_the_frame_of_this_turn() -> None:
    world = World()
    world.send()
    raw = world.channel.send_raw(HeartbeatRequest(group_id="g"), 1_000)
    raw_answers: list[RawAnswer] = []
    raw.when_done(lambda done: raw_answers.append(done.result()))
    world.connection.answer(0, 1)
    frame = world.connection.answer(1, 7)
    (answer,) = raw_answers
    assert decode(HeartbeatResponse, bytes(answer.body), answer.version).error_code == 7
    frame[:] = bytes(len(frame))
    assert not any(answer.body)


def test_a_raw_answer_to_another_request_closes_the_connection() -> None:
    world = World()
    raw = world.channel.send_raw(HeartbeatRequest(group_id="g"), 1_000)
    world.runtime.run_turn()
    world.connection.receiver.frame(memoryview(bytearray(b"\0\0\7\7\0")))
    assert isinstance(raw.error, ConnectionError)
    assert world.connection.closed


class Security:
    """``PeerSecurity``: a byte layer, and one request before the negotiation."""

    def __init__(self, *, refuse: bool = False, life_ms: float | None = None) -> None:
        self.refuse = refuse
        self.life_ms = life_ms
        self.hosts: list[str] = []
        self.layer: Callable[[], ByteLayer] = lambda: cast("ByteLayer", object())
        self.steps: list[str] = []

    def byte_layer(self, host: str) -> Callable[[], ByteLayer]:
        self.hosts.append(host)
        return self.layer

    async def authenticate(self, connection: Dialled) -> float | None:
        self.steps.append("authenticate")
        if self.refuse:
            raise ConnectionError("the other node refuses the password")
        return self.life_ms


def test_authentication_comes_before_the_negotiation() -> None:
    security = Security()
    world = World(security=security)
    world.peer.answers_versions = False
    world.send()
    assert world.peer.layers == [security.layer]
    assert security.steps == ["authenticate"]
    assert [request_header(memoryview(f)).api_key for f in world.connection.frames] == [18]


def test_a_connection_whose_log_in_ends_soon_is_exchanged_when_nothing_waits_on_it() -> None:
    """KIP-368: the other node would close it. No request is lost, and none is told of it."""
    world = World(security=Security(life_ms=1_000))
    first = world.send()
    old = world.connection
    world.runtime.advance(900)
    assert not old.closed, "a request waits for its answer there"
    second = world.send()
    assert not second.done
    old.answer(0, 1)
    world.runtime.run_turn()
    assert code_of(first) == 1
    assert old.closed
    assert world.connection is not old
    world.connection.answer(0, 2)
    assert code_of(second) == 2
    assert world.lost == 0


def test_a_refused_authentication_fails_what_waits() -> None:
    world = World(security=Security(refuse=True))
    sent = world.send()
    assert "refuses the password" in str(sent.error)
    assert world.connection.closed


def test_a_new_address_has_no_failures_yet() -> None:
    """The pauses of the old one say nothing about it."""
    world = World()
    world.peer.refuse = ConnectionRefusedError("no")
    for _ in range(6):
        world.send()
        world.runtime.advance(300)
    world.endpoint = Endpoint("L", "elsewhere", 9092)
    world.send()
    assert world.channel.state is State.BACKING_OFF
    world.runtime.advance(61)
    assert str(world.channel.state) == str(State.IDLE)


@pytest.mark.parametrize("seed", first(10, range(40)))
def test_each_request_ends_once_with_its_own_answer(seed: int) -> None:
    """Random requests, answers, losses, refusals, moves and waits. The answer is the request's number."""
    chance = random.Random(f"channel {seed}")
    world = World()
    numbers: dict[str, int] = {}
    ended: dict[str, list[str]] = {}
    over: list[bool] = []

    def send(raw: bool) -> None:
        name = f"g{len(numbers)}"
        numbers[name] = len(numbers)
        request, timeout_ms = HeartbeatRequest(group_id=name), chance.choice([20, 300, 5_000])
        sent: Completion[Any] = (world.channel.send_raw if raw else world.channel.send)(request, timeout_ms)
        ended[name] = []

        def note(done: Completion[Any]) -> None:
            if done.error is not None:
                assert isinstance(done.error, OSError)
                ended[name].append("error")
                if not over and world.endpoint is not None and chance.random() < 0.2:
                    send(raw)  # a caller that tries again at once
                return
            answer = done.result()
            if isinstance(answer, RawAnswer):
                answer = decode(HeartbeatResponse, bytes(answer.body), answer.version)
            assert answer.error_code == numbers[name]
            ended[name].append("answer")

        sent.when_done(note)

    def answer() -> None:
        alive = [c for c in world.peer.connections if not c.closed and c.frames]
        if alive:
            connection = chance.choice(alive)
            header = request_header(memoryview(connection.frames[0]))
            heartbeat = decode(HeartbeatRequest, connection.frames[0], header.api_version, header.body_offset)
            connection.answer(0, numbers[heartbeat.group_id])
            del connection.frames[0]

    def lose() -> None:
        alive = [c for c in world.peer.connections if not c.closed]
        if alive:
            connection = chance.choice(alive)
            connection.closed = True
            connection.receiver.lost("the network broke it")

    for _ in range(300):
        action = chance.random()
        if action < 0.4:
            send(chance.random() < 0.5)
        elif action < 0.75:
            answer()
        elif action < 0.79:
            lose()
        elif action < 0.82:
            world.peer.refuse = None if world.peer.refuse else ConnectionRefusedError("no")
        elif action < 0.84:
            world.endpoint = Endpoint("L", "peer", chance.randrange(2))
        world.runtime.advance(chance.choice([0, 1, 30, 200]))
    over.append(True)
    world.channel.stop()
    world.runtime.advance(10_000)
    assert all(len(ends) == 1 for ends in ended.values())
    assert {end for ends in ended.values() for end in ends} == {"answer", "error"}
