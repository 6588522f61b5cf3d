"""Checks of a batch's header and CRC before it is placed, in the order of Kafka's ``LogValidator``.

Records are decoded only if the topic makes it necessary (docs/design.md, rule 4): a compacted topic refuses null
keys. docs/not-implemented.md lists Kafka's other checks of single records.
"""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from blumfeld.config.values import TopicConfig
from blumfeld.wire.batches.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    RecordBatch,
)
from blumfeld.wire.compression.codec import EXPANSION_MAX, Codec
from blumfeld.wire.errors import BrokerError, ErrorCode, InvalidRecord

_REFUSED_BITS = CONTROL_BIT | LOG_APPEND_TIME_BIT
_CODEC_AND_REFUSED_BITS = CODEC_MASK | _REFUSED_BITS
"""Masked with this, valid attributes are at most :data:`ZSTD`, the last codec. An unknown codec makes the value
greater, and so does a refused bit, because it is a higher bit. So one comparison on the hot path checks both."""
ZSTD = Codec.ZSTD.value
ZSTD_FROM = 7
"""First version of Produce that may carry zstd (KIP-110)."""


class RejectedRecords(InvalidRecord):
    """A batch is refused because of some of its records, which the answer names in ``recordErrors`` (KIP-467).

    The producer fails the batch's other records with an error that refers to these.
    """

    def __init__(self, message: str, indexes: Sequence[int], record_message: str) -> None:
        super().__init__(message)
        self.indexes = indexes
        """Positions of the faulty records in their batch, from 0."""
        self.record_message = record_message


class TooMuchAtOnce(BrokerError):  # noqa: N818 - the words say what to do about it
    """A batch holds more records or bytes than the loop may check. Nothing was changed: give it to
    ``broker/replicas/rules/record_inspection.py``."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch must be looked into off the loop")


class AppendRules:
    """The part of a topic's configuration that every append reads, as plain attributes because that is fast."""

    __slots__ = (
        "_bytes_max",
        "after_ms_max",
        "batch_bytes_max",
        "before_ms_max",
        "changes_batches",
        "log_append_time",
        "looks_inside",
        "segment_bytes",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.batch_bytes_max: int = config.max_message_bytes
        self.segment_bytes: int = config.segment_bytes
        self.log_append_time: bool = config.log_append_time
        self.before_ms_max: int = config.message_timestamp_before_max_ms
        self.after_ms_max: int = config.message_timestamp_after_max_ms
        self._bytes_max = min(self.batch_bytes_max, self.segment_bytes)
        self.looks_inside: bool = config.compacts or config.compression_type != "producer"
        """Records are decoded before the batch is placed (:mod:`blumfeld.broker.replicas.rules.record_rules`)."""
        self.changes_batches = self.looks_inside or self.log_append_time

    def check(self, batch: RecordBatch, now_ms: int) -> None:
        """Refuse a client's batch that may not be placed. A good batch passes with one expression; one that packs its
        records into less than 7 bytes each needs a second look.

        :raises BrokerError: MESSAGE_TOO_LARGE, INVALID_RECORD, CORRUPT_MESSAGE, INVALID_TIMESTAMP,
            RECORD_LIST_TOO_LARGE
        """
        count = batch.record_count
        if (
            batch.base_offset
            or batch.size_bytes > self._bytes_max
            or crc32c(batch.data[CRC_FROM:]) != batch.crc
            or batch.attributes & _CODEC_AND_REFUSED_BITS > ZSTD
            or batch.last_offset_delta + 1 != count
            or count <= 0
            or count * RECORD_BYTES_MIN > batch.size_bytes - HEADER_BYTES
            or (batch.producer_id >= 0 and batch.base_sequence < 0)
            or batch.max_timestamp > now_ms + self.after_ms_max
            or batch.base_timestamp < now_ms - self.before_ms_max
        ):
            self._check_in_order(batch, now_ms)

    def _check_in_order(self, batch: RecordBatch, now_ms: int) -> None:
        """Repeat the checks of a suspicious batch in Kafka's order, so that the first failure gives Kafka's error."""
        if batch.base_offset:
            raise InvalidRecord(f"the base offset of a produced batch is 0, not {batch.base_offset}")
        if batch.size_bytes > self.batch_bytes_max:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {batch.size_bytes} bytes, the topic takes {self.batch_bytes_max}",
            )
        batch.verify_crc()
        if batch.attributes & _REFUSED_BITS or batch.last_offset_delta + 1 != batch.record_count:
            raise _malformed(batch)
        if batch.record_count <= 0 or (batch.producer_id >= 0 and batch.base_sequence < 0):
            raise _malformed(batch)
        if batch.attributes & CODEC_MASK > ZSTD:
            raise InvalidRecord(f"no codec has the number {batch.attributes & CODEC_MASK}")
        _check_room(batch)
        if not self.log_append_time:
            self._check_time(batch, now_ms)
        if batch.size_bytes > self.segment_bytes:
            raise BrokerError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {batch.size_bytes} bytes, a segment {self.segment_bytes}",
            )

    def _check_time(self, batch: RecordBatch, now_ms: int) -> None:
        latest = batch.max_timestamp
        if latest > now_ms + self.after_ms_max:
            raise BrokerError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {latest} is more than message.timestamp.after.max.ms after {now_ms}",
            )
        earliest = batch.base_timestamp
        if earliest != NO_TIMESTAMP and earliest < now_ms - self.before_ms_max:
            raise BrokerError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {earliest} is more than message.timestamp.before.max.ms before {now_ms}",
            )


def _check_room(batch: RecordBatch) -> None:
    """Refuse a batch that declares more records than its bytes can hold, whatever its codec makes of them.

    Nothing is decompressed: a compressed batch is believed up to what its codec can hold.
    """
    records_bytes = batch.size_bytes - HEADER_BYTES
    count_max = records_bytes * EXPANSION_MAX[batch.codec] // RECORD_BYTES_MIN
    if batch.record_count > count_max:
        raise InvalidRecord(
            f"the header says {batch.record_count} records, and {records_bytes} bytes hold {count_max} at most"
        )


class RefusedAppends(AppendRules):
    """The rules of a partition whose leadership is being given away: it takes nothing."""

    __slots__ = ()

    def check(self, batch: RecordBatch, now_ms: int) -> None:
        """Refuse the batch.

        :raises BrokerError: NOT_LEADER_OR_FOLLOWER
        """
        raise BrokerError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "another replica is to lead: this one can't be written"
        )


def _malformed(batch: RecordBatch) -> BrokerError:
    if batch.record_count <= 0:
        return InvalidRecord(f"a batch with {batch.record_count} records")
    if batch.last_offset_delta + 1 != batch.record_count:
        return InvalidRecord(
            f"{batch.record_count} records, where the offsets leave room for {batch.last_offset_delta + 1}"
        )
    if batch.attributes & CONTROL_BIT:
        return InvalidRecord("clients may not write control batches")
    if batch.attributes & LOG_APPEND_TIME_BIT:
        return BrokerError(ErrorCode.INVALID_TIMESTAMP, "a client's batch may not claim log append time")
    return InvalidRecord(f"producer {batch.producer_id} sent no sequence number")


def check_codec(batch: RecordBatch) -> None:
    """Refuse zstd in a Produce request below :data:`ZSTD_FROM`.

    :raises BrokerError: UNSUPPORTED_COMPRESSION_TYPE
    """
    if batch.attributes & CODEC_MASK == ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7")
