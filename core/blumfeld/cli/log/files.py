"""Any one file of a data directory, as rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from blumfeld.cli.log.listing import Listing
from blumfeld.cli.log.transactions import transaction, transactional_id
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.log.checkpoints import decode_offsets
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import decode_aborted
from blumfeld.log.producers.snapshot import decode_snapshot
from blumfeld.log.segments.file_names import Suffix, parse_partition_dir, parse_segment_name
from blumfeld.log.segments.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from blumfeld.log.segments.inspection import Damage, WholeBatch, inspect_segment
from blumfeld.log.segments.verification import trimmed
from blumfeld.metadata.image.record_frame import decode_record
from blumfeld.spi.internal_topics import (
    CLUSTER_METADATA_TOPIC,
    REMOTE_LOG_METADATA_TOPIC,
    TRANSACTIONS_TOPIC,
)
from blumfeld.wire.batches.control_records import control_type_of
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.remote_log_metadata_records import RECORD_TYPES
from blumfeld.wire.primitives import DecodeError

_SET_ASIDE = re.compile(r"\.(cut|damaged)(-\d+)?$")
"""Suffix that recovery or a repair gives to a log file that it sets aside."""
_SEGMENT_ID = re.compile(r"(?<=^[0-9]{20})-[A-Za-z0-9_-]{22}(?=\.)")
"""Stands between offset and suffix where a file was copied from an object store: the name of a remote segment."""
_METADATA_SNAPSHOT = re.compile(r"(bootstrap|[0-9]{20}-[0-9]{10})\.checkpoint")
"""Names of files that hold batches of the cluster metadata."""
BATCH_COLUMNS = (
    "position",
    "first",
    "last",
    "records",
    "bytes",
    "codec",
    "time",
    "epoch",
    "producer",
    "sequence",
    "kind",
)
RECORD_COLUMNS = ("offset", "time", "key", "value", "headers")


class Window(msgspec.Struct, frozen=True):
    """The part of a log to show."""

    from_offset: int = 0
    limit: int = 100
    records: bool = False
    """Whether to show records instead of batches."""
    topic: str | None = None
    """The topic of the records. Those of the metadata, of ``__transaction_state`` and of ``__remote_log_metadata`` are
    shown decoded."""


def read(path: str) -> memoryview:
    """The file's bytes, memory-mapped. Raises ``OSError``."""
    file = RealFiles().open(path, write=False)
    try:
        return file.mmap_read()
    finally:
        file.close()


def file_listing(path: str, window: Window) -> list[Listing]:
    """The contents of one file as tables.

    :raises OSError: the file cannot be read
    :raises ValueError: the contents do not fit the file's name
    """
    name = path.rpartition("/")[2]
    segment = parse_segment_name(_SEGMENT_ID.sub("", _SET_ASIDE.sub("", name)))
    data = read(path)
    if segment is None:
        if _METADATA_SNAPSHOT.fullmatch(name):
            return [log_listing(name, data, 0, msgspec.structs.replace(window, topic=CLUSTER_METADATA_TOPIC))]
        return [_other(name, bytes(data))]
    base = segment.base_offset
    match segment.suffix:
        case Suffix.LOG:
            topic = topic_of(os.path.dirname(os.path.abspath(path)))
            return [log_listing(name, data, base, msgspec.structs.replace(window, topic=topic))]
        case Suffix.OFFSET_INDEX:
            return [_offset_index(name, data, base)]
        case Suffix.TIME_INDEX:
            return [_time_index(name, data, base)]
        case Suffix.TRANSACTION_INDEX:
            return [_transaction_index(name, data)]
        case Suffix.PRODUCER_SNAPSHOT:
            return [snapshot_listing(name, bytes(data))]


def topic_of(path: str) -> str | None:
    """Returns the topic of a partition's directory; ``None`` for another directory."""
    parsed = parse_partition_dir(path.rpartition("/")[2])
    return None if parsed is None else parsed.partition.topic


def log_listing(name: str, data: memoryview, base_offset: int, window: Window) -> Listing:
    """Batches or records of a segment from an offset on. Damaged parts are shown in place."""
    listing = Listing(name, RECORD_COLUMNS if window.records else BATCH_COLUMNS, [], [])
    for part in inspect_segment(data, base_offset):
        if len(listing.rows) >= window.limit:
            listing.notes.append(f"stopped after {window.limit:,} rows: --from and --limit say which")
            break
        if isinstance(part, Damage):
            listing.notes.append(_damage(part))
        elif part.batch.last_offset >= window.from_offset:
            rows = _record_rows(part.batch, window) if window.records else iter([_batch_row(part)])
            for row in rows:
                if len(listing.rows) < window.limit:
                    listing.rows.append(row)
    return listing


