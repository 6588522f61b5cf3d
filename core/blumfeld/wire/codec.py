"""Decodes and encodes messages with generated code, made on first use for each class and version.

``decode`` raises only :class:`~blumfeld.wire.primitives.DecodeError`, and never allocates for a length that
the bytes cannot hold. ``encode`` raises :class:`~blumfeld.wire.primitives.EncodeError`. Decoding and
encoding restore the same bytes, except that tagged fields which a version does not know are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar, cast

from blumfeld.wire.generation.decoder import decoder_source
from blumfeld.wire.generation.encoder import encoder_source
from blumfeld.wire.primitives import DecodeError, EncodeError, Part
from blumfeld.wire.schema import AnyStruct, Message, fields_of

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
"""Exceptions of an encoder for a value that has no form on the wire."""


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """Returns the bare decoder ``(buf, pos) -> (message, end)`` for hot paths.

    ``buf`` is a one-dimensional memoryview of bytes that ends where the message must have ended.
    ``records`` fields are views into it. The decoder raises DecodeError, and ignores bytes after the
    message.

    :raises DecodeError: the class has no such version
    """
    try:
        return _DECODERS[cls, version]
    except KeyError:
        made = _DECODERS[cls, version] = _made_decoder(cls, version, in_steps=False)
        return cast("Decoder[M]", made)


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """Returns the bare encoder ``(message, out, parts) -> None`` for hot paths.

    It appends bytes to ``out``. A ``records`` value above 1 KiB, or one that is not bytes, closes ``out``
    into ``parts`` (joined) and follows there uncopied. The encoder raises EncodeError, but also whatever
    ``struct`` or a wrongly typed attribute raises; :func:`encode` turns that into EncodeError.

    :raises EncodeError: the class has no such version
    """
    try:
        return _ENCODERS[cls, version]
    except KeyError:
        made = _ENCODERS[cls, version] = _made_encoder(cls, version, in_steps=False)
        return cast("Encoder[M]", made)


def step_decoder(cls: type[M], version: int) -> StepDecoder[M]:
    """Returns :func:`decoder` as a generator, which yields every few elements and returns the same result.

    :raises DecodeError: the class has no such version
    """
    made: StepDecoder[M] | None = _STEP_DECODERS.get((cls, version))
    if made is None:
        made = _STEP_DECODERS[cls, version] = _made_decoder(cls, version, in_steps=True)
    return made


def _step_encoder(cls: type[M], version: int) -> StepEncoder[M]:
    made: StepEncoder[M] | None = _STEP_ENCODERS.get((cls, version))
    if made is None:
        made = _STEP_ENCODERS[cls, version] = _made_encoder(cls, version, in_steps=True)
    return made


def _made_decoder(cls: type[Message], version: int, *, in_steps: bool) -> Any:
    if version not in cls.meta.valid:
        raise DecodeError(_unknown(cls, version))
    source = decoder_source(cls, version, version in cls.meta.flexible, in_steps=in_steps)
    title = f"decode {cls.__name__} v{version}{' in steps' * in_steps}"
    return _compiled(source.text("def decode(buf, pos):"), source.names, title)["decode"]


def _made_encoder(cls: type[Message], version: int, *, in_steps: bool) -> Any:
    if version not in cls.meta.valid:
        raise EncodeError(_unknown(cls, version))
    own: Callable[[int], Any] | None = None if in_steps else getattr(cls, "own_encoder", None)
    if own is not None:  # a message of the hot path that writes itself
        return own(version)
    source = encoder_source(cls, version, version in cls.meta.flexible, in_steps=in_steps)
    title = f"encode {cls.__name__} v{version}{' in steps' * in_steps}"
    return _compiled(source.text("def encode(message, out, parts):"), source.names, title)["encode"]


def _compiled(text: str, names: dict[str, Any], title: str) -> dict[str, Any]:
    namespace = dict(names)
    exec(compile(text, f"<{title}>", "exec"), namespace)
    return namespace


def _unknown(cls: type[Message], version: int) -> str:
    return f"{cls.__name__} has versions {cls.meta.valid}, not {version}"


def decode(cls: type[M], data: Buffer, version: int, offset: int = 0) -> M:
    """Decode the message that fills ``data`` from ``offset`` to its end.

    ``records`` fields are views into ``data``, which must not change while they are used.

    :raises DecodeError: the bytes are not this message, or bytes follow it
    """
    buf = data if type(data) is memoryview else memoryview(data)
    read: Decoder[M] = _DECODERS.get((cls, version)) or decoder(cls, version)
    message, end = read(buf, offset)
    if end != len(buf):
        raise DecodeError(f"{len(buf) - end} bytes too many behind {cls.__name__} v{version}")
    return message


def decode_from(cls: type[M], data: Buffer, version: int, offset: int) -> tuple[M, int]:
    """Decode the message at ``offset``. Returns it and the position after it.

    :raises DecodeError: the bytes from there are not this message
    """
    return decoder(cls, version)(data if type(data) is memoryview else memoryview(data), offset)


def encode(message: Message, version: int) -> bytes:
    """Returns the message as one piece of bytes.

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


def leave_out(message: AnyStruct, version: int) -> None:
    """Reset the fields at the top of a message, or of a struct in it, that ``version`` has no place for, so that it can
    be encoded in it.

    An error's answer is made in its newest form. An older one has no error of the whole, and its elements have it; a
    newer one may have it in the elements alone.
    """
    for field in fields_of(type(message)):
        if version not in field.versions and not field.ignorable:
            setattr(message, field.name, field.default_of())


def encode_parts(message: Message, version: int, prefix: bytes = b"") -> list[Part]:
    """Returns ``prefix`` and the encoded message as parts in order.

    ``records`` values above 1 KiB, and those that are not bytes, are parts of their own and not copied. The
    bytes between two of them are one part.

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
    """:func:`encode_parts` as a generator that yields every few elements. A large answer has more parts, with
        the same bytes.

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
    """Find the wrong field with the interpreted codec, which names it. This is an error path, so its time does
    not matter.
    """
    from blumfeld.wire.interpreted_codec import encode as encode_interpreted

    try:
        encode_interpreted(message, version)
    except EncodeError as explained:
        return explained
    return EncodeError(f"{type(message).__name__} v{version}: {error}")
