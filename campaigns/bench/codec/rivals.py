"""One message in three codecs: ours, kio's and kafka-python's.

A rival decodes our bytes, and must encode the decoded message to the same bytes. Then all codecs hold the same
message in their own objects. Look-ups that lead to a codec are done before the timing, so that only the call is timed
that an application makes.
"""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Callable
from typing import Any

import attrs

from blumfeld.wire import codec
from blumfeld.wire.messages.headers import RequestHeader, ResponseHeader
from blumfeld.wire.schema import Message
from campaigns.bench.codec.messages import Case

KAFKA_PYTHON_MODULES = {
    "Metadata": "kafka.protocol.metadata",
    "Produce": "kafka.protocol.producer",
    "Fetch": "kafka.protocol.consumer",
}


class IncomparableError(ValueError):
    """The codec has no such message or version, or encodes it to other bytes."""


@attrs.frozen
class Contestant:
    """A codec that holds one message."""

    name: str
    encode: Callable[[], bytes | bytearray]
    decode: Callable[[], object]


def contestants(case: Case) -> tuple[Contestant, list[Contestant], list[str]]:
    """Return ours, the rivals that produce the same bytes, and the reasons why others are missing.

    kafka-python has protocol classes of this kind from 3.0 on.
    """
    data = codec.encode(case.message, case.version)
    ours = _ours(case, data)
    rivals, missing = [], []
    for made in (_kio, _kafka_python):
        try:
            rivals.append(made(case, data))
        except (IncomparableError, ImportError) as error:
            missing.append(f"{case.name}: {error}")
    return ours, rivals, missing


def _ours(case: Case, data: bytes) -> Contestant:
    message, version, cls = case.message, case.version, type(case.message)
    if codec.encode(codec.decode(cls, data, version), version) != data:
        raise AssertionError(f"{case.name} does not survive our own codec")
    return Contestant(
        "blumfeld", lambda: codec.encode(message, version), lambda: codec.decode(cls, data, version)
    )


def _kio(case: Case, data: bytes) -> Contestant:
    from kio.serial import entity_reader, entity_writer

    entity = _kio_entity(type(case.message), case.version)
    read, write = entity_reader(entity), entity_writer(entity)
    message, size = read(data, 0)

    def encode() -> bytes:
        buffer = io.BytesIO()
        write(buffer, message)
        return buffer.getvalue()

    _same("kio", encode(), data, size)
    return Contestant("kio", encode, lambda: read(data, 0))


def _kio_entity(cls: type[Message], version: int) -> Any:
    name = cls.__name__
    kind = "header" if name.endswith("Header") else "request" if name.endswith("Request") else "response"
    api = name if kind == "header" else name.removesuffix(kind.capitalize())
    room = re.sub("(?<=.)(?=[A-Z])", "_", api).lower()
    module = f"kio.schema.{room}.v{version}.{kind}"
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise IncomparableError(f"kio has none ({error})") from None


def _kafka_python(case: Case, data: bytes) -> Contestant:
    cls, version = type(case.message), case.version
    if cls in (RequestHeader, ResponseHeader):
        return _kafka_python_header(cls, data)
    name = re.sub("(Request|Response)$", "", cls.__name__)
    if name not in KAFKA_PYTHON_MODULES:
        raise IncomparableError("not looked for in kafka-python")
    theirs = getattr(importlib.import_module(KAFKA_PYTHON_MODULES[name]), cls.__name__)
    if not 0 <= version <= theirs.max_version:
        raise IncomparableError(f"kafka-python ends at v{theirs.max_version}")
    message = theirs.decode(data, version=version)
    message._header = None  # a decoded message lacks it, and encoding needs it
    _same("kafka-python", message.encode(version=version), data)
    return Contestant(
        "kafka-python", lambda: message.encode(version=version), lambda: theirs.decode(data, version=version)
    )


def _kafka_python_header(cls: type[Message], data: bytes) -> Contestant:
    theirs = getattr(importlib.import_module("kafka.protocol.api_header"), cls.__name__)
    message = theirs.decode(io.BytesIO(data), flexible=True)
    _same("kafka-python", message.encode(flexible=True), data)
    return Contestant(
        "kafka-python",
        lambda: message.encode(flexible=True),
        lambda: theirs.decode(io.BytesIO(data), flexible=True),
    )


def _same(name: str, output: bytes | bytearray, data: bytes, size: int | None = None) -> None:
    if output != data or size not in (None, len(data)):
        raise IncomparableError(f"{name} makes other bytes of it")
