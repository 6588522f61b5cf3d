"""The three drivers: each against a broker of this build, and against servers that end or lie."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from blumfeld.client.asyncio_connection import AsyncioConnection, connect
from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.dialed_client import DialedClient
from blumfeld.client.errors import (
    ConnectionEndedError,
    CutFrameError,
    FrameSizeError,
    NoCommonVersionError,
    NotServedError,
    WrongCorrelationIdError,
)
from blumfeld.client.versions import SPOKEN
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import Parts, join
from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import request_header, response_header
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.loop import SimulatedLoop
from blumfeld_kit.fakes.runtime import FakeRuntime

TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def versions_answer(frame: bytes, message: ApiVersionsResponse, version: int) -> bytes:
    """The answer to an ApiVersions request, in any version."""
    payload = request_header(memoryview(frame)).correlation_id.to_bytes(4, "big") + encode(message, version)
    return len(payload).to_bytes(4, "big") + payload


@contextmanager
def server(*answers: Callable[[bytes], bytes]) -> Iterator[int]:
    """A port at which each request of one connection is answered with bytes; then it is closed."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(TIMEOUT_S)

    def serve() -> None:
        client, _ = listening.accept()
        with client, client.makefile("rb") as stream:
            for answer in answers:
                client.sendall(answer(stream.read(int.from_bytes(stream.read(4), "big"))))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.join(TIMEOUT_S)
        listening.close()


def older(frame: bytes) -> bytes:
    """As Kafka 2.4 answers an ApiVersions request of version 4."""
    keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=3)]
    message = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
    return versions_answer(frame, message, 0)


def agreeing(frame: bytes) -> bytes:
    assert request_header(memoryview(frame)).api_version == 3
    keys = [ApiVersion(api_key=ApiKey.METADATA, max_version=5)]
    return versions_answer(frame, ApiVersionsResponse(api_keys=keys), 3)


# Blocking


def blocking(port: int, **options: Any) -> closing[BlockingConnection]:
    return closing(BlockingConnection("127.0.0.1", port, "t", TIMEOUT_S, **options))


@pytest.mark.parametrize("reuse", [False, True])
def test_blocking_with_a_broker(broker: EmbeddedBroker, reuse: bool) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")
    with BlockingConnection(host, int(port), "t", TIMEOUT_S, reuse=reuse) as connection:
        connection.negotiate(SPOKEN, required=[ApiKey.METADATA])
        for _ in range(3):
            connection.send(MetadataRequest())
        brokers = [connection.receive().message for _ in range(3)]
        assert all(isinstance(answer, MetadataResponse) and answer.brokers for answer in brokers)
        connection.send(MetadataRequest())  # its caller gave up
        connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        connection.close()


def test_blocking_falls_back_with_an_older_server() -> None:
    with server(older, agreeing) as port, blocking(port) as connection:
        connection.negotiate(SPOKEN)
        versions = connection.state.versions
        assert versions is not None
        assert versions.of(ApiKey.METADATA) == 5
        with pytest.raises(NoCommonVersionError):
            versions.require([ApiKey.FETCH])


def cut_answer(frame: bytes) -> bytes:
    return versions_answer(frame, ApiVersionsResponse(), 0)[:-1]


def cut_size(frame: bytes) -> bytes:
    return b"\0\0"


def no_answer(frame: bytes) -> bytes:
    return b""


def large(frame: bytes) -> bytes:
    return (1001).to_bytes(4, "big")


def another(frame: bytes) -> bytes:
    return (4).to_bytes(4, "big") + (99).to_bytes(4, "big")


FAULTS: list[tuple[Callable[[bytes], bytes], type[Exception]]] = [
    (cut_answer, CutFrameError),
    (cut_size, CutFrameError),
    (no_answer, NotServedError),
    (large, FrameSizeError),
    (another, WrongCorrelationIdError),
]


@pytest.mark.parametrize(("answer", "error"), FAULTS)
def test_blocking_names_what_is_wrong(answer: Callable[[bytes], bytes], error: type[Exception]) -> None:
    with server(answer) as port, blocking(port, frame_bytes_max=1000) as connection:
        with pytest.raises(error) as caught:
            connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert type(caught.value) is error


def test_reused_memory_holds_the_newest_frame_only() -> None:
    """It saves mapping new memory for each answer, and is asked for by name."""
    with server(agreeing_0, agreeing_0) as port, blocking(port, reuse=True) as connection:
        connection.send(ApiVersionsRequest(), 0)
        first = connection._socket.receive()
        connection.send(ApiVersionsRequest(), 0)
        assert bytes(first[:4]) == (1).to_bytes(4, "big")
        connection._socket.receive()
        assert bytes(first[:4]) == (2).to_bytes(4, "big")


def agreeing_0(frame: bytes) -> bytes:
    return versions_answer(frame, ApiVersionsResponse(), 0)


# asyncio


