"""Finds the records of DBN in a batch of messages, in each of the forms that messages may have.

A message is one record, several in a row, or a file (or its beginning) with a header; each of them zstd-compressed or
not.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blumfeld.wire.compression.codec import Codec, DecompressedTooLarge
from blumfeld.wire.compression.payload import decompress
from blumfeld.wire.errors import InvalidRecord
from blumfeld_sink_spark.decoders.dbn import metadata as dbn_metadata
from blumfeld_sink_spark.decoders.dbn.layout import HEADER_BYTES, KINDS, LENGTH_MIN, SKIPPED, WITHOUT_TABLE
from blumfeld_sink_spark.decoders.dbn.metadata import Metadata, MetadataError

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""The limit on the decompressed bytes of one message."""
_LOOK_AHEAD = 64

_BARE = np.zeros(256, np.bool_)
_BARE[[*KINDS, *SKIPPED]] = True

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


class WalkError(Exception):
    """The message isn't made of records; one line."""


@attrs.frozen
class Records:
    """The places of a batch's records, in the order of the messages and within them. Only records that are decoded
    count.
    """

    data: Bytes
    at: Places
    """The position of each record in ``data``."""
    row: Places
    """The number of the message that holds each record."""
    header: Places
    """Place of its message's header in ``headers``; -1 where it has none."""
    headers: tuple[Metadata, ...]
    rejected: dict[int, str]
    """Row → the reason for which the message is rejected."""
    skipped: dict[int, int]
    """Row → ``rtype`` of the message's first record that gives no row."""

    def rtypes(self) -> Bytes:
        """Returns the ``rtype`` of each record."""
        return self.data[self.at + 1]


def walk(values: Any) -> Records:
    """Finds the records in a binary column. Null is no message."""
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.binary())
    data, bounds = _buffers(values)
    start, end = bounds[:-1], bounds[1:]
    there = np.ones(len(values), np.bool_)
    if values.null_count:
        there = values.is_valid().to_numpy(zero_copy_only=False)
    bare = _bare(data, start, end) & there
    row = np.flatnonzero(bare)
    walker = _Walker([data], len(data), [(start[row], row, -1)], [], {})
    for nth in np.flatnonzero(there & ~bare).tolist():
        walker.add(nth, int(start[nth]), int(end[nth]))
    return walker.records()


def _buffers(values: Any) -> tuple[Bytes, Places]:
    _, offsets, data = values.buffers()
    if not len(values) or offsets is None:
        return np.zeros(0, np.uint8), np.zeros(len(values) + 1, np.int64)
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    held = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return held, bounds.astype(np.int64)


def _bare(data: Bytes, start: Places, end: Places) -> npt.NDArray[np.bool_]:
    """Messages that are one record and nothing else. Neither magic can be taken for one."""
    mask = end - start >= HEADER_BYTES
    at = start[mask]
    length, rtype = end[mask] - at, data[at + 1]
    mask[mask] = (data[at].astype(np.int64) * 4 == length) & _BARE[rtype] & (length >= LENGTH_MIN[rtype])
    return mask


@attrs.define
class _Walker:
    """Gathers the records of messages that aren't one bare record: with a header, several records, or zstd."""

    pieces: list[Bytes]
    """The bytes in which the places count, one message after another."""
    size: int
    runs: list[tuple[Places, Places, int]]
    headers: list[Metadata]
    rejected: dict[int, str]

    def add(self, row: int, start: int, end: int) -> None:
        """A message in the first piece."""
        view = self.pieces[0][start:end]
        try:
            if view[:4].tobytes() == ZSTD_MAGIC:
                view, start = self._decompressed(view), self.size
            begin, header = 0, -1
            if view[:3].tobytes() == dbn_metadata.MAGIC:
                metadata = dbn_metadata.read(view.data)
                begin, header = metadata.end, len(self.headers)
                self.headers.append(metadata)
            elif not len(view):
                raise WalkError("an empty message")
            at = _records(view, begin)
        except (WalkError, MetadataError) as error:
            self.rejected[row] = str(error)
            return
        if start == self.size:
            self.pieces.append(view)
            self.size += len(view)
        self.runs.append((at + start, np.full(len(at), row, np.int64), header))

    def _decompressed(self, view: Bytes) -> Bytes:
        try:
            return np.frombuffer(decompress(Codec.ZSTD, view.tobytes(), DECOMPRESSED_BYTES_MAX), np.uint8)
        except DecompressedTooLarge as error:
            raise WalkError(str(error)) from error
        except (InvalidRecord, ValueError) as error:
            raise WalkError("damaged zstd data") from error

    def records(self) -> Records:
        """Returns all records found, without the skipped ones."""
        data = self.pieces[0] if len(self.pieces) == 1 else np.concatenate(self.pieces)
        at = np.concatenate([run[0] for run in self.runs])
        row = np.concatenate([run[1] for run in self.runs])
        header = np.concatenate([np.full(len(run[0]), run[2], np.int64) for run in self.runs])
        kept = ~np.isin(data[at + 1], list(SKIPPED))
        skipped: dict[int, int] = {}
        for row_number, rtype in zip(row[~kept].tolist(), data[at[~kept] + 1].tolist(), strict=True):
            skipped.setdefault(row_number, rtype)
        if len(self.runs) > 1 or not kept.all():
            order = np.argsort(row, kind="stable")
            order = order[kept[order]]
            at, row, header = at[order], row[order], header[order]
        return Records(data, at, row, header, tuple(self.headers), self.rejected, skipped)


def _records(view: Bytes, at: int) -> Places:
    """Returns the positions of the records. Records of one length and kind are found together."""
    positions, ahead = [], _LOOK_AHEAD
    while at < len(view):
        size = _check(view, at)
        count = min((len(view) - at) // size, ahead)
        lengths, rtypes = view[at : at + count * size : size], view[at + 1 : at + count * size : size]
        same = (lengths == lengths[0]) & (rtypes == rtypes[0])
        run = count if same.all() else int(same.argmin())
        ahead = min(ahead * 2, 1 << 20) if run == count else _LOOK_AHEAD
        positions.append(at + np.arange(run, dtype=np.int64) * size)
        at += run * size
    return np.concatenate(positions) if positions else np.zeros(0, np.int64)


def _check(view: Bytes, at: int) -> int:
    """The record's length in bytes."""
    if len(view) - at < HEADER_BYTES:
        raise WalkError("a record is cut off")
    size, rtype = int(view[at]) * 4, int(view[at + 1])
    if rtype in WITHOUT_TABLE:
        raise WalkError(f"no table holds {WITHOUT_TABLE[rtype]} records; archive the topic raw too")
    if LENGTH_MIN[rtype] == 0:
        raise WalkError(f"rtype {rtype:#04x} is no record of DBN that is known")
    if size < LENGTH_MIN[rtype]:
        raise WalkError(f"a record of rtype {rtype:#04x} with {size} bytes, which needs {LENGTH_MIN[rtype]}")
    if size > len(view) - at:
        raise WalkError("a record is cut off")
    return size
