"""Fast walks over the records of a batch: no object for each record, values are skipped by their length.

Most numbers in a record take one byte and a length takes two at most. These cases are read without a call.
Every walk ends exactly at the end of the data, or raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blumfeld.wire.batches.varint import BadVarintError, append_varint, read_varint, read_varlong
from blumfeld.wire.errors import InvalidRecord

NULL_LENGTH = 1
"""Byte of a null length: -1 as a zigzag varint."""


class Keys(NamedTuple):
    """Result of a walk over keys, record by record."""

    keys: list[bytes]
    """The keys. A null key is ``b""`` here and listed in ``without_key``."""
    deltas: Sequence[int]
    """Offset deltas."""
    without_key: list[int]
    """Indexes of records with a null key."""
    tombstones: list[int]
    """Indexes of records with a null value."""


def walk_keys(data: bytes, at: int, end: int, count: int, dense: bool) -> Keys:
    """Returns the keys of the ``count`` records in ``data[at:end]``.

    :param dense: the offset deltas are 0, 1, 2… and need not be read, as in every batch that was never
        compacted
    :raises InvalidRecord: a record breaks the format, or their number or size differs
    """
    keys: list[bytes] = []
    deltas: list[int] = []
    without_key: list[int] = []
    tombstones: list[int] = []
    try:
        while at < end:
            byte = data[at]
            if byte < 0x80:
                at += 1
                stop = at + (byte >> 1)
            else:
                byte += (data[at + 1] << 7) - 0x80
                if byte < 0x4000:
                    at += 2
                    stop = at + (byte >> 1)
                else:
                    length, at = read_varint(data, at)
                    stop = at + length
            at += 1  # the record's attributes
            while data[at] > 0x7F:  # the timestamp
                at += 1
            at += 1
            if not dense:
                delta, _ = read_varint(data, at)
                deltas.append(delta)
            while data[at] > 0x7F:  # the offset
                at += 1
            at += 1
            byte = data[at]
            if byte < 0x80:
                at += 1
                if byte & 1:
                    if byte != NULL_LENGTH:
                        raise InvalidRecord("a key has a negative length other than -1")
                    without_key.append(len(keys))
                value_at = at + (byte >> 1)
            else:
                length, at = read_varint(data, at)
                value_at = at + length
            if not at <= value_at < stop <= end:
                raise InvalidRecord("a record's key reaches beyond the record")
            keys.append(data[at:value_at])
            if data[value_at] == NULL_LENGTH:
                tombstones.append(len(keys) - 1)
            at = stop
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early or contain a bad number: {error}") from None
    if len(keys) != count:
        raise InvalidRecord(f"{len(keys)} records where the header says {count}")
    return Keys(keys, range(count) if dense else deltas, without_key, tombstones)


def walk_ends(data: bytes, at: int, end: int, count: int) -> list[int]:
    """Returns the end position of each record in ``data[at:end]``.

    :raises InvalidRecord: as :func:`walk_keys`
    """
    ends: list[int] = []
    try:
        while at < end:
            byte = data[at]
            if byte < 0x80:
                at += 1 + (byte >> 1)
            else:
                byte += (data[at + 1] << 7) - 0x80
                if byte < 0x4000:
                    at += 2 + (byte >> 1)
                else:
                    length, at = read_varint(data, at)
                    at += max(length, 0)
            ends.append(at)
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early or contain a bad number: {error}") from None
    if at != end or len(ends) != count:
        raise InvalidRecord(f"{len(ends)} records up to byte {at}, where the header says {count} up to {end}")
    return ends


def walk_deltas(data: bytes, at: int, end: int, count: int) -> list[int]:
    """Returns the offset delta of each record in ``data[at:end]``.

    :raises InvalidRecord: as :func:`walk_keys`
    """
    deltas = []
    try:
        for stop in walk_ends(data, at, end, count):
            _, at = read_varint(data, at)
            _, at = read_varlong(data, at + 1)
            delta, at = read_varint(data, at)
            deltas.append(delta)
            at = stop
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early or contain a bad number: {error}") from None
    return deltas


class Kept(NamedTuple):
    """The records that stay, as bytes."""

    body: bytes
    records: int
    max_delta: int
    """Highest timestamp delta among them."""


def keep_records(data: bytes, at: int, end: int, count: int, keep: Sequence[int]) -> Kept:
    """Copy the records for which ``keep`` is true unchanged, each run of them in one piece.

    :raises InvalidRecord: as :func:`walk_keys`
    """
    pieces = []
    max_delta = -1 << 63
    kept, run_at = 0, -1
    try:
        for stop, stays in zip(walk_ends(data, at, end, count), keep, strict=True):
            if stays:
                kept += 1
                if run_at < 0:
                    run_at = at
                while data[at] > 0x7F:  # the record's length
                    at += 1
                byte = data[at + 2]
                delta = byte >> 1 ^ -(byte & 1) if byte < 0x80 else read_varlong(data, at + 2)[0]
                if delta > max_delta:
                    max_delta = delta
            elif run_at >= 0:
                pieces.append(data[run_at:at])
                run_at = -1
            at = stop
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early or contain a bad number: {error}") from None
    if run_at >= 0:
        pieces.append(data[run_at:end])
    return Kept(b"".join(pieces), kept, max_delta)


def shift_timestamps(body: bytes, count: int, shift_ms: int) -> bytes:
    """Returns the records with ``shift_ms`` added to every timestamp delta, for a batch whose base timestamp
    changes.

    :raises InvalidRecord: as :func:`walk_keys`
    """
    out = bytearray()
    at = 0
    try:
        for stop in walk_ends(body, 0, len(body), count):
            _, attributes_at = read_varint(body, at)
            delta, rest_at = read_varlong(body, attributes_at + 1)
            head = bytearray(body[attributes_at : attributes_at + 1])
            append_varint(head, delta + shift_ms)
            append_varint(out, len(head) + stop - rest_at)
            out += head
            out += body[rest_at:stop]
            at = stop
    except (IndexError, BadVarintError) as error:
        raise InvalidRecord(f"the records end early or contain a bad number: {error}") from None
    return bytes(out)