def test_asyncio_with_a_broker(broker: EmbeddedBroker) -> None:
    host, _, port = broker.bootstrap_servers.partition(":")

    async def main() -> None:
        connection = await connect(host, int(port), "t")
        await connection.negotiate(SPOKEN)
        answers = await asyncio.gather(*(connection.send(MetadataRequest()) for _ in range(5)))
        assert all(isinstance(answer, MetadataResponse) and answer.brokers for answer in answers)
        waits = connection.send(MetadataRequest())
        connection.close()
        connection.close()
        for answer in (waits, connection.send(MetadataRequest())):
            with pytest.raises(ConnectionAbortedError, match="closed by the client"):
                await answer
        assert not connection.is_open

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


@pytest.mark.parametrize(("answer", "error"), FAULTS)
def test_asyncio_names_what_is_wrong(answer: Callable[[bytes], bytes], error: type[Exception]) -> None:
    async def main(port: int) -> None:
        connection = await connect("127.0.0.1", port, "t")
        connection.state._cutter._frame_bytes_max = 1000
        with pytest.raises(ConnectionError) as caught:
            await connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert isinstance(caught.value.__cause__, error)
        assert not connection.is_open

    with server(answer) as port:
        asyncio.run(asyncio.wait_for(main(port), TIMEOUT_S))


def test_asyncio_warns_of_no_answer_that_nobody_waits_for() -> None:
    """A caller that sends several requests hears from the first that the connection is lost."""

    async def main() -> None:
        connection = AsyncioConnection("t", lambda _: None)
        first = connection.send(MetadataRequest(), 1)
        connection.close()
        second = connection.send(MetadataRequest(), 1)
        assert first.done()
        assert second.done()

    SimulatedLoop().run(main())  # it raises what a loop would warn of


def test_asyncio_drops_an_answer_that_its_caller_gave_up() -> None:
    async def main() -> None:
        written: list[bytes] = []
        connection = AsyncioConnection("t", written.append)
        given_up, kept = (connection.send(ApiVersionsRequest(), 0) for _ in range(2))
        given_up.cancel()
        for frame in written:
            connection.data_received(agreeing_0(frame[4:]))
        assert isinstance(await kept, ApiVersionsResponse)

    asyncio.run(main())


# Transport.dial


class Wire:
    """A transport whose only peer is the test."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = 0

    async def dial(self, *_: object) -> Wire:
        return self

    def send(self, parts: Parts) -> None:
        self.frames.append(join(parts))

    def close(self) -> None:
        self.closed += 1


def dialed() -> tuple[DialedClient, Wire, list[Completion[Message]], list[DialedClient]]:
    """A connection with two requests on their way, the first sent before it was open."""
    wire = Wire()
    gone: list[DialedClient] = []
    client = DialedClient("t", "peer:1", gone.append)
    answers: list[Completion[Message]] = [Completion(), Completion()]
    client.send(ApiVersionsRequest(), 0, answers[0])
    FakeRuntime().run(client.dial(wire, "peer", 1))  # type: ignore[arg-type]
    client.send(ApiVersionsRequest(), 0, answers[1])
    return client, wire, answers, gone


def test_records_of_a_dialed_answer_outlive_the_transport_s_memory() -> None:
    client, wire = DialedClient("t", "peer:1", lambda _: None), Wire()
    FakeRuntime().run(client.dial(wire, "peer", 1))  # type: ignore[arg-type]
    answer: Completion[Message] = Completion()
    client.send(FetchRequest(), 12, answer)
    data = PartitionData(partition_index=0, records=b"r" * 2000)
    body = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
    memory = bytearray(response_header(1, flexible=True) + encode(body, 12))
    client.frame(memoryview(memory))
    memory[:] = bytes(len(memory))  # the transport receives the next frame there
    response = answer.result()
    assert isinstance(response, FetchResponse)
    records = response.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"r" * 2000


def test_dialed_drops_a_late_answer() -> None:
    client, wire, answers, gone = dialed()
    answers[0].fail(TimeoutError())
    for frame in wire.frames:
        client.frame(memoryview(agreeing_0(frame)[4:]))
    assert isinstance(answers[1].result(), ApiVersionsResponse)
    assert not gone


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\7", b"\0\0\0\1", b"\0\0\0\1" + bytes(7)])
def test_dialed_hangs_up_on_a_wrong_answer(frame: bytes) -> None:
    client, wire, answers, gone = dialed()
    client.frame(memoryview(frame))
    for answer in answers:
        with pytest.raises(ConnectionError, match="peer:1: unreadable answer"):
            answer.result()
    assert (wire.closed, gone) == (1, [client])
    client.frame(memoryview(frame))  # what the transport had read already
    late: Completion[Message] = Completion()
    client.send(ApiVersionsRequest(), 0, late)
    assert isinstance(late.error, ConnectionError)


def test_what_breaks_the_protocol_is_a_decode_error_and_an_end_is_an_os_error() -> None:
    """So a caller needs two names, not six."""
    assert issubclass(FrameSizeError, DecodeError)
    assert issubclass(WrongCorrelationIdError, DecodeError)
    assert issubclass(CutFrameError, ConnectionEndedError)
    assert issubclass(ConnectionEndedError, OSError)
