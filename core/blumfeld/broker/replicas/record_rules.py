"""Where the records of a batch must be looked at before it is placed: compacted topics, and topics with a codec.

Off the path of most topics (docs/design.md, rule 4): imported when the first such topic takes a batch.
"""

from __future__ import annotations

from blumfeld.broker.replicas.append_rules import RejectedRecords, TooMuchAtOnce
from blumfeld.config.values import TopicConfig
from blumfeld.wire.batch_builder import build_batch, repack
from blumfeld.wire.compression import Codec, DecompressedTooLarge
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.record_batch import HEADER_BYTES, RecordBatch
from blumfeld.wire.records import DECOMPRESSED_BYTES_MAX, Checked, TooManyHeaders, records, validate_records
from blumfeld.wire.unpacking import unpacked

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


LOOK_BYTES_MAX = 256 * 1024
"""Decompressed bytes that are looked at on the loop, in less than a millisecond. A batch of some kB may hold 100 MB."""
LOOK_PACKED_BYTES_MAX = 32 * 1024
"""Compressed bytes that are looked at on the loop: 5 of them may be an empty block of snappy, which takes 2 µs."""
LOOK_RECORDS_MAX = 4_096
"""Records that are looked at on the loop: 3 ms."""
LOOK_HEADERS_MAX = 8_192
"""Headers of all these records that are looked at on the loop: 3 ms. 256 KiB may be 130,000 of them."""
RECORD_ERRORS_MAX = LOOK_RECORDS_MAX
"""Records that an answer blames one by one: it is made and encoded in one go."""


def conformed(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """The batch as the topic wants it: the same, or written anew in the topic's codec with offsets in order.

    :raises TooMuchAtOnce: it holds too many records, headers, or bytes
    :raises BrokerError: INVALID_RECORD (a record without a key in a compacted topic, broken records);
        MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE (it is too large as the topic wants it)
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
    """:func:`conformed` for any batch, in a worker thread.

    :raises BrokerError: as there; MESSAGE_TOO_LARGE also if it would decompress to more than is allowed
    """
    plain = unpacked(batch.codec, batch.records_data, DECOMPRESSED_BYTES_MAX)
    checked = validate_records(batch, plain=plain)
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


def _fitting(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """A batch that was written anew, if the topic takes one of its size: some bytes may have become megabytes."""
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
