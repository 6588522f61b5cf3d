"""Cases below the messages: bytes that are no frames, frames that are no requests, requests that can't be read."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from blumfeld.wire.api import ApiKey
from blumfeld.wire.headers import put_request_header
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from campaigns.bad_input.case import Case
from campaigns.bad_input.target import CLOSED, Target, name_of
from campaigns.raw_connection import ConnectionEnded

HALF_FRAMES = 50
UNKNOWN_KEY = 999
REMOVED_KEY = 4  # LeaderAndIsr: served in a cluster with a ZooKeeper only, gone in Kafka 4
CONTROLLER_KEY = int(ApiKey.BROKER_REGISTRATION)


def raw_request(key: int, version: int, body: bytes, flexible: bool = False) -> bytes:
    """A frame's payload with a header for any key and version, whether there is such an API or not."""
    return struct.pack(">hhih3s", key, version, 7, 3, b"bad") + (b"\0" if flexible else b"") + body


def _garbage(target: Target) -> str:
    return target.bytes_on_the_wire(random.Random(1).randbytes(4096).replace(b"\0", b"\x7f"))


def _half_frames(target: Target) -> str:
    """Connections that send half of a request and hang up."""
    for _ in range(HALF_FRAMES):
        with target.connect() as connection:
            whole = connection.request(MetadataRequest(topics=None), 9)
            connection.send(struct.pack(">i", len(whole)) + whole[: len(whole) // 2])
    return f"{HALF_FRAMES} ended"


def _byte_by_byte(target: Target) -> str:
    """A request whose bytes come one at a time is a request."""
    with target.connect() as connection:
        whole = connection.request(MetadataRequest(topics=None), 9)
        for byte in struct.pack(">i", len(whole)) + whole:
            connection.send(bytes([byte]))
        return f"{len(connection.answer(MetadataResponse, 9).brokers)} broker"


def _good_then_garbage(target: Target) -> str:
    """A request before the nonsense on a connection is answered; one behind it is not."""
    with target.connect() as connection:
        good = connection.request(ApiVersionsRequest(), 0)
        frame = struct.pack(">i", len(good)) + good
        bad = raw_request(UNKNOWN_KEY, 0, b"")
        connection.send(frame + struct.pack(">i", len(bad)) + bad + frame)
        first = connection.answer(ApiVersionsResponse, 0)
        try:
            connection.receive_frame()
        except ConnectionEnded:
            return f"{name_of(first.error_code)}, then {CLOSED}"
    return "the request behind the nonsense was answered"


def _future_api_versions(target: Target) -> str:
    with target.connect() as connection:
        connection.send_frame(put_request_header(int(ApiKey.API_VERSIONS), 99, 1, "bad") + b"\1\1\0")
        body = connection.receive_frame()
        correlation_id, code, count, key, _, highest = struct.unpack_from(">ihihhh", body)
        well = correlation_id == 1 and count == 1 and key == int(ApiKey.API_VERSIONS) and highest >= 4
        return f"{name_of(code)} in version 0" if well else repr(body)


def cases() -> Sequence[Case]:
    """All of them."""
    metadata, produce = int(ApiKey.METADATA), int(ApiKey.PRODUCE)

    def frame(title: str, payload: bytes, kafka: str = "") -> Case:
        return Case(title, CLOSED, lambda target: target.frame(payload), kafka=kafka)

    def wire(title: str, data: bytes) -> Case:
        return Case(title, CLOSED, lambda target: target.bytes_on_the_wire(data))

    return (
        wire("an HTTP request", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
        wire("a TLS client hello", bytes.fromhex("16030100f8010000f40303") + b"\x55" * 240),
        Case("4 kB of random bytes", CLOSED, _garbage),
        wire("a frame length of 2 GiB", struct.pack(">i", 2**31 - 1) + b"\0\0"),
        wire("a frame length of 100 MiB and a byte", struct.pack(">i", 104_857_601)),
        wire("a frame length of -1", struct.pack(">i", -1)),
        wire("an empty frame", struct.pack(">i", 0)),
        Case("half a request, then hanging up, again and again", f"{HALF_FRAMES} ended", _half_frames),
        Case("a request byte by byte", "1 broker", _byte_by_byte),
        Case("a request, nonsense, a request, in one send", f"NONE, then {CLOSED}", _good_then_garbage),
        frame("a header cut off after the API key", struct.pack(">h", metadata)),
        frame("a client id that reaches beyond the frame", struct.pack(">hhih", metadata, 9, 1, 3000)),
        frame("a header with endless tags", raw_request(metadata, 9, b"\xff" * 30)),
        frame("an unknown API key", raw_request(UNKNOWN_KEY, 0, b"")),
        frame("a negative API key", raw_request(-1, 0, b"")),
        frame("an API of ZooKeeper's time", raw_request(REMOVED_KEY, 0, bytes(40))),
        frame("a controller's API on a broker listener", raw_request(CONTROLLER_KEY, 0, bytes(60), True)),
        frame("Metadata in a version of the future", raw_request(metadata, 99, b"\0\0\0", True)),
        frame("Produce in a version that is too old", raw_request(produce, 2, bytes(40))),
        Case(
            "ApiVersions in a version of the future", "UNSUPPORTED_VERSION in version 0", _future_api_versions
        ),
        frame("a body cut off", raw_request(metadata, 1, struct.pack(">ih", 1, 50) + b"top")),
        frame("an array of 2 billion topics", raw_request(metadata, 1, struct.pack(">i", 2**31 - 1))),
        frame("a compact array of 4 billion topics", raw_request(metadata, 9, b"\xff\xff\xff\xff\x0f", True)),
        frame("a varint without end", raw_request(metadata, 9, b"\xff" * 12, True)),
        frame(
            "a string of 32 kB in 3 bytes", raw_request(metadata, 1, struct.pack(">ih", 1, 32767) + b"abc")
        ),
        frame(
            "text that is no UTF-8",
            raw_request(metadata, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"),
            kafka="takes replacement characters for it",
        ),
    )
