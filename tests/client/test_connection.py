"""The connection's state: the same stream gives the same answers wherever it is cut, and each fault has a name."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.connection import CORRELATION_ID_MAX, Answer, ClientConnection
from blumfeld.client.errors import (
    ConnectionEndedError,
    CutFrameError,
    FrameSizeError,
    UnexpectedAnswerError,
    WrongCorrelationIdError,
)
from blumfeld.client.produce import one_batch
from blumfeld.client.versions import Versions
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import request_header, response_header, response_is_flexible
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.primitives import DecodeError, EncodeError
from blumfeld.wire.schema import Message

BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def answer_to(request: bytes, message: Message, version: int | None = None) -> bytes:
    """The frame that a server sends; ``version`` is the request's if None."""
    header = request_header(memoryview(request)[4:])
    version = header.api_version if version is None else version
    flexible = response_is_flexible(header.api_key, header.api_version)
    payload = response_header(header.correlation_id, flexible) + encode(message, version)
    return len(payload).to_bytes(4, "big") + payload


def fed(
    connection: ClientConnection, stream: bytes, cuts: list[int]
) -> tuple[list[Answer], Exception | None]:
    answers: list[Answer] = []
    try:
        for start, end in pairwise(sorted({0, len(stream), *cuts})):
            connection.receive(stream[start:end])
            answers.extend(connection.answers())
    except DecodeError as error:
        return answers, error
    return answers, None


@given(st.lists(st.integers(-1, 100), max_size=6), st.sampled_from(["", "id", "size", "more"]), st.data())
def test_a_stream_gives_the_same_answers_wherever_it_is_cut(
    codes: list[int], fault: str, data: st.DataObject
) -> None:
    def made() -> tuple[ClientConnection, bytes]:
        connection = ClientConnection("c")
        stream = b""
        for number, code in enumerate(codes):
            version = number % 5  # flexible from 4 on: both forms of the header
            request = connection.frame(BEAT, version, token=number)
            stream += answer_to(request, HeartbeatResponse(error_code=code))
        connection.frame(MetadataRequest(topics=[]), 1, token="last")
        stream += {
            "": b"",
            "id": (4).to_bytes(4, "big") + (77).to_bytes(4, "big"),
            "size": (-5).to_bytes(4, "big", signed=True),
            "more": (5).to_bytes(4, "big") + (len(codes) + 1).to_bytes(4, "big") + b"\0",
        }[fault]
        return connection, stream

    whole, error = fed(*made(), [])
    assert [answer.request.token for answer in whole] == list(range(len(codes)))
    assert [getattr(answer.message, "error_code", None) for answer in whole] == codes
    kinds = {"": type(None), "id": WrongCorrelationIdError, "size": FrameSizeError, "more": DecodeError}
    assert isinstance(error, kinds[fault])
    connection, stream = made()
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    pieces, error_in_pieces = fed(connection, stream, cuts)
    assert [(each.message, each.request) for each in pieces] == [(e.message, e.request) for e in whole]
    assert (type(error_in_pieces), str(error_in_pieces)) == (type(error), str(error))


def test_a_request_has_its_size_header_and_body() -> None:
    connection = ClientConnection("me")
    first, second = connection.frame(BEAT, 3), connection.frame(BEAT, 4)
    header = request_header(memoryview(second)[4:])
    assert int.from_bytes(second[:4], "big") == len(second) - 4
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (12, 4, 2, "me")
    assert decode(HeartbeatRequest, second[4:], 4, header.body_offset) == BEAT
    assert request_header(memoryview(first)[4:]).correlation_id == 1
    assert connection.waiting == 2
    assert b"".join(bytes(p) for p in ClientConnection("me").parts(BEAT, 3)) == first[4:]  # type: ignore[arg-type]


def test_records_of_an_answer_outlive_the_next_one() -> None:
    from blumfeld.wire.messages.fetch import (
        FetchableTopicResponse,
        FetchRequest,
        FetchResponse,
        PartitionData,
    )

    connection = ClientConnection("c")
    stream = b""
    for number in range(2):
        data = PartitionData(partition_index=0, records=bytes([number]) * 2000)
        message = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        stream += answer_to(connection.frame(FetchRequest(), 12), message)
    connection.receive(stream)
    first, second = connection.answers()
    assert isinstance(first.message, FetchResponse)
    records = first.message.responses[0].partitions[0].records
    del second, connection
    assert bytes(records or b"") == bytes(2000)  # type: ignore[arg-type]


def test_correlation_ids_begin_again_at_nought() -> None:
    connection = ClientConnection("c")
    connection._last_id = CORRELATION_ID_MAX - 1
    requests = [connection.frame(BEAT, 0) for _ in range(2)]
    ids = [request_header(memoryview(request)[4:]).correlation_id for request in requests]
    assert ids == [CORRELATION_ID_MAX, 0]
    connection.receive(b"".join(answer_to(request, HeartbeatResponse()) for request in requests))
    assert len(list(connection.answers())) == 2


