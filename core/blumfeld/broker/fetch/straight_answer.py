"""The straight way of Fetch's answers: one partition, no error, from version 12 on. Nearly every long poll ends so.

The answer is written with three ``struct`` calls, where the general way makes four messages and walks their fields. A
test holds that both give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from blumfeld.broker.fetch.reads import PartitionRead
from blumfeld.spi.parts import Part
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.primitives import Records, put_records, put_uvarint, records_size

STRAIGHT_FROM = 12
"""Version from which on the answer is flexible."""
_TOPIC_ID_FROM = 13
_ONE = 2
"""An array with one element, as a flexible version writes its length."""
_NULL, _EMPTY = 0, 1
_SMALL_BYTES = 1024
"""Records up to this size are copied between the other fields, as the codec does."""
_HEAD = struct.Struct(">ihiB")
_PARTITION = struct.Struct(">BihqqqBi")
_NO_TAGS = bytes(3)
"""The empty tag sections of the partition, the topic and the answer."""
_NO_PREFERRED_REPLICA = -1
_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


class StraightAnswer(FetchResponse):
    """The answer to a fetch that tells of one partition. It has no other topics and no error.

    The codec asks :meth:`own_encoder` for the function that writes it.
    """

    partition_read: Any = None
    """The :class:`PartitionRead`."""
    for_aborted: bool = False
    """Whether the reader is read_committed: it gets an empty list of aborted transactions, others get null."""

    @staticmethod
    def own_encoder(version: int) -> Callable[[StraightAnswer, list[bytes], list[Part]], None]:
        """Returns the function that writes an answer in this version, from :data:`STRAIGHT_FROM` on."""
        return _with_id if version >= _TOPIC_ID_FROM else _with_name


def straight(partition_read: PartitionRead, read_committed: bool) -> StraightAnswer | None:
    """Returns the answer of one partition's read, or ``None`` if only the general way can write it."""
    if (
        partition_read.error
        or partition_read.diverging is not None
        or partition_read.preferred >= 0
        or partition_read.partition is None
    ):
        return None
    if read_committed and partition_read.read is not None and partition_read.aborted_found:
        return None
    return StraightAnswer(partition_read=partition_read, for_aborted=read_committed)


def _with_id(answer: StraightAnswer, out: list[bytes], parts: list[Part]) -> None:
    _write(answer, answer.partition_read.asked.topic, out, parts)


def _with_name(answer: StraightAnswer, out: list[bytes], parts: list[Part]) -> None:
    name = answer.partition_read.asked.topic.encode()
    _write(answer, _uvarint(len(name) + 1) + name, out, parts)


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    return bytes((value & 0x7F | 0x80, value >> 7)) if value < 0x4000 else put_uvarint(value)


def _write(answer: StraightAnswer, topic: bytes, out: list[bytes], parts: list[Part]) -> None:
    partition_read: PartitionRead = answer.partition_read
    append = out.append
    append(_HEAD.pack(answer.throttle_time_ms, answer.error_code, answer.session_id, _ONE))
    append(topic)
    append(
        _PARTITION.pack(
            _ONE,
            partition_read.asked.partition,
            0,
            partition_read.high_watermark,
            partition_read.stable,
            partition_read.log_start_offset,
            _EMPTY if answer.for_aborted else _NULL,
            _NO_PREFERRED_REPLICA,
        )
    )
    records: Records = b""
    if partition_read.read is not None:
        given = partition_read.read.parts
        records = given[0] if len(given) == 1 else given  # type: ignore[assignment]
    if type(records) is bytes and len(records) <= _SMALL_BYTES:
        append(_uvarint(len(records) + 1))
        append(records)
    else:
        append(put_uvarint(records_size(records) + 1))
        put_records(records, out, parts)  # type: ignore[arg-type]
    append(_NO_TAGS)
