"""From frame to handler: what is answered, what closes the connection, what is counted."""

from __future__ import annotations

import dis
import inspect
import struct
import sys
from types import MemberDescriptorType
from typing import Any, cast

import pytest

from blumfeld.broker.serving.counts import LATENCY_BOUNDS_MS, ApiCounts, NodeMetrics
from blumfeld.broker.serving.dispatch import Route
from blumfeld.broker.serving.request import Request
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import NO_ANSWER, ApiHandler, Principal, RequestContext
from blumfeld.spi.repeated_events import INTERVAL_MS
from blumfeld.spi.transport import Listener
from blumfeld.wire.errors import BrokerError, ErrorCode, PluginContractError
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.metadata import MetadataRequest
from tests.broker.batches import batch, produce
from tests.broker.harness import CONTROLLER_LISTENER, BrokerHarness, Permissions, failing


def api_versions(name: str = "librdkafka", version: str = "2.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def heartbeats(handle: Any, versions: tuple[int, int] = (0, 4)) -> ApiHandler:
    return ApiHandler(
        key=12,
        min_version=versions[0],
        max_version=versions[1],
        handle=handle,
        error_response=lambda request, code, message: HeartbeatResponse(error_code=code),
    )


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness()


@pytest.mark.parametrize("version", range(5))
def test_api_versions_shows_what_is_registered(broker: BrokerHarness, version: int) -> None:
    answer = broker.ask(api_versions(), version)
    shown = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert shown == broker.broker.advertised("broker")
    assert shown[0] == (0, 13), "KAFKA-18659"
    assert shown[1] == (4, 18)
    if version >= 3:
        features = [(feature.name, feature.max_version_level) for feature in answer.finalized_features]
        assert features == [("metadata.version", 30)]
        assert answer.finalized_features_epoch == 5


def test_a_controller_listener_shows_its_own(broker: BrokerHarness) -> None:
    shown = broker.broker.advertised("controller")
    assert 18 in shown
    assert 0 not in shown
    answer = broker.ask(api_versions(), 3, connection=broker.connect(CONTROLLER_LISTENER))
    assert {api.api_key for api in answer.api_keys} == set(shown)


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("-x", "1"), ("x", "1 2"), ("x", "v/1")])
def test_client_software_must_have_a_plain_name(broker: BrokerHarness, name: str, version: str) -> None:
    assert broker.ask(api_versions(name, version), 3).error_code == ErrorCode.INVALID_REQUEST


def test_api_versions_from_the_future_is_answered_in_version_0(broker: BrokerHarness) -> None:
    frame = broker.frame(api_versions(), 3)
    struct.pack_into(">h", frame, 2, 77)
    data = broker.send_frame(frame).data()
    correlation_id, code, count, key, low, high = struct.unpack(">ihihhh", data)
    assert (correlation_id, code, count) == (1, ErrorCode.UNSUPPORTED_VERSION, 1)
    assert (key, low, high) == (18, 0, 4)
    assert broker.connection.closed is None


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "too short"),
        (b"\x00\x12\x00", "too short"),
        (struct.pack(">hhih", 4, 0, 1, -1), "not served"),
        (struct.pack(">hhih", 999, 0, 1, -1), "API key 999"),
        (struct.pack(">hhih", -1, 0, 1, -1), "not served"),
        (struct.pack(">hhih", 3, 14, 1, -1), "Metadata v14"),
        (struct.pack(">hhih", 0, 2, 1, -1), "Produce v2"),
        (struct.pack(">hhih", 18, -1, 1, -1), "ApiVersions v-1"),
        (struct.pack(">hhih", 3, 9, 1, -1), "cut off"),
        (struct.pack(">hhih", 3, 9, 1, 500), "cut off"),
        (struct.pack(">hhih", 3, 1, 1, 4) + b"ab", "client id is cut off"),
        (struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe\xff\xff\xff\xff", "client id"),
        (struct.pack(">hhih", 3, 1, 1, -1) + b"\x7f\xff\xff\xff", "can't be read"),
        (struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\xff\xff", "cut off"),
    ],
)
def test_what_cannot_be_answered_closes_the_connection(broker: BrokerHarness, frame: bytes, why: str) -> None:
    exchange = broker.send_frame(bytearray(frame))
    assert exchange.unanswered
    assert broker.connection.closed is not None
    assert why in broker.connection.closed
    fresh = broker.connect()
    assert not broker.send_frame(broker.frame(api_versions(), 3), fresh).unanswered, "the broker serves on"