def test_a_request_that_has_no_form_takes_no_id_and_waits_for_nothing() -> None:
    connection = ClientConnection("c")
    with pytest.raises(EncodeError):
        connection.frame(HeartbeatRequest(group_id=None), 0)  # type: ignore[arg-type]
    with pytest.raises(EncodeError):
        connection.parts(HeartbeatRequest(group_id=None), 0)  # type: ignore[arg-type]
    assert connection.waiting == 0
    assert request_header(memoryview(connection.frame(BEAT, 0))[4:]).correlation_id == 1


def test_produce_without_acks_has_no_answer() -> None:
    connection = ClientConnection("c")
    connection.frame(one_batch("t", 0, b"", acks=0), 7)
    assert connection.waiting == 0
    connection.frame(one_batch("t", 0, b"", acks=1), 7)
    request = connection.frame(BEAT, 0)
    assert connection.waiting == 2
    assert request_header(memoryview(request)[4:]).correlation_id == 3


def test_an_answer_to_nothing_is_an_error() -> None:
    connection = ClientConnection("c")
    answer = answer_to(connection.frame(BEAT, 0), HeartbeatResponse())
    connection.receive(answer + answer)
    with pytest.raises(UnexpectedAnswerError):
        list(connection.answers())


def test_a_broken_connection_stays_broken() -> None:
    """After one bad frame nobody knows which request the next one answers."""
    connection = ClientConnection("c")
    good = answer_to(connection.frame(BEAT, 0, token="a"), HeartbeatResponse())
    connection.receive((4).to_bytes(4, "big") + (9).to_bytes(4, "big") + good)
    for _ in range(2):
        with pytest.raises(WrongCorrelationIdError, match=r"request 9, where 1 was due"):
            next(connection.answers())
    with pytest.raises(WrongCorrelationIdError):
        connection.take(good[4:])
    assert [waiting.token for waiting in connection.end()] == ["a"]
    assert connection.end() == []


@pytest.mark.parametrize("size", [-1, 0, 3, 101, 2**31 - 1])
def test_a_frame_that_may_not_be_is_refused_at_its_size(size: int) -> None:
    """Nothing of it is kept: a server can't make a client take 2 GiB."""
    connection = ClientConnection("c", frame_bytes_max=100)
    connection.frame(BEAT, 0)
    connection.receive(size.to_bytes(4, "big", signed=True))
    with pytest.raises(FrameSizeError, match=rf"{size} bytes; 4 to 100 are allowed"):
        list(connection.answers())
    largest = ClientConnection("c", frame_bytes_max=10)
    largest.receive(answer_to(largest.frame(BEAT, 1), HeartbeatResponse()))  # 4 + 4 + 2 bytes
    assert len(list(largest.answers())) == 1


def test_the_end_of_the_stream_says_where_it_came() -> None:
    request = ClientConnection("c").frame(BEAT, 0)
    answer = answer_to(request, HeartbeatResponse())
    for cut in range(1, len(answer)):
        connection = ClientConnection("c")
        connection.frame(BEAT, 0)
        connection.receive(answer[:cut])
        assert list(connection.answers()) == []
        with pytest.raises(CutFrameError, match=f"{cut} bytes into a frame"):
            connection.receive(b"")
    connection = ClientConnection("c")
    connection.receive(b"")  # nothing waits: a good end
    connection.frame(BEAT, 0)
    with pytest.raises(ConnectionEndedError, match="1 requests wait"):
        connection.receive(b"")


def test_api_versions_may_be_answered_in_version_nought() -> None:
    connection = ClientConnection("c")
    body = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(api_key=18, max_version=2)]
    )
    connection.receive(answer_to(connection.frame(ApiVersionsRequest(), 4), body, version=0))
    [answer] = connection.answers()
    assert isinstance(answer.message, ApiVersionsResponse)
    assert (answer.version, answer.message.api_keys[0].max_version) == (0, 2)


def test_a_request_goes_in_the_version_that_was_agreed_on() -> None:
    connection = ClientConnection("c", versions=Versions.fixed({12: 2}))
    assert request_header(memoryview(connection.frame(BEAT))[4:]).api_version == 2
    answer = MetadataResponse()
    connection.receive(answer_to(connection.frame(MetadataRequest(), 9), answer))
    with pytest.raises(WrongCorrelationIdError):  # the heartbeat is older
        list(connection.answers())


def test_the_state_of_a_connection_loads_no_message() -> None:
    """A broker that starts imports it for its peers, and message modules are imported on first use."""
    code = (
        "import sys, blumfeld.client.dialed_client; print([m for m in sys.modules if 'wire.messages.' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
