"""A metadata snapshot as a file, ``<end offset>-<epoch>.checkpoint`` (KIP-630). Pure.

The file holds batches as in the log, with their own offsets from 0: an opening control record, the records
of the image, a closing control record. ``bootstrap.checkpoint`` has the same form and holds a new cluster's
first records.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from blumfeld.metadata.image.checkpoint_reader import CheckpointReader
from blumfeld.metadata.image.record_frame import decode_record, encode_record
from blumfeld.metadata.slices import SLICE_RECORDS
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import ControlType, build_kraft_control_batch
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, values
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.raft_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

BOOTSTRAP_NAME = "bootstrap.checkpoint"
BOOTSTRAP_EPOCH = 0
BATCH_RECORDS_MAX = 1024
"""Records in one batch of a snapshot; Kafka's bound is 8 MiB, which these can't reach."""

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class CheckpointId(NamedTuple):
    """Identity of a snapshot: it contains everything below ``end_offset``; ``epoch`` is the epoch of the last
    record.
    """

    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        """The snapshot's file name."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"

    @classmethod
    def of(cls, name: str) -> CheckpointId | None:
        """Parse a file name; ``None`` if the file is not a finished snapshot."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


class Checkpoint(NamedTuple):
    """The content of a snapshot file."""

    records: list[Message]
    last_contained_ms: int
    kraft_version: int
    voters: VotersRecord | None


def encode_checkpoint(
    content: Iterable[Message],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_ms: int = 0,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytes:
    """Returns the bytes of a snapshot file: the parts of :func:`checkpoint_parts`, joined."""
    parts = checkpoint_parts(
        content,
        epoch=epoch,
        timestamp_ms=timestamp_ms,
        last_contained_ms=last_contained_ms,
        kraft_version=kraft_version,
        voters=voters,
    )
    return b"".join(part for part in parts if part is not None)


def checkpoint_parts(
    content: Iterable[Message],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_ms: int = 0,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> Iterator[bytes | bytearray | None]:
    """Yields the parts of a snapshot file in order, and ``None`` after every ``SLICE_RECORDS`` records: time to pause.

    :param timestamp_ms: time of the snapshot, which its records carry
    :param last_contained_ms: timestamp of the last log record that the snapshot contains
    :param kraft_version: from 1 on it and ``voters`` are written behind the header, because voters then stand in the
        log (KIP-853)
    """
    header = encode(SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms), 0)
    controls = [(ControlType.SNAPSHOT_HEADER, header)]
    if kraft_version > 0:
        level = encode(KRaftVersionRecord(kraft_version=kraft_version), 0)
        controls.append((ControlType.KRAFT_VERSION, level))
        if voters is not None:
            controls.append((ControlType.KRAFT_VOTERS, encode(voters, 0)))
    yield build_kraft_control_batch(controls, timestamp_ms=timestamp_ms, base_offset=0, leader_epoch=epoch)
    offset = len(controls)
    batch: list[Record] = []
    for number, record in enumerate(content, start=1):
        batch.append(Record(None, encode_record(record), timestamp=timestamp_ms))
        if len(batch) == BATCH_RECORDS_MAX:
            yield build_batch(batch, base_offset=offset, leader_epoch=epoch)
            offset += len(batch)
            batch = []
        if not number % SLICE_RECORDS:
            yield None
    if batch:
        yield build_batch(batch, base_offset=offset, leader_epoch=epoch)
        offset += len(batch)
    footer = encode(SnapshotFooterRecord(), 0)
    yield build_kraft_control_batch(
        [(ControlType.SNAPSHOT_FOOTER, footer)],
        timestamp_ms=timestamp_ms,
        base_offset=offset,
        leader_epoch=epoch,
    )


def metadata_batch(
    content: Sequence[Message], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """Returns a batch of metadata records, in the form that the log and snapshots share."""
    made = [Record(None, encode_record(record), timestamp=timestamp_ms) for record in content]
    return build_batch(made, base_offset=base_offset, leader_epoch=epoch)


def decode_checkpoint(data: bytes, source: str) -> Checkpoint:
    """Decode a snapshot that any Kafka controller may have written.

    :param source: the file's path, for error messages
    :raises ValueError: the snapshot is cut off, damaged, or holds a record that this build can't read
    """
    reader = CheckpointReader(source)
    content: list[Message] = []
    try:
        for batch in reader.feed(data):
            content += batch_records(batch)
    except (BrokerError, DecodeError) as error:
        raise ValueError(f"{source}: {error}") from error
    reader.finish()
    return Checkpoint(content, reader.last_contained_ms, reader.kraft_version, reader.voters)


def last_contained_ms(head: bytes) -> int | None:
    """Returns the timestamp of the last log record that a snapshot contains.

    :param head: the beginning of the file, with its first batch
    :return: ``None`` if no whole header is there
    """
    reader = CheckpointReader("")
    with suppress(ValueError):
        for _ in reader.feed(head):
            break
    return reader.last_contained_ms if reader.is_open else None


def batch_records(batch: RecordBatch) -> list[Message]:
    """Decode the metadata records of a batch that is not a control batch.

    :raises DecodeError: a record of a type or version that this build does not know
    :raises InvalidRecord: the batch can't be decoded
    """
    return list(iter_records(batch))


def iter_records(batch: RecordBatch) -> Iterator[Message]:
    """Yield the records as :func:`batch_records` returns them, each decoded when it is asked for."""
    for value in values(batch):
        yield decode_record(value)
