"""Headers against the messages of the same name, and the rules that the schemas do not say."""

from __future__ import annotations

import pytest

from blumfeld.wire import codec
from blumfeld.wire.api import API_BY_KEY, ApiKey
from blumfeld.wire.headers import (
    RequestHeader,
    put_request_header,
    request_header,
    response_body_offset,
    response_header,
    response_is_flexible,
)
from blumfeld.wire.messages import headers
from blumfeld.wire.primitives import DecodeError


@pytest.mark.parametrize("client_id", [None, "", "client-é"])
def test_request_headers_are_what_the_codec_writes(client_id: str | None) -> None:
    for info in API_BY_KEY.values():
        for version in range(info.min_version, info.max_version + 1):
            message = headers.RequestHeader(
                request_api_key=info.key, request_api_version=version, correlation_id=77, client_id=client_id
            )
            data = codec.encode(message, 2 if version >= info.flexible_from else 1)
            assert put_request_header(info.key, version, 77, client_id) == data
            assert request_header(memoryview(data + b"body")) == RequestHeader(
                info.key, version, 77, client_id, len(data)
            )


def test_an_api_versions_request_from_the_future_is_read_with_header_v2() -> None:
    frame = memoryview(bytes.fromhex("0012 7fff 00000001 0001 63 01 05 00") + b"future")
    assert request_header(frame) == RequestHeader(18, 32767, 1, "c", 14)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "0012 0000 00000001",
        "0012 0000 00000001 0005 63",
        "0012 0003 00000001 ffff",
        "0012 0003 00000001 ffff 80",
        "0012 0003 00000001 ffff 01 00 7f",
        "0012 0000 00000001 0001 ff",
        "7fff 0000 00000001 ffff",
        "ffff 0000 00000001 ffff",
    ],
)
def test_what_is_no_header_is_refused_by_one_error(frame: str) -> None:
    """Truncated, bad UTF-8, keys that never were."""
    with pytest.raises(DecodeError):
        request_header(memoryview(bytes.fromhex(frame)))


def test_response_headers_are_flexible_but_for_api_versions() -> None:
    assert response_header(5, False) == codec.encode(headers.ResponseHeader(correlation_id=5), 0)
    assert response_header(5, True) == codec.encode(headers.ResponseHeader(correlation_id=5), 1)
    assert not response_is_flexible(ApiKey.API_VERSIONS, 4)
    assert not response_is_flexible(ApiKey.PRODUCE, 8)
    assert response_is_flexible(ApiKey.PRODUCE, 9)


def test_a_client_finds_the_body_of_an_answer() -> None:
    frame = memoryview(response_header(9, True) + b"body")
    assert response_body_offset(frame, ApiKey.PRODUCE, 9) == (9, 5)
    assert response_body_offset(frame, ApiKey.API_VERSIONS, 4) == (9, 4)
    with pytest.raises(DecodeError):
        response_body_offset(frame[:3], ApiKey.PRODUCE, 9)
