"""Checks records inside a batch before it is placed: for compacted topics and topics with a codec of their own.

Most topics never need this (docs/design.md, rule 4), so the module is imported when such a topic gets its first batch.
"""

from __future__ import annotations

from blumfeld.broker.replicas.rules.append_rules import RejectedRecords, TooMuchAtOnce
from blumfeld.config.values import TopicConfig
from blumfeld.wire.batches.builder import build_batch, repack
from blumfeld.wire.batches.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.batches.records import (
    DECOMPRESSED_BYTES_MAX,
    Checked,
    TooManyHeaders,
    records,
    validate_records,
)
from blumfeld.wire.compression.bulk_decompression import unpacked
from blumfeld.wire.compression.codec import Codec, DecompressedTooLarge
from blumfeld.wire.errors import BrokerError, ErrorCode

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


LOOK_BYTES_MAX = 256 * 1024
"""Decompressed bytes that are checked on the loop, in less than a millisecond. A few kB may unpack to 100 MB."""
LOOK_PACKED_BYTES_MAX = 32 * 1024
"""Compressed bytes that are checked on the loop. An empty snappy block has 5 bytes and takes 2 µs, so small unpacked
size alone would not bound the time."""
LOOK_RECORDS_MAX = 4_096
"""Records of a batch that are checked on the loop: this many take 3 ms."""
LOOK_HEADERS_MAX = 8_192
"""Record headers, all records together, that are checked on the loop: this many take 3 ms. 256 KiB can hold 130,000."""
RECORD_ERRORS_MAX = LOOK_RECORDS_MAX
"""Most records that one answer blames one by one, because the answer is made and encoded in one go on the loop."""


WALKED_MAX = 1_000_000
"""Records of a batch, and headers of all of them together, that a worker checks: about a second. A batch of some kB may
hold 40 million headers, or 14 million records that take gigabytes while it is rebuilt. A producer's batch has some
thousands of either."""


def conformed(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """Returns the batch as the topic requires it: unchanged, or rebuilt in the topic's codec with offsets in order.

    :raises TooMuchAtOnce: it holds more records, headers or bytes than the loop may check; call
        :func:`conformed_off_the_loop` in a worker thread
    :raises BrokerError: INVALID_RECORD (a record without a key in a compacted topic, broken records);
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE (the rebuilt batch exceeds the topic's limits)
    """
    bytes_max = LOOK_BYTES_MAX if batch.codec is Codec.NONE else LOOK_PACKED_BYTES_MAX
    if batch.record_count > LOOK_RECORDS_MAX or batch.size_bytes > bytes_max:
        raise TooMuchAtOnce
    try:
        checked = validate_records(batch, LOOK_BYTES_MAX, headers_max=LOOK_HEADERS_MAX)
    except (DecompressedTooLarge, TooManyHeaders):
        raise TooMuchAtOnce from None
    _check_keys(batch, checked, config)
    codec = _CODECS.get(config.compression_type, batch.codec)
    if codec is batch.codec and checked.offsets_in_order:
        return batch
    return _rebuilt(batch, config, codec)


def conformed_off_the_loop(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """:func:`conformed` for a batch of any size. It may take long: call it in a worker thread.

    :raises BrokerError: as :func:`conformed`; MESSAGE_TOO_LARGE also if the batch decompresses to more than
        ``DECOMPRESSED_BYTES_MAX``, or has more than ``WALKED_MAX`` records or headers
    """
    if batch.record_count > WALKED_MAX:
        raise _too_many(f"{batch.record_count} records")
    plain = unpacked(batch.codec, batch.records_data, DECOMPRESSED_BYTES_MAX)
    try:
        checked = validate_records(batch, plain=plain, headers_max=WALKED_MAX)
    except TooManyHeaders:
        raise _too_many("more headers") from None
    _check_keys(batch, checked, config)
    codec = _CODECS.get(config.compression_type, batch.codec)
    if not checked.offsets_in_order:
        return _rebuilt(batch, config, codec)
    if codec is batch.codec:
        return batch
    if codec is Codec.NONE and len(plain) + HEADER_BYTES > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(plain)} bytes without its codec, the topic takes {config.max_message_bytes}",
        )
    repacked = repack(batch, plain, codec, _level(config, codec), checked.max_timestamp)
    return _fitting(RecordBatch(memoryview(repacked)), config)


def _too_many(text: str) -> BrokerError:
    return BrokerError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {text}, and this topic's batches are checked up to {WALKED_MAX}: make smaller batches",
    )


def _fitting(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """Returns the rebuilt batch if it still fits the topic's limits: a few bytes may have become megabytes."""
    if batch.size_bytes > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {batch.size_bytes} bytes in the topic's codec, the topic takes "
            f"{config.max_message_bytes}",
        )
    if batch.size_bytes > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {batch.size_bytes} bytes in the topic's codec, a segment {config.segment_bytes}",
        )
    return batch


def _check_keys(batch: RecordBatch, checked: Checked, config: TopicConfig) -> None:
    if config.compacts and checked.null_keys:
        raise RejectedRecords(
            f"{checked.null_keys} of {batch.record_count} records have no key, the first is record "
            f"{checked.null_key_indexes[0]}; every record of a compacted topic needs one",
            checked.null_key_indexes[:RECORD_ERRORS_MAX],
            "a record of a compacted topic needs a key",
        )


def _rebuilt(batch: RecordBatch, config: TopicConfig, codec: Codec) -> RecordBatch:
    rebuilt = build_batch(
        list(records(batch)),
        codec=codec,
        level=_level(config, codec),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )
    return _fitting(RecordBatch(memoryview(rebuilt)), config)


def _level(config: TopicConfig, codec: Codec) -> int | None:
    if codec is Codec.GZIP:
        return config.compression_gzip_level
    if codec is Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec is Codec.ZSTD else None
