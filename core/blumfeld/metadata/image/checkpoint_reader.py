"""Reads a snapshot file that arrives in pieces of any size. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from blumfeld.wire.batches.control_records import ControlType, control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.codec import decode
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.raft_records import KRaftVersionRecord, SnapshotHeaderRecord, VotersRecord
from blumfeld.wire.primitives import DecodeError

BATCH_BYTES_MAX = 1 << 26
"""The largest batch that is waited for. Kafka writes at most 8 MiB; a damaged length could ask for 2 GiB of memory."""
_LENGTH = Struct(">8xi")
_LENGTH_OVERHEAD = 12


class CheckpointReader:
    """Checks a snapshot as it comes: CRC of each batch, offsets in a row from 0, a header first, a footer last.

    Memory is bounded by the largest batch, since a batch is given on as soon as it is whole.

    :param source: the file's path, for error messages
    :param epoch: the epoch in the snapshot's id, which all its batches carry; ``None`` to take any
    """

    def __init__(self, source: str, epoch: int | None = None) -> None:
        self.last_contained_ms = 0
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self._source = source
        self._epoch = epoch
        self._rest = b""
        self._next_offset = 0
        self.is_open = False
        """The header has come."""
        self._closed = False

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[RecordBatch]:
        """Take the next bytes, and yield the batches of metadata records that are whole now. Take them all: the bytes
        that are left over are kept when the iterator ends.

        :raises ValueError: the snapshot is damaged
        """
        whole = self._rest + bytes(data) if self._rest else bytes(data)
        end = 0
        try:
            for batch in split_batches(memoryview(whole), allow_partial=True):
                batch.verify_crc()
                self._check(batch)
                end += batch.size_bytes
                if batch.is_control:
                    self._read_controls(batch)
                else:
                    yield batch
        except (BrokerError, DecodeError) as error:
            raise ValueError(f"{self._source}: {error}") from error
        self._rest = whole[end:]
        if len(self._rest) >= _LENGTH_OVERHEAD:
            (length,) = _LENGTH.unpack_from(self._rest)
            if length > BATCH_BYTES_MAX:
                raise self._damaged(f"a batch of {length} bytes, where {BATCH_BYTES_MAX} are allowed")

    def finish(self) -> None:
        """The file has ended.

        :raises ValueError: the snapshot is cut off
        """
        if self._rest:
            raise self._damaged(f"its last {len(self._rest)} bytes are no whole batch")
        if not self.is_open or not self._closed:
            raise self._damaged(
                f"no whole snapshot: its {'last' if self.is_open else 'first'} record is missing"
            )

    def _check(self, batch: RecordBatch) -> None:
        if self._closed:
            raise self._damaged(f"a batch at offset {batch.base_offset}, behind the last record")
        if not self.is_open and not batch.is_control:
            raise self._damaged("no whole snapshot: its first record is missing")
        if batch.base_offset != self._next_offset:
            raise self._damaged(
                f"a batch at offset {batch.base_offset}, where {self._next_offset} comes next: a part is missing"
            )
        if self._epoch is not None and batch.partition_leader_epoch != self._epoch:
            raise self._damaged(
                f"a batch of epoch {batch.partition_leader_epoch} at offset {batch.base_offset}, where all have "
                f"epoch {self._epoch}"
            )
        self._next_offset = batch.next_offset

    def _read_controls(self, batch: RecordBatch) -> None:
        for record in records(batch):
            kind, value = control_type_of(record.key), record.value or b""
            if kind is ControlType.SNAPSHOT_HEADER:
                self.is_open = True
                self.last_contained_ms = decode(SnapshotHeaderRecord, value, 0).last_contained_log_timestamp
            elif not self.is_open:
                raise self._damaged("no whole snapshot: its first record is missing")
            elif kind is ControlType.KRAFT_VERSION:
                self.kraft_version = decode(KRaftVersionRecord, value, 0).kraft_version
            elif kind is ControlType.KRAFT_VOTERS:
                self.voters = decode(VotersRecord, value, 0)
            self._closed = kind is ControlType.SNAPSHOT_FOOTER

    def _damaged(self, text: str) -> ValueError:
        return ValueError(f"{self._source}: {text}")