def test_a_flood_of_refusals_is_two_lines_for_each_address_and_reason(broker: BrokerHarness) -> None:
    """The first at once, and how many followed; another reason has lines of its own."""
    before = len(broker.log.events)
    for size in (2, 3) * 500:
        broker.send_frame(bytearray(size), broker.connect())
        broker.send_frame(bytearray(struct.pack(">hhih", 3, 9, 1, -1)), broker.connect())
    broker.runtime.advance(INTERVAL_MS)
    lines = [values for _, _, values in broker.log.events[before:]]
    assert len(lines) == 6, "a frame of 2 bytes, one of 3, and a header that is cut off"
    assert sum(line.get("suppressed", 1) for line in lines) == 2_000
    assert all(line["peer"] for line in lines)


def test_tags_in_the_request_header_are_skipped(broker: BrokerHarness) -> None:
    frame = broker.frame(MetadataRequest(topics=[]), 9)
    at = 10 + len("test")
    tagged = frame[:at] + b"\x01\x05\x02ab" + frame[at + 1 :]
    assert broker.send_frame(tagged).data() == broker.send_frame(frame).data()


def test_a_null_client_id_is_empty(broker: BrokerHarness) -> None:
    seen: list[RequestContext] = []

    def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        seen.append(context)
        return HeartbeatResponse()

    broker.broker.register([heartbeats(handle)])
    frame = broker.frame(HeartbeatRequest(), 0, client_id="me")
    anonymous = frame[:8] + b"\xff\xff" + frame[12:]
    broker.send_frame(frame)
    broker.send_frame(anonymous)
    broker.send_frame(frame)
    assert [context.client_id for context in seen] == ["me", "", "me"]
    first = seen[0]
    assert (first.api_key, first.api_version, first.peer_host) == (12, 0, "127.0.0.1")
    assert str(first.principal) == "User:ANONYMOUS"
    assert first.authorize("Read", "Group", "g")


def test_an_answer_may_come_later(broker: BrokerHarness) -> None:
    later: Completion[HeartbeatResponse] = Completion()
    broker.broker.register([heartbeats(lambda request, context: later)])
    exchange = broker.send(HeartbeatRequest(), 4)
    assert not exchange.settled
    later.complete(HeartbeatResponse(error_code=27))
    assert broker.response(exchange, HeartbeatRequest(), 4).error_code == 27


def failing_later(error: Exception) -> Any:
    def handle(*_: object) -> Completion[HeartbeatResponse]:
        later: Completion[HeartbeatResponse] = Completion()
        later.fail(error)
        return later

    return handle


@pytest.mark.parametrize("way", [failing, failing_later])
def test_an_error_becomes_the_answers_error(broker: BrokerHarness, way: Any) -> None:
    broker.broker.register([heartbeats(way(BrokerError(ErrorCode.ILLEGAL_GENERATION)))])
    assert broker.ask(HeartbeatRequest(), 4).error_code == ErrorCode.ILLEGAL_GENERATION
    assert not [event for event in broker.log.events if event[0] == "error"]


@pytest.mark.parametrize("way", [failing, failing_later])
def test_a_defect_is_logged_and_answered_as_unknown(broker: BrokerHarness, way: Any) -> None:
    broker.broker.register([heartbeats(way(ZeroDivisionError()))])
    assert broker.ask(HeartbeatRequest(), 4).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [event[1] for event in broker.log.events if event[0] == "error"] == ["handler failed"]


def test_a_defect_that_a_client_causes_again_and_again_has_one_traceback(broker: BrokerHarness) -> None:
    broker.broker.register([heartbeats(failing(ZeroDivisionError()))])
    for _ in range(50):
        broker.ask(HeartbeatRequest(), 4)
    broker.runtime.advance(INTERVAL_MS)
    lines = [values for _, event, values in broker.log.events if event == "handler failed"]
    assert ["exc_info" in line for line in lines] == [True, False]
    assert lines[1]["suppressed"] == 49


