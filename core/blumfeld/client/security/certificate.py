"""The few fields of a certificate that the broker reads itself: its subject and its times. Pure.

``ssl`` gives a subject as long names, which doesn't tell the form in which Kafka writes it. So the subject is read from
the bytes and written as Java's ``X500Principal.getName()`` does: RFC 2253, with keywords for nine attributes and the
bytes in hex for all others.
"""

from __future__ import annotations

import base64
import binascii
import calendar
import re
from collections.abc import Iterator

import msgspec

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 has a keyword for."""
ESCAPED = ',=+<>#;"\\'
TEXTS = frozenset((12, 19, 20, 22, 27, 30))
"""Tags of the string types. As in Java, the bytes of each are taken for UTF-8."""
EXTENSIONS, ALTERNATIVE_NAMES = 0xA3, bytes.fromhex("551d11")
SEQUENCE, OID, UTC_TIME, GENERALIZED_TIME = 0x30, 6, 23, 24
PEM = re.compile(rb"-----BEGIN CERTIFICATE-----\s+(.+?)-----END CERTIFICATE-----", re.DOTALL)


class MalformedError(ValueError):
    """The bytes aren't a certificate. Its text names no byte of them."""


class Certificate(msgspec.Struct, frozen=True):
    """The fields of one certificate."""

    subject: str
    """The distinguished name in Java's form of RFC 2253: ``CN=a,OU=b``. It may be empty."""
    not_before_s: float
    not_after_s: float
    """Seconds since the epoch."""
    alternative_names: frozenset[bytes] = frozenset()
    """The subject's alternative names, each as its bytes."""


class _Value(msgspec.Struct, frozen=True):
    tag: int
    content: bytes
    whole: bytes


def _values(data: bytes) -> Iterator[_Value]:
    """Yield the values that stand one behind the other in ``data``.

    :raises MalformedError: a length is wrong
    """
    at = 0
    while at < len(data):
        begin = at
        if len(data) - at < 2:
            raise MalformedError("a value has no length")
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(data) - at < count:
                raise MalformedError("a length is none of DER's")
            size = int.from_bytes(data[at : at + count], "big")
            at += count
        if size > len(data) - at:
            raise MalformedError("a value is longer than what holds it")
        yield _Value(tag, data[at : at + size], data[begin : at + size])
        at += size


def _next(values: Iterator[_Value], tag: int | None = None) -> _Value:
    value = next(values, None)
    if value is None or (tag is not None and value.tag != tag):
        raise MalformedError("a field of the certificate is missing")
    return value


def parse(der: bytes) -> Certificate:
    """Returns the fields of a certificate.

    :raises MalformedError: the bytes are none
    """
    try:
        fields = _values(_next(_values(_next(_values(der), SEQUENCE).content), SEQUENCE).content)
        first = _next(fields)
        if first.tag == 0xA0:  # the version
            _next(fields)
        _next(fields, SEQUENCE)  # the signature's algorithm
        _next(fields, SEQUENCE)  # the issuer
        times = _values(_next(fields, SEQUENCE).content)
        begin, end = _seconds(_next(times)), _seconds(_next(times))
        subject = name_of(_next(fields, SEQUENCE).whole)
        return Certificate(subject, begin, end, _alternative_names(fields))
    except (ValueError, OverflowError) as error:
        raise MalformedError(f"no certificate: {error}") from None


def _alternative_names(fields: Iterator[_Value]) -> frozenset[bytes]:
    for field in fields:
        if field.tag == EXTENSIONS:
            for extension in _values(_next(_values(field.content), SEQUENCE).content):
                parts = list(_values(extension.content))
                if parts and parts[0].content == ALTERNATIVE_NAMES:
                    names = _next(_values(parts[-1].content), SEQUENCE).content
                    return frozenset(name.whole for name in _values(names))
    return frozenset()


def in_pem(pem: bytes) -> list[bytes]:
    """Returns the certificates of a PEM text, each in DER.

    :raises MalformedError: one of them isn't in base64
    """
    try:
        return [base64.b64decode(match[1], validate=False) for match in PEM.finditer(pem)]
    except binascii.Error:
        raise MalformedError("a certificate isn't in base64") from None


def to_pem(der: bytes) -> bytes:
    """Returns one certificate as PEM."""
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


def name_of(der: bytes) -> str:
    """Returns a distinguished name as Java writes it: RFC 2253, last part first.

    :raises MalformedError: the bytes are no name
    """
    parts = []
    for part in _values(_next(_values(der), SEQUENCE).content):
        pairs = [_attribute(pair) for pair in _values(part.content)]
        parts.append("+".join(pairs))
    return ",".join(reversed(parts))


def _attribute(pair: _Value) -> str:
    fields = _values(pair.content)
    oid, value = _dotted(_next(fields, OID).content), _next(fields)
    keyword = KEYWORDS.get(oid)
    if keyword is None or value.tag not in TEXTS:
        return f"{keyword or oid}=#{value.whole.hex()}"
    return keyword + "=" + _escaped(value.content.decode("utf-8", "replace"))


def _escaped(text: str) -> str:
    escaped = "".join("\\" + char if char in ESCAPED else "\\00" if char == "\0" else char for char in text)
    inner = escaped.strip(" \r")
    lead = len(escaped) - len(escaped.lstrip(" \r"))
    if not inner:
        return "".join("\\" + char for char in escaped)
    ends = escaped[:lead], escaped[lead + len(inner) :]
    before, after = ("".join("\\" + char for char in end) for end in ends)
    return before + inner + after


def _dotted(content: bytes) -> str:
    if not content:
        raise MalformedError("an object identifier is empty")
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2) if numbers else 0
    return ".".join(str(part) for part in (first, numbers[0] - 40 * first, *numbers[1:]))


def _seconds(value: _Value) -> float:
    text = value.content.decode("ascii")
    if value.tag == UTC_TIME:
        text = ("20" if int(text[:2]) < 50 else "19") + text
    elif value.tag != GENERALIZED_TIME:
        raise MalformedError("a time is of no known form")
    if len(text) != 15 or text[14] != "Z":
        raise MalformedError("a time isn't in UTC")
    parts = [int(text[at : at + 2]) for at in range(4, 14, 2)]
    return float(calendar.timegm((int(text[:4]), *parts)))
