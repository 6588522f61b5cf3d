"""The records that go in, and whether what comes out is the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

EPOCH_MS = 1_700_000_000_000
"""The time of the first sample; later ones are a second apart."""

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Sample:
    """A record to send. ``timestamp_ms`` and ``partition`` hold only for clients that can say them."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = EPOCH_MS
    partition: int = 0


@dataclass(frozen=True)
class Sending:
    """The way in which a producer sends."""

    codec: str = "none"
    acks: str = "all"
    """``0``, ``1`` or ``all``."""
    idempotent: bool = False


AS_USUAL = Sending()


@dataclass(frozen=True)
class Turn:
    """One transaction of a producer: what it sends, and how it ends."""

    samples: Sequence[Sample]
    commits: bool
    group: str = ""
    """Group whose offsets it sends with the records; none if empty."""
    source: str = ""
    """Topic of these offsets."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition."""


@dataclass(frozen=True)
class Received:
    """A record as a client's consumer gave it to its application."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


@dataclass(frozen=True)
class Traits:
    """Traits of a client: the parts of a record that it can say. The default: everything."""

    text_only: bool = False
    """Keys, values and headers pass a text interface: no arbitrary bytes, no separators, nothing empty."""
    sets_timestamp: bool = True
    chooses_partition: bool = True
    null_headers: bool = True
    """A header may have no value."""
    shows_repeated_headers: bool = True
    """A record may carry two headers of one name, and show them in their order."""
    null_key_and_value: bool = True
    """A record may have neither a key nor a value."""
    deletes_groups: bool = True
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    without_codec: str = ""
    """The reason why the others are not offered."""


def mixed_samples(traits: Traits, partitions: int, count: int = 45) -> list[Sample]:
    """Records of many shapes: with and without key, empty to 20 kB, compressible and not, some with headers."""
    samples = []
    for index in range(count):
        key = None if index % 5 == 4 else _key(traits, index)
        headers: Headers = (("source", b"matrix"),) if index % 15 >= 10 else ()
        samples.append(
            Sample(
                key,
                _value(traits, index),
                headers,
                EPOCH_MS + 1000 * index,
                index * partitions // count if traits.chooses_partition else 0,
            )
        )
    return samples


def _key(traits: Traits, index: int) -> bytes:
    if traits.text_only:
        return f"key-{index}".encode()
    return b"" if index % 10 == 3 else b"key-%d\x00\xff\xfe" % index


def _value(traits: Traits, index: int) -> bytes:
    length = (17, 300, 5_000, 20_000, 1)[index % 5]
    if index % 5 == 3:
        return (b"the same again and again %d " % index * 1000)[:length]
    noise = b"".join(hashlib.sha256(b"%d %d" % (index, n)).digest() for n in range(length // 32 + 1))
    if traits.text_only:
        return f"{index}:{noise.hex()}".encode()[: length + 3]
    return b"" if index == 24 else noise[:length]


def header_samples(traits: Traits) -> list[Sample]:
    """Headers whose order, repetition, bytes and absence must survive."""
    rows: list[Headers] = [(), (("b", b"1"), ("a", b"2"), ("c", b"3"))]
    if traits.shows_repeated_headers:
        rows.append((("twice", b"first"), ("between", b"x"), ("twice", b"second")))
    if not traits.text_only:
        rows.append((("empty", b""), ("bytes", bytes(range(256))), ("Zürich €", "größer".encode())))
        rows.append(tuple((f"h{n:03}", b"v" * n) for n in range(1, 100)))
    if traits.null_headers:
        rows.append((("none", None), ("some", b"1")))
    return [Sample(b"k%d" % n, b"v%d" % n, headers, EPOCH_MS + n) for n, headers in enumerate(rows)]


def tombstone_samples(traits: Traits) -> list[Sample]:
    """Keys whose value is null, beside some whose value is not."""
    samples = [
        Sample(b"kept", b"1", (), EPOCH_MS),
        Sample(b"gone", b"1", (), EPOCH_MS + 1),
        Sample(b"gone", None, (), EPOCH_MS + 2),
        Sample(None, b"no key", (), EPOCH_MS + 3),
    ]
    if traits.null_key_and_value:
        samples.append(Sample(None, None, (), EPOCH_MS + 4))
    return samples


def numbered_samples(count: int, partitions: int, size_bytes: int = 40, first: int = 0) -> list[Sample]:
    """``count`` different plain records with keys, spread over the partitions."""
    return [
        Sample(b"key-%d" % n, (b"%d " % n).ljust(size_bytes, b"."), (), EPOCH_MS + 1000 * n, n % partitions)
        for n in range(first, first + count)
    ]


def differences(sent: Sequence[Sample], got: Sequence[Received], traits: Traits, now_ms: int) -> list[str]:
    """Name all differences: none, if partition by partition the same records came in the same order.

    Offsets must be without a hole. Where the client can't set a time, it must be of the last minutes.
    """
    wrong = []
    for partition in sorted({s.partition for s in sent} | {r.partition for r in got}):
        expected = [s for s in sent if s.partition == partition]
        received = [r for r in got if r.partition == partition]
        if len(expected) != len(received):
            wrong.append(f"partition {partition}: {len(expected)} records sent, {len(received)} received")
            continue
        offsets = [r.offset for r in received]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))):
            wrong.append(f"partition {partition}: offsets {_short(offsets)} are not without a hole")
        for sample, record in zip(expected, received, strict=True):
            wrong += _difference(sample, record, traits, now_ms)
    return wrong


def _difference(sample: Sample, record: Received, traits: Traits, now_ms: int) -> list[str]:
    at = f"{record.partition}:{record.offset}"
    wrong = [
        f"{at}: {field} {_short(want)} came back as {_short(have)}"
        for field, want, have in (
            ("key", sample.key, record.key),
            ("value", sample.value, record.value),
            ("headers", sample.headers, record.headers),
        )
        if want != have
    ]
    if traits.sets_timestamp:
        if record.timestamp_ms != sample.timestamp_ms:
            wrong.append(f"{at}: timestamp {sample.timestamp_ms} came back as {record.timestamp_ms}")
    elif abs(record.timestamp_ms - now_ms) > 600_000:
        wrong.append(f"{at}: timestamp {record.timestamp_ms} is not of today")
    return wrong


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