def test_an_answer_that_cannot_be_encoded_closes_the_connection(broker: BrokerHarness) -> None:
    broker.broker.register([heartbeats(lambda request, context: HeartbeatResponse(error_code=1 << 20))])
    assert broker.send(HeartbeatRequest(), 4).unanswered
    assert broker.connection.closed is not None


def test_a_handler_may_close_the_connection(broker: BrokerHarness) -> None:
    def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        context.close_connection("no more")
        return HeartbeatResponse()

    broker.broker.register([heartbeats(handle)])
    assert broker.send(HeartbeatRequest(), 4).unanswered
    assert broker.connection.closed == "no more"


def test_a_throttled_client_is_told_and_read_no_more(broker: BrokerHarness) -> None:
    """The longest of several counts; the answer itself goes out at once."""

    def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        context.throttle(250.0)
        context.throttle(100.0)
        return HeartbeatResponse()

    broker.broker.register([heartbeats(handle)])
    before = broker.runtime.monotonic_ms()
    assert broker.ask(HeartbeatRequest(), 4).throttle_time_ms == 250
    assert broker.connection.muted_until_ms == before + 250.0


def test_two_handlers_for_one_version_are_a_mistake(broker: BrokerHarness) -> None:
    def quiet(*_: object) -> Any:
        return NO_ANSWER

    broker.broker.register([heartbeats(quiet, (0, 2)), heartbeats(quiet, (3, 4))])
    assert broker.broker.advertised("broker")[12] == (0, 4)
    with pytest.raises(PluginContractError, match="Heartbeat v2"):
        broker.broker.register([heartbeats(quiet, (2, 2))])
    assert broker.send(HeartbeatRequest(), 4).unanswered
    assert broker.connection.closed is None


class Counting:
    """``RequestMetrics`` with the counts of each API as the kernel has them."""

    def __init__(self) -> None:
        self.produce = ApiCounts()
        self.apis = {0: self.produce}
        self.connections = 0

    def counts_of(self, key: int) -> ApiCounts:
        return self.apis.setdefault(key, ApiCounts())

    def opened(self, listener: Listener) -> None:
        self.connections += 1

    def closed(self, listener: Listener) -> None:
        self.connections -= 1


def test_requests_and_connections_are_counted() -> None:
    metrics = Counting()
    broker = BrokerHarness(metrics=metrics, partitions=1)
    broker.ask(api_versions(), 3)
    broker.ask(api_versions(), 3)
    assert list(metrics.apis) == [0, 18]
    counts = metrics.apis[18]
    assert (counts.requests, counts.time_ms) == (2, 0.0)
    assert min(counts.request_bytes, counts.response_bytes) > 0
    broker.ask(produce(batch()), 9)
    assert metrics.produce.requests == 1
    assert metrics.produce.request_bytes > 61
    assert 0 < metrics.produce.response_bytes < 61
    answered_bytes = metrics.produce.response_bytes
    broker.send(produce(batch(), acks=0), 9)
    assert (metrics.produce.requests, metrics.produce.response_bytes) == (2, answered_bytes)
    assert metrics.produce.time_ms == 0.0
    assert metrics.connections == 1
    broker.broker.connection_handler("broker").closed(broker.connection, "bye")
    assert metrics.connections == 0


def in_buckets(*took_ms: float) -> list[int]:
    """The histogram of these latencies, counted the plain way."""
    histogram = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    for one in took_ms:
        histogram[sum(bound_ms < one for bound_ms in LATENCY_BOUNDS_MS)] += 1
    return histogram


def measured() -> tuple[NodeMetrics, BrokerHarness]:
    """Counts that somebody reads, and a broker that counts there."""
    metrics = NodeMetrics()
    metrics.measure_latencies()
    return metrics, BrokerHarness(metrics=metrics)


