"""A snapshot of the metadata as a file: ``<end offset>-<epoch>.checkpoint`` (KIP-630). Pure.

Batches as in the log, with offsets of their own from 0: a control record that opens, the records of the image, one
that closes. ``bootstrap.checkpoint`` is the same thing: what a cluster begins with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from blumfeld.metadata.image.record_frame import decode_record, encode_record
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import ControlType, build_kraft_control_batch, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.codec import decode, encode
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
    """Everything below ``end_offset`` is in it; ``epoch`` is that of the last record."""

    end_offset: int
    epoch: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"

    @classmethod
    def of(cls, name: str) -> CheckpointId | None:
        """From a file's name; ``None`` for a file that is no finished snapshot."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]))


class Checkpoint(NamedTuple):
    """What stands in the file."""

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
    """The file's bytes.

    :param timestamp_ms: of the records; when the snapshot is taken
    :param last_contained_ms: of the last record of the log that is in it
    :param kraft_version: with ``voters`` from 1 on, where voters stand in the log (KIP-853)
    """
    header = encode(SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms), 0)
    controls = [(ControlType.SNAPSHOT_HEADER, header)]
    if kraft_version > 0 and voters is not None:
        level = encode(KRaftVersionRecord(kraft_version=kraft_version), 0)
        controls += [(ControlType.KRAFT_VERSION, level), (ControlType.KRAFT_VOTERS, encode(voters, 0))]
    out = bytearray(
        build_kraft_control_batch(controls, timestamp_ms=timestamp_ms, base_offset=0, leader_epoch=epoch)
    )
    offset = len(controls)
    for batch in _in_batches(content):
        out += metadata_batch(batch, base_offset=offset, epoch=epoch, timestamp_ms=timestamp_ms)
        offset += len(batch)
    footer = encode(SnapshotFooterRecord(), 0)
    out += build_kraft_control_batch(
        [(ControlType.SNAPSHOT_FOOTER, footer)],
        timestamp_ms=timestamp_ms,
        base_offset=offset,
        leader_epoch=epoch,
    )
    return bytes(out)


def metadata_batch(
    content: Sequence[Message], *, base_offset: int, epoch: int, timestamp_ms: int
) -> bytearray:
    """A batch of metadata records, as it stands in the log and in snapshots."""
    made = [Record(None, encode_record(record), timestamp=timestamp_ms) for record in content]
    return build_batch(made, base_offset=base_offset, leader_epoch=epoch)


def _in_batches(content: Iterable[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    for record in content:
        batch.append(record)
        if len(batch) == BATCH_RECORDS_MAX:
            yield batch
            batch = []
    if batch:
        yield batch


def decode_checkpoint(data: bytes, source: str) -> Checkpoint:
    """Read a snapshot, whoever wrote it.

    :param source: its path, for the message
    :raises ValueError: it is cut off, damaged, or holds what this build can't read
    """
    content: list[Message] = []
    last_contained_ms, kraft_version = 0, 0
    voters: VotersRecord | None = None
    opened = closed = False
    try:
        for batch in split_batches(memoryview(data)):
            batch.verify_crc()
            if not batch.is_control:
                content += batch_records(batch)
                continue
            for record in records(batch):
                kind, value = control_type_of(record.key), record.value or b""
                if kind is ControlType.SNAPSHOT_HEADER:
                    opened = True
                    last_contained_ms = decode(SnapshotHeaderRecord, value, 0).last_contained_log_timestamp
                elif kind is ControlType.KRAFT_VERSION:
                    kraft_version = decode(KRaftVersionRecord, value, 0).kraft_version
                elif kind is ControlType.KRAFT_VOTERS:
                    voters = decode(VotersRecord, value, 0)
                closed = kind is ControlType.SNAPSHOT_FOOTER
    except (BrokerError, DecodeError) as error:
        raise ValueError(f"{source}: {error}") from error
    if not opened or not closed:
        raise ValueError(
            f"{source}: no whole snapshot: its {'last' if opened else 'first'} record is missing"
        )
    return Checkpoint(content, last_contained_ms, kraft_version, voters)


def batch_records(batch: RecordBatch) -> list[Message]:
    """The metadata records of a batch that is no control batch.

    :raises DecodeError: a record of a type or version that this build does not know
    :raises InvalidRecord: the batch can't be taken apart
    """
    return [decode_record(record.value or b"") for record in records(batch)]
