"""Requests with as many elements as fit, made from the schema: one case for each array of each request.

Elements differ from each other where they can: their strings and partition numbers count up. Names that must exist for
the broker to look further (the topic of a nested array, the group) are those that the campaign made. Beside them are
batches of some kB that unpack to nearly 100 MB, for topics whose records the broker looks at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from blumfeld.wire.api import API_BY_KEY, request_class
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import encode
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.headers import put_request_header
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.primitives import ARRAY_LENGTH_MAX
from blumfeld.wire.schema import FIXED_FORMATS, Field, Message, Struct, fields_of

TOPIC = "stalls"
GROUP = "stalls"
CLIENT_ID = "stalls"
CORRELATION_ID = 7
TOPIC_FIELDS = ("name", "topic", "topic_name", "topics", "topic_names")
GROUP_FIELDS = ("group_id", "groups", "groups_names", "group_ids", "coordinator_keys", "key")
FIXED_VALUES: dict[str, Any] = {
    "timeout_ms": 1_000,
    "max_wait_ms": 0,
    "acks": 1,
    "allow_auto_topic_creation": False,
    "session_epoch": -1,
    "replica_id": -1,
    "resource_type": 2,
    "replication_factor": 1,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "max_bytes": 1 << 20,
    "validate_only": True,
    "retention_time_ms": -1,
    "generation_id_or_member_epoch": -1,
    "committed_leader_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "leader_epoch": -1,
    "response_partition_limit": 2_000,
}
"""Values with which a request is taken for its elements' sake, and not refused for another reason."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One large request."""

    key: int
    version: int
    title: str
    make: Callable[[], bytes]
    """Its frame, without the size."""


def cases(key: int, versions: tuple[int, int], elements_max: int, bytes_max: int) -> Iterator[Case]:
    """Cases of one API: each array of the newest version; each of the oldest whose path the newest doesn't have; a
    giant string.
    """
    cls = request_class(key)
    seen: set[tuple[str, ...]] = set()
    for version in dict.fromkeys((versions[1], max(versions[0], cls.meta.valid.first))):
        if version not in cls.meta.valid:
            continue
        for path in arrays(cls, version):
            if path in seen:
                continue
            seen.add(path)
            yield Case(
                key=key,
                version=version,
                title=f"{API_BY_KEY[key].name} v{version} {'.'.join(path)}",
                make=lambda version=version, path=path: frame(cls, version, path, elements_max, bytes_max),  # type: ignore[misc]
            )


def arrays(cls: type[Message] | type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    """The paths of all arrays in a request, from the outermost."""
    for field in fields_of(cls):
        if version not in field.versions and version not in field.tagged:
            continue
        if field.type.array:
            yield (field.name,)
        if field.type.struct is not None:
            for rest in arrays(field.type.struct, version):
                yield (field.name, *rest)


def frame(
    cls: type[Message], version: int, path: tuple[str, ...], elements_max: int, bytes_max: int
) -> bytes:
    """The request with ``elements_max`` elements in the array at ``path``, or with as many as fit."""
    flexible = version in cls.meta.flexible
    single_bytes = len(encode(_filled(cls, version, path, 1, flexible), version))
    few = len(encode(_filled(cls, version, path, 101, flexible), version))
    each = max((few - single_bytes) / 100 + 1, 1.0)  # names get longer as they count up
    count = min(elements_max, ARRAY_LENGTH_MAX, int(bytes_max / each))
    assert cls.meta.key is not None
    return put_request_header(cls.meta.key, version, CORRELATION_ID, CLIENT_ID) + encode(
        _filled(cls, version, path, count, flexible), version
    )


def _filled(
    cls: type[Any], version: int, path: tuple[str, ...], count: int, flexible: bool, number: int = 0
) -> Any:
    """A value of a message or struct whose array at ``path`` has ``count`` elements, other arrays one or none."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        if version not in field.versions and not (flexible and version in field.tagged):
            continue
        here = bool(path) and path[0] == field.name
        kind = field.type
        if kind.array and not here:
            values[field.name] = None if version in field.nullable and not path else []
        elif kind.array:
            rest = path[1:]
            wanted = 1 if rest else count
            if kind.struct is not None:
                values[field.name] = [
                    _filled(kind.struct, version, rest, count, flexible, -1 if rest else i)
                    for i in range(wanted)
                ]
            else:
                values[field.name] = [_scalar(field, i) for i in range(wanted)]
        elif kind.struct is not None:
            if here:
                values[field.name] = _filled(kind.struct, version, path[1:], count, flexible, -1)
        elif field.name in FIXED_VALUES:
            values[field.name] = FIXED_VALUES[field.name]
        else:
            value = _scalar(field, number if not path else -1)
            if value is not None:
                values[field.name] = value
    return cls(**values)


def _scalar(field: Field, number: int) -> Any:
    """The value of a field in element ``number``; -1 for one of which there is only one: a thing that exists."""
    kind = field.type.kind
    if kind == "string":
        if number >= 0:
            return f"x{number}"
        if field.name in TOPIC_FIELDS:
            return TOPIC
        return GROUP if field.name in GROUP_FIELDS else None
    if kind == "uuid":
        return number.to_bytes(16, "big") if number > 0 else None
    if kind in ("int32", "int64") and number >= 0 and field.name.startswith(("partition", "index", "broker")):
        return number
    if kind in FIXED_FORMATS and field.type.array:
        return number if kind in ("int32", "int64") else number % 100
    return None


PRODUCE_VERSION = 9
UNPACKED_BYTES = 95 * 1000 * 1000
RECORD_BYTES = 500_000
BATCH_BYTES_MAX = "104857600"
BATCH_TOPICS = {
    "stalls-compacted": {"cleanup.policy": "compact", "max.message.bytes": BATCH_BYTES_MAX},
    "stalls-zstd": {"compression.type": "zstd", "max.message.bytes": BATCH_BYTES_MAX},
}
"""Topics whose records are decoded: one wants keys, one another codec."""


def batch_cases() -> Iterator[Case]:
    """Large records and small ones, in each codec, to each topic."""
    for topic in BATCH_TOPICS:
        for codec in Codec:
            yield _batch_case(topic, codec, RECORD_BYTES, UNPACKED_BYTES // RECORD_BYTES)
        yield _batch_case(topic, Codec.ZSTD, 8, 1_000_000)


def _batch_case(topic: str, codec: Codec, record_bytes: int, count: int) -> Case:
    return Case(
        key=0,
        version=PRODUCE_VERSION,
        title=f"Produce v{PRODUCE_VERSION} {topic} {codec.name.lower()} {count} × {record_bytes} B",
        make=lambda: _batch_frame(topic, codec, record_bytes, count),
    )


def _batch_frame(topic: str, codec: Codec, record_bytes: int, count: int) -> bytes:
    record = Record(b"key", bytes(record_bytes), (), int(time.time() * 1000))
    batch = build_batch([record] * count, codec=codec)
    data = PartitionProduceData(index=0, records=bytes(batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)
    return put_request_header(0, PRODUCE_VERSION, CORRELATION_ID, CLIENT_ID) + encode(
        request, PRODUCE_VERSION
    )
