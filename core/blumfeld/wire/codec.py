"""Decode and encode messages with generated code, made on first use for each class and version.

``decode`` raises :class:`~blumfeld.wire.primitives.DecodeError` and nothing else, and allocates nothing for a
length that the bytes can not hold; ``encode`` raises :class:`~blumfeld.wire.primitives.EncodeError`. Bytes and
messages are the same in both directions, except for tagged fields that a version does not know: they are
skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast

from blumfeld.wire.generation.decoder import decoder_source
from blumfeld.wire.generation.encoder import encoder_source
from blumfeld.wire.primitives import DecodeError, EncodeError, Part
from blumfeld.wire.schema import Message

M = TypeVar("M", bound=Message)
Buffer: TypeAlias = bytes | bytearray | memoryview
Decoder: TypeAlias = Callable[[memoryview, int], tuple[M, int]]
Encoder: TypeAlias = Callable[[M, "list[bytes]", "list[Part]"], None]

StepDecoder: TypeAlias = Callable[[memoryview, int], Generator[None, None, tuple[M, int]]]
StepEncoder: TypeAlias = Callable[[M, "list[bytes]", "list[Part]"], Generator[None, None, None]]

_STEP_DECODERS: dict[tuple[type[Message], int], StepDecoder[Any]] = {}
_STEP_ENCODERS: dict[tuple[type[Message], int], StepEncoder[Any]] = {}
_DECODERS: dict[tuple[type[Message], int], Decoder[Any]] = {}
_ENCODERS: dict[tuple[type[Message], int], Encoder[Any]] = {}
_ENCODING_ERRORS = (struct.error, AttributeError, TypeError, OverflowError, UnicodeEncodeError)
"""What an encoder raises of a value that has no form on the wire."""


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The bare decoder ``(buf, pos) -> (message, end)`` for hot paths.

    ``buf`` is a one-dimensional memoryview of bytes, cut where the message may end at the latest; ``records``
    fields are views into it. It raises DecodeError, and does not mind bytes behind the message.

    :raises DecodeError: the class has no such version
    """
    try:
        return _DECODERS[cls, version]
    except KeyError:
        pass
    if version not in cls.meta.valid:
        raise DecodeError(_unknown(cls, version))
    source = decoder_source(cls, version, version in cls.meta.flexible)
    text = source.text("def decode(buf, pos):")
    made: Decoder[M] = _compiled(text, source.names, f"decode {cls.__name__} v{version}")["decode"]
    _DECODERS[cls, version] = made
    return made


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The bare encoder ``(message, out, parts) -> None`` for hot paths.

    It appends bytes to ``out``. A ``records`` value above 1 KiB, or one that is no bytes at all, closes ``out``
    into ``parts`` (joined) and follows there uncopied. It raises EncodeError, but also whatever ``struct`` or
    an attribute of a wrong type raise: :func:`encode` turns that into EncodeError.

    :raises EncodeError: the class has no such version
    """
    try:
        return _ENCODERS[cls, version]
    except KeyError:
        pass
    if version not in cls.meta.valid:
        raise EncodeError(_unknown(cls, version))
    source = encoder_source(cls, version, version in cls.meta.flexible)
    text = source.text("def encode(message, out, parts):")
    made: Encoder[M] = _compiled(text, source.names, f"encode {cls.__name__} v{version}")["encode"]
    _ENCODERS[cls, version] = made
    return made


def step_decoder(cls: type[M], version: int) -> StepDecoder[M]:
    """:func:`decoder` as a generator: it yields after some elements, and returns what the plain one returns.

    :raises DecodeError: the class has no such version
    """
    made: StepDecoder[M] | None = _STEP_DECODERS.get((cls, version))
    if made is None:
        if version not in cls.meta.valid:
            raise DecodeError(_unknown(cls, version))
        source = decoder_source(cls, version, version in cls.meta.flexible, in_steps=True)
        text = source.text("def decode(buf, pos):")
        made = _compiled(text, source.names, f"decode {cls.__name__} v{version} in steps")["decode"]
        _STEP_DECODERS[cls, version] = made
    return made


def _step_encoder(cls: type[M], version: int) -> StepEncoder[M]:
    made: StepEncoder[M] | None = _STEP_ENCODERS.get((cls, version))
    if made is None:
        if version not in cls.meta.valid:
            raise EncodeError(_unknown(cls, version))
        source = encoder_source(cls, version, version in cls.meta.flexible, in_steps=True)
        text = source.text("def encode(message, out, parts):")
        made = _compiled(text, source.names, f"encode {cls.__name__} v{version} in steps")["encode"]
        _STEP_ENCODERS[cls, version] = made
    return made


def _compiled(text: str, names: dict[str, Any], title: str) -> dict[str, Any]:
    namespace = dict(names)
    exec(compile(text, f"<{title}>", "exec"), namespace)
    return namespace


def _unknown(cls: type[Message], version: int) -> str:
    return f"{cls.__name__} has versions {cls.meta.valid}, not {version}"


def decode(cls: type[M], data: Buffer, version: int, offset: int = 0) -> M:
    """The message that fills ``data`` from ``offset`` to its end.

    ``records`` fields are views into ``data``, which must not change as long as they are used.

    :raises DecodeError: these bytes are not this message, or there are bytes behind it
    """
    buf = data if type(data) is memoryview else memoryview(data)
    read: Decoder[M] = _DECODERS.get((cls, version)) or decoder(cls, version)
    message, end = read(buf, offset)
    if end != len(buf):
        raise DecodeError(f"{len(buf) - end} bytes too many behind {cls.__name__} v{version}")
    return message


def decode_from(cls: type[M], data: Buffer, version: int, offset: int) -> tuple[M, int]:
    """The message at ``offset``, and the position behind it.

    :raises DecodeError: the bytes from there are not this message
    """
    return decoder(cls, version)(data if type(data) is memoryview else memoryview(data), offset)


def encode(message: Message, version: int) -> bytes:
    """The bytes of the message, all in one.

    :raises EncodeError: the message has no form in this version, or holds records that are not in memory
    """
    out: list[bytes] = []
    parts: list[Part] = []
    write = _ENCODERS.get((type(message), version)) or encoder(type(message), version)
    try:
        write(message, out, parts)
    except _ENCODING_ERRORS as error:
        raise _explained(message, version, error) from error
    if not parts:
        return b"".join(out)
    try:
        return b"".join([*cast("list[bytes]", parts), *out])
    except TypeError:
        raise EncodeError(f"{type(message).__name__} holds records that are not in memory") from None


def encode_parts(message: Message, version: int, prefix: bytes = b"") -> list[Part]:
    """``prefix`` and the bytes of the message, as parts in order.

    ``records`` values above 1 KiB, and those that are no bytes, are parts of their own, not copied; all
    between them is one piece of bytes.

    :raises EncodeError: the message has no form in this version
    """
    out = [prefix]
    parts: list[Part] = []
    write = _ENCODERS.get((type(message), version)) or encoder(type(message), version)
    try:
        write(message, out, parts)
    except _ENCODING_ERRORS as error:
        raise _explained(message, version, error) from error
    if out:
        parts.append(b"".join(out))
    return parts


def encode_parts_in_steps(
    message: Message, version: int, prefix: bytes = b""
) -> Generator[None, None, list[Part]]:
    """:func:`encode_parts` as a generator: it yields after some elements. Large answers have more parts, with the same
    bytes in them.

    :raises EncodeError: the message has no form in this version
    """
    out = [prefix]
    parts: list[Part] = []
    write = _step_encoder(type(message), version)
    try:
        yield from write(message, out, parts)
    except _ENCODING_ERRORS as error:
        raise _explained(message, version, error) from error
    if out:
        parts.append(b"".join(out))
    return parts


def _explained(message: Message, version: int, error: Exception) -> EncodeError:
    """Which field is wrong: the interpreted codec knows, and time does not matter here."""
    from blumfeld.wire.interpreted import encode as encode_interpreted

    try:
        encode_interpreted(message, version)
    except EncodeError as explained:
        return explained
    return EncodeError(f"{type(message).__name__} v{version}: {error}")
