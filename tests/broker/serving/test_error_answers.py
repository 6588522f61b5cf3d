"""Every error that a handler may end in can be told in every version that ApiVersions lists, on each listener kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from msgspec.structs import replace

from blumfeld.broker.serving import dispatch
from blumfeld.kernel.node import Node
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.parts import join
from blumfeld.wire.api import API_BY_KEY, ApiKey, request_class, response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.headers import put_request_header, response_body_offset, response_is_flexible
from blumfeld.wire.schema import Message, fields_of
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.simulation.machine.host import plan_of
from tests.broker.harness import CONTROLLER_LISTENER, LISTENER, FakeConnection, FakeExchange
from tests.extreme_values import one_at_a_time

CODES = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


@pytest.fixture(scope="module")
def node() -> Node:
    """A combined node with every bundled plug-in, which isn't started."""
    listeners = [
        {"name": "PLAINTEXT", "bind": "127.0.0.1:9092", "inter_broker": True},
        {"name": "CONTROLLER", "kind": "controller", "bind": "127.0.0.1:9093"},
    ]
    sections = {
        "node": {"id": 1, "roles": ("broker", "controller"), "data_dir": "/data"},
        "network": {"plugin": "net_asyncio", "listeners": listeners},
    }
    plan = plan_of({"controller.quorum.voters": "1@127.0.0.1:9093"}, "storage_local", sections=sections)
    return Node(plan, FakeRuntime(0), EventLogs(lambda: lambda *_: None))


def served(node: Node, kind: str) -> list[tuple[int, int]]:
    """Each (key, version) that ApiVersions lists and that is served."""
    dispatcher: Any = node.broker.connection_handler(kind)
    listed = node.broker.advertised(kind).items()
    pairs = [(key, version) for key, (low, high) in listed for version in range(low, high + 1)]
    return [(key, version) for key, version in pairs if dispatcher.route(key, version) is not None]


TELL_NO_ERROR = [(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)]
"""Their answers have a place for the errors of directories only."""


class Raising:
    """A handler's three ways to serve, each of which ends in an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def handle(self, _request: Message, _context: RequestContext) -> Message:
        raise self.error

    def in_steps(self, _request: Message, _context: RequestContext) -> Iterator[None]:
        yield None
        raise self.error

    def completed(self, _request: Message, _context: RequestContext) -> Completion[Message]:
        answer: Completion[Message] = Completion()
        answer.fail(self.error)
        return answer


def raising(handler: ApiHandler, way: str, error: Exception) -> ApiHandler:
    """The handler, with one of its ways."""
    ways = Raising(error)
    if way == "in steps":
        return replace(handler, handle=ways.in_steps)
    return replace(handler, handle=ways.completed if way == "completed" else ways.handle)


def one_of_each(struct: type[Any]) -> dict[str, list[Any]]:
    """A value for every array of plain values, so that an error has a place for each element."""
    values: dict[str, list[Any]] = {"acks": [-1]}
    for field in fields_of(struct):
        if field.type.struct is not None:
            values |= one_of_each(field.type.struct)
        elif field.type.array:
            values[field.name] = [{"string": "x", "uuid": b"x" * 16}.get(field.type.kind, 0)]
        elif field.name in ("name", "topic_id"):
            values[field.name] = ["x"] if field.type.kind == "string" else [b"x" * 16]
    return values


def codes_in(part: Any) -> Iterator[int]:
    """The error codes of an answer, at every place."""
    for field in fields_of(type(part)):
        value = getattr(part, field.name)
        if field.name.endswith("error_code"):
            yield value
        elif field.type.struct is not None and value is not None:
            for one in value if field.type.array else [value]:
                yield from codes_in(one)


@pytest.mark.parametrize("way", ["handled", "completed", "in steps"])
@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_a_frame_whose_handler_fails_is_answered_in_every_advertised_version(
    node: Node, kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the bytes of the request to those of the answer, as the dispatcher serves them: small, and in steps. The
    answer has an error; OffsetCommit and TxnOffsetCommit say of a topic first that it isn't there.
    """
    dispatcher: Any = node.broker.connection_handler(kind)
    connection = FakeConnection(LISTENER if kind == "broker" else CONTROLLER_LISTENER)
    dispatcher.opened(connection)
    monkeypatch.setattr(dispatch, "STRAIGHT_BYTES_MAX", 0 if way == "in steps" else 1 << 20)
    monkeypatch.setattr(dispatch, "STRAIGHT_STEPS_MAX", 0)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    error = BrokerError(code, "what is wrong, and what to do next")
    unanswered = []
    for key, version in served(node, kind):
        there = dispatcher.route(key, version)
        handler = getattr(
            there, "general", there
        )._handler  # the straight way of Produce makes no errors of its own
        cls = request_class(key)
        request = next(one_at_a_time(cls, version, one_of_each(cls)))
        frame = put_request_header(key, version, 7, "stranger") + encode(request, version)
        exchange = FakeExchange(connection)
        dispatcher.replace(key, version, dispatch.Route(dispatcher, raising(handler, way, error), version))
        dispatcher.request(exchange, memoryview(bytearray(frame)))
        cast("FakeRuntime", node.composition.runtime).advance(10)
        dispatcher.replace(key, version, there)
        name = f"{API_BY_KEY[key].name} v{version}"
        if connection.closed is not None or exchange.parts is None:
            unanswered.append(f"{name}: {connection.closed}")
            connection.closed = None
            continue
        data = memoryview(exchange.data())
        correlation_id, position = response_body_offset(data, key, version)
        answer = decode(response_class(key), data, version, position)
        if correlation_id != 7 or not (any(codes_in(answer)) or (key, version) in TELL_NO_ERROR):
            unanswered.append(f"{name}: {answer}")
    assert not unanswered, "\n".join(unanswered)


@pytest.mark.parametrize("kind", ["broker", "controller"])
def test_every_error_can_be_told_in_every_advertised_version(node: Node, kind: str) -> None:
    dispatcher: Any = node.broker.connection_handler(kind)
    untold = []
    for key, version in served(node, kind):
        route = dispatcher.route(key, version)
        route = getattr(route, "general", route)  # the straight way of Produce makes no errors of its own
        for code in CODES:
            request = next(one_at_a_time(request_class(key), version, {}))  # an answer may use it up
            try:
                answer = route.error_answer(request, BrokerError(code, "what is wrong, and what to do next"))
                parts = route.encode(answer, 7)
            except Exception as error:
                untold.append(
                    f"{API_BY_KEY[key].name} v{version} {code.name}: {type(error).__name__} {error}"
                )
                continue
            header = 5 if response_is_flexible(key, version) else 4
            decode(response_class(key), join(parts)[header:], version)
    assert not untold, "\n".join(untold)
