"""Record batches as JSON, to read a captured batch, and to write one in a test.

Kafka has no JSON form of batches. Names are the batch's fields in camel case; keys and values are base64 as
in
:mod:`blumfeld.wire.json_form`. A control record is shown decoded, beside its bytes.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

from blumfeld.wire.api import message_class
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.control_records import ControlType, control_type_of, coordinator_epoch_of
from blumfeld.wire.batches.legacy import legacy_records
from blumfeld.wire.batches.record_batch import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RecordBatch,
    UnsupportedMagic,
    split_batches,
)
from blumfeld.wire.batches.records import Record, records
from blumfeld.wire.codec import decode
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.json_form import to_json
from blumfeld.wire.primitives import DecodeError

Json = dict[str, Any]

_KRAFT_MESSAGES = {
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}


def batches_to_json(data: memoryview) -> list[Json]:
    """Returns the adjacent batches in ``data`` with their records. Every CRC is checked.

    Data of format 0 or 1 becomes one entry with its records.

    :raises CorruptBatch, InvalidRecord, DecompressedTooLarge: as the readers of batches and records do
    """
    try:
        return [_batch_to_json(batch) for batch in split_batches(data)]
    except UnsupportedMagic as error:
        if error.magic not in (0, 1):
            raise
        return [{"magic": error.magic, "records": [_record_to_json(r) for r in legacy_records(data)]}]


def _batch_to_json(batch: RecordBatch) -> Json:
    batch.verify_crc()
    header: Json = {
        "baseOffset": batch.base_offset,
        "batchLength": batch.batch_length,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "magic": batch.magic,
        "crc": batch.crc,
        "compression": batch.codec.name.lower(),
        "timestampType": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "transactional": batch.is_transactional,
        "control": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "lastOffsetDelta": batch.last_offset_delta,
        "baseTimestamp": batch.base_timestamp,
        "maxTimestamp": batch.max_timestamp,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
    }
    shown = [_record_to_json(record) for record in records(batch)]
    if batch.is_control:
        for record, json in zip(records(batch), shown, strict=True):
            json["says"] = _control_to_json(record)
    return header | {"records": shown}


def _record_to_json(record: Record) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [
            {"key": _utf8(name).decode(errors="replace"), "value": _base64(value)}
            for name, value in record.headers
        ],
    }


def _utf8(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _control_to_json(record: Record) -> Json:
    kind = control_type_of(record.key)
    if kind is None:
        return {"type": None}
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return {"type": kind.name, "coordinatorEpoch": coordinator_epoch_of(record.value)}
    cls, value = message_class(_KRAFT_MESSAGES[kind]), record.value or b""
    version = int.from_bytes(value[:2], "big")
    return {"type": kind.name} | to_json(decode(cls, value, version), version)


def batches_from_json(value: object) -> bytes:
    """Returns the bytes of these batches, with new lengths, deltas and CRCs. One object counts as a list of
    one.

    Missing fields have the values of a plain batch without a producer. Only format 2 is built. In a
    LogAppendTime batch every record shows the batch's time, so the timestamp deltas of its producer are not
    restored.

    :raises DecodeError: not such an object, or a value that no batch can have
    """
    entries = value if isinstance(value, list) else [value]
    return b"".join(_batch_from_json(entry, f"batch {number}") for number, entry in enumerate(entries))


def _batch_from_json(value: object, path: str) -> bytes:
    if not isinstance(value, dict):
        raise DecodeError(f"{path} must be an object, not {value!r}")
    if value.get("magic", 2) != 2:
        raise DecodeError(f"{path}: only format 2 is written, not {value['magic']!r}")
    entries = value.get("records", [])
    try:
        made = [_record_from_json(entry, value.get("baseOffset", 0) + at) for at, entry in enumerate(entries)]
        return bytes(_built(value, made))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, struct.error) as error:
        raise DecodeError(f"{path}: {error!r}") from None


def _built(value: Json, made: Sequence[Record]) -> bytearray:
    append_time = value["maxTimestamp"] if value.get("timestampType") == "LogAppendTime" else None
    return build_batch(
        made,
        base_offset=value.get("baseOffset", 0),
        codec=Codec[value.get("compression", "none").upper()],
        producer_id=value.get("producerId", NO_PRODUCER_ID),
        producer_epoch=value.get("producerEpoch", NO_PRODUCER_EPOCH),
        base_sequence=value.get("baseSequence", NO_SEQUENCE),
        leader_epoch=value.get("partitionLeaderEpoch", NO_LEADER_EPOCH),
        transactional=value.get("transactional", False),
        control=value.get("control", False),
        log_append_time_ms=append_time,
        keep_offsets=True,
        last_offset_delta=value.get("lastOffsetDelta"),
        delete_horizon_ms=value.get("deleteHorizonMs"),
    )


def _record_from_json(value: Json, offset: int) -> Record:
    return Record(
        key=_bytes(value.get("key")),
        value=_bytes(value.get("value")),
        headers=[(header["key"], _bytes(header["value"])) for header in value.get("headers", ())],
        timestamp=value.get("timestamp", -1),
        offset=value.get("offset", offset),
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)
