"""Where the records of a batch must be looked at before it is placed: compacted topics, and topics with a codec.

Off the path of most topics (design rule 4): imported when the first such topic takes a batch.
"""

from __future__ import annotations

from blumfeld.broker.append_rules import RejectedRecords
from blumfeld.spi.config import TopicConfig
from blumfeld.wire.batch_builder import build_batch
from blumfeld.wire.compression import Codec
from blumfeld.wire.record_batch import RecordBatch
from blumfeld.wire.records import records, validate_records

_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def conformed(batch: RecordBatch, config: TopicConfig) -> RecordBatch:
    """The batch as the topic wants it: the same, or written anew in the topic's codec with offsets in order.

    :raises BrokerError: INVALID_RECORD (a record without a key in a compacted topic, broken records),
        MESSAGE_TOO_LARGE (it would decompress to more than is allowed)
    """
    checked = validate_records(batch)
    if config.compacts and checked.null_keys:
        raise RejectedRecords(
            f"{checked.null_keys} of {batch.record_count} records have no key, the first is record "
            f"{checked.null_key_indexes[0]}; every record of a compacted topic needs one",
            checked.null_key_indexes,
            "a record of a compacted topic needs a key",
        )
    codec = _CODECS.get(config.compression_type, batch.codec)
    if codec is batch.codec and checked.offsets_in_order:
        return batch
    rebuilt = build_batch(
        list(records(batch)),
        codec=codec,
        level=_level(config, codec),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
    )
    return RecordBatch(memoryview(rebuilt))


def _level(config: TopicConfig, codec: Codec) -> int | None:
    if codec is Codec.GZIP:
        return config.compression_gzip_level
    if codec is Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec is Codec.ZSTD else None