@pytest.mark.parametrize("acks", [1, -1, 0])
def test_the_straight_way_sorts_requests_into_the_histogram(acks: int) -> None:
    metrics, broker = measured()
    broker.create_topic("t")
    log = broker.log_of("t")
    took = (0.0, 7.0, 7.5, 400.0, 0.2, 9_000.0, 7.0)
    for number, took_ms in enumerate(took, 1):
        log.hold_writes = True
        broker.send(produce(batch(), acks=acks, timeout_ms=10_000), 9)
        broker.runtime.advance(took_ms)
        log.let_write()
        broker.runtime.run_turn()
        assert metrics.counts_of(0).latencies() == in_buckets(*took[:number])
    assert metrics.counts_of(0).requests == len(took)


def test_the_general_way_sorts_requests_into_the_histogram() -> None:
    metrics, broker = measured()
    waiting: list[Completion[HeartbeatResponse]] = []

    def handle(request: HeartbeatRequest, context: RequestContext) -> Completion[HeartbeatResponse]:
        waiting.append(Completion())
        return waiting[-1]

    broker.broker.register([heartbeats(handle)])
    took = (0.0, 3.0, 60.0, 3.0)
    for number, took_ms in enumerate(took, 1):
        broker.send(HeartbeatRequest(), 4)
        broker.runtime.advance(took_ms)
        waiting.pop().complete(HeartbeatResponse())
        broker.runtime.run_turn()
        assert metrics.counts_of(12).latencies() == in_buckets(*took[:number])


def test_requests_before_the_metrics_endpoint_opens_are_not_in_the_histogram() -> None:
    metrics = NodeMetrics()
    broker = BrokerHarness(metrics=metrics, partitions=1)
    broker.send(produce(batch()), 9)
    assert metrics.counts_of(0).requests == 1
    metrics.measure_latencies()
    assert metrics.counts_of(0).latencies() == in_buckets()


def test_every_handler_asks_the_authorizer() -> None:
    permissions = Permissions()
    broker = BrokerHarness(authorizer=permissions, partitions=1)
    assert broker.produced() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert permissions.asked == [("Write", "Topic", "t")]


@pytest.mark.parametrize("by", ["the request", "the handler in front"])
def test_the_principal_of_a_live_connection_may_change(by: str) -> None:
    """Its requests that wait have the new one too, other connections keep theirs (KIP-368)."""
    alice = Principal("alice")
    permissions = Permissions(lambda *_: True)
    broker = BrokerHarness(authorizer=permissions)
    seen: list[RequestContext] = []

    def handle(request: HeartbeatRequest, context: RequestContext) -> Completion[HeartbeatResponse]:
        seen.append(context)
        return Completion()

    broker.broker.register([heartbeats(handle)])
    broker.send(HeartbeatRequest(), 4)
    other = broker.connect()
    broker.send_frame(broker.frame(HeartbeatRequest(), 4), other)
    if by == "the request":
        seen[0].set_principal(alice)
    else:
        front = broker.broker.connection_handler("broker")
        front.set_principal(cast("Any", broker.connection), alice)
    broker.send(HeartbeatRequest(), 4)
    assert [str(context.principal) for context in seen] == ["User:alice", "User:ANONYMOUS", "User:alice"]
    assert all(context.authorize("Read", "Group", "g") for context in seen)
    asked_for = [principal for principal, _ in permissions.asked_for]
    assert asked_for == ["User:alice", "User:ANONYMOUS"], "an allowed verdict is remembered for a connection"
    assert ApiVersionsResponse().error_code == 0


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions specialize other instructions")
def test_a_request_meets_no_look_up_that_cpython_cannot_specialize(broker: BrokerHarness) -> None:
    # Each fetch that waits passes these. One look-up the slow way costs it nearly 0.1 % of its instructions.
    for _ in range(100):
        broker.ask(api_versions(), 0)
    context_lookups = {
        (step.argval, step.opname)
        for step in dis.get_instructions(Route.serve, adaptive=True)
        if step.argval == "context_class"
    }
    assert context_lookups == {("context_class", "LOAD_ATTR_INSTANCE_VALUE")}
    assert isinstance(inspect.getattr_static(Request, "rights_generation"), MemberDescriptorType)
    assert Request.authorize.__code__.co_kwonlyargcount == 0
