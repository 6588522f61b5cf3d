"""Request and response headers, read and written without the codec, because one stands before every message.

A request's header is v1, or v2 (with a tag section) if the request's version is flexible; the client id
keeps its classic form in both. A response's header is v0, or v1 (with a tag section) if flexible.
ApiVersions always has v0, because a client reads it before it knows which versions the broker supports
(KIP-511).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from blumfeld.wire.api_table import APIS, ApiKey
from blumfeld.wire.primitives import DecodeError, skip_tags

_FIXED = struct.Struct(">hhih")
_RESPONSE_V0 = struct.Struct(">i")
_RESPONSE_V1 = struct.Struct(">ix")
_FLEXIBLE_FROM = {info.key: info.flexible_from for info in APIS.values()}


class RequestHeader(NamedTuple):
    """A request's header. The body begins at ``body_offset`` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def request_header(frame: memoryview) -> RequestHeader:
    """Parse the header of the request that fills ``frame`` (without its length prefix).

    Unknown versions are read by the same rule, so that an ApiVersions request of a future version can be
    answered. The caller decides whether a version is served.

    :raises DecodeError: truncated, or a key that the protocol does not have (any more): close the
        connection
    """
    try:
        key, version, correlation_id, size = _FIXED.unpack_from(frame)
        flexible_from = _FLEXIBLE_FROM[key]
    except struct.error:
        raise DecodeError(f"{len(frame)} bytes are not a request header") from None
    except KeyError:
        raise DecodeError(f"no API has the key {key}") from None
    pos = 10
    client_id = None
    if size >= 0:
        pos += size
        if pos > len(frame):
            raise DecodeError("the client id reaches beyond the end")
        try:
            client_id = str(frame[10:pos], "utf-8")
        except UnicodeDecodeError as error:
            raise DecodeError(f"client id: {error}") from None
    if version >= flexible_from:
        if pos < len(frame) and not frame[pos]:
            pos += 1
        else:
            pos = skip_tags(frame, pos, len(frame))
    return RequestHeader(key, version, correlation_id, client_id, pos)


def put_request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Returns the header for a request of this API and version."""
    content = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(content)
    tags = b"\0" if version >= _FLEXIBLE_FROM[key] else b""
    return _FIXED.pack(key, version, correlation_id, size) + content + tags


def response_header(correlation_id: int, flexible: bool) -> bytes:
    """Returns the header of an answer: v1 if ``flexible``, else v0. See :func:`response_is_flexible`."""
    return (_RESPONSE_V1 if flexible else _RESPONSE_V0).pack(correlation_id)


def response_is_flexible(key: int, version: int) -> bool:
    """Whether the answer's header is v1.

    :raises KeyError: no API has this key
    """
    return version >= _FLEXIBLE_FROM[key] and key != ApiKey.API_VERSIONS


def response_body_offset(frame: memoryview, key: int, version: int) -> tuple[int, int]:
    """For a client: parse the header of the answer that fills ``frame``. Returns its correlation id and where
    the body begins.

    :raises DecodeError: truncated
    """
    try:
        (correlation_id,) = _RESPONSE_V0.unpack_from(frame)
    except struct.error:
        raise DecodeError(f"{len(frame)} bytes are not a response header") from None
    if response_is_flexible(key, version):
        return correlation_id, skip_tags(frame, 4, len(frame))
    return correlation_id, 4