def _damage(part: Damage) -> str:
    reach = "the end" if part.is_tail else f"before {part.to_offset}"
    size = f"{part.size_bytes:,} bytes at {part.position:,}"
    return f"DAMAGED: {size} (offsets {part.from_offset} to {reach}): {part.problem}"


def _batch_row(part: WholeBatch) -> tuple[object, ...]:
    batch = part.batch
    try:
        codec = batch.codec.name.lower()
    except BrokerError as error:
        codec = str(error)
    return (
        part.position,
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.size_bytes,
        codec,
        time_text(batch.max_timestamp),
        batch.partition_leader_epoch,
        f"{batch.producer_id}/{batch.producer_epoch}" if batch.has_producer_id else "",
        batch.base_sequence if batch.base_sequence >= 0 else "",
        _kind(batch),
    )


def _kind(batch: RecordBatch) -> str:
    words = []
    if batch.is_control:
        words.append(_control(batch))
    elif batch.is_transactional:
        words.append("transactional")
    if batch.is_log_append_time:
        words.append("log append time")
    if (horizon := batch.delete_horizon_ms) is not None:
        words.append(f"tombstones until {time_text(horizon)}")
    return ", ".join(words)


def _control(batch: RecordBatch) -> str:
    try:
        kinds = [control_type_of(record.key) for record in records(batch)]
    except BrokerError as error:
        return f"control ({error})"
    return "control " + ", ".join("unknown" if kind is None else kind.name.lower() for kind in kinds)


def _record_rows(batch: RecordBatch, window: Window) -> Iterator[tuple[object, ...]]:
    if batch.is_control:
        yield (batch.base_offset, time_text(batch.max_timestamp), "", _control(batch), "")
        return
    try:
        for record in records(batch):
            if record.offset >= window.from_offset:
                headers = ", ".join(f"{key}={value!r}" for key, value in record.headers)
                key, value = _key_and_value(record, window)
                yield (record.offset, time_text(record.timestamp), key, value, headers)
    except BrokerError as error:
        yield (batch.base_offset, time_text(batch.max_timestamp), "", f"records not readable: {error}", "")


def _key_and_value(record: Record, window: Window) -> tuple[object, object]:
    value: object = "tombstone" if record.value is None else record.value
    try:
        if window.topic == CLUSTER_METADATA_TOPIC and record.value is not None:
            value = repr(decode_record(record.value))
        elif window.topic == REMOTE_LOG_METADATA_TOPIC and record.value is not None:
            value = repr(decode_record(record.value, RECORD_TYPES))
        elif window.topic == TRANSACTIONS_TOPIC and record.key is not None:
            return transactional_id(record.key), value if record.value is None else transaction(record.value)
    except (DecodeError, ValueError):
        pass  # written by a newer release
    return record.key, value


def time_text(time_ms: int) -> str:
    """UTC to the millisecond; empty for -1."""
    if time_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"


def _offset_index(name: str, data: memoryview, base_offset: int) -> Listing:
    index = OffsetIndex(base_offset, trimmed(data, OFFSET_ENTRY_BYTES))
    return Listing(name, ("offset", "position"), [index.entry(at) for at in range(len(index))])


def _time_index(name: str, data: memoryview, base_offset: int) -> Listing:
    index = TimeIndex(base_offset, trimmed(data, TIME_ENTRY_BYTES))
    entries = [index.entry(at) for at in range(len(index))]
    return Listing(
        name, ("time", "offset"), [(time_text(entry.timestamp_ms), entry.offset) for entry in entries]
    )


def _transaction_index(name: str, data: memoryview) -> Listing:
    columns = ("producer", "first", "last", "last stable offset")
    rows = [
        (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
        for entry in decode_aborted(bytes(data))
    ]
    return Listing(name, columns, list(rows))


def snapshot_listing(name: str, data: bytes) -> Listing:
    """Producers of a snapshot."""
    columns = (
        "producer",
        "epoch",
        "last sequence",
        "last offset",
        "last time",
        "coordinator epoch",
        "open since",
    )
    return Listing(
        name,
        columns,
        [
            (
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_offset,
                time_text(entry.last_timestamp_ms),
                entry.coordinator_epoch,
                entry.txn_first_offset if entry.txn_first_offset >= 0 else "",
            )
            for entry in decode_snapshot(data)
        ],
    )


def _other(name: str, data: bytes) -> Listing:
    if name == EPOCHS or name.endswith(".leader_epoch_checkpoint"):
        return Listing(name, ("epoch", "start offset"), list(LeaderEpochCache.decode(data, name).entries))
    if name.endswith("-checkpoint"):
        rows = [(str(partition), offset) for partition, offset in decode_offsets(data, name).items()]
        return Listing(name, ("partition", "offset"), list(rows))
    if b"\0" in data:
        raise ValueError(f"no file of a data directory that is known here, and no text: {len(data):,} bytes")
    return Listing(name, ("line",), [(line,) for line in data.decode(errors="replace").splitlines()])
