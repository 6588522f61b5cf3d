"""Compaction of one log, as its owner asks for it: the range to clean, the buffers to use, and the result.

The broker decides *when* (the dirty ratio, Kafka's lags). The choice of records is pure and lies in
:mod:`blumfeld.log`. The storage reads, writes and swaps (Kafka's ``Cleaner``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class AbortedTransaction(msgspec.Struct, frozen=True):
    """One transaction with data that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """The log's last stable offset when the marker was appended. No transaction below it was open then."""


class LastProducerBatch(msgspec.Struct, frozen=True):
    """The batch of a producer that compaction must keep, so that a start without a snapshot still finds its sequence
    and epoch.
    """

    last_data_offset: int
    """Last offset of the producer's newest batch with records; -1 if only its markers are left."""
    producer_epoch: int


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The order for one cleaner pass. It holds plain values only, so it can be sent to another process."""

    first_dirty_offset: int
    """First offset that no pass has cleaned yet. Below it, each key stands once."""
    end_offset: int
    """Base offset of a segment, at most of the active one. The pass neither reads nor changes anything from it on."""
    now_ms: int
    delete_retention_ms: int
    """Time that a tombstone, or a marker that is not needed, stays after the pass that first saw it (KIP-534)."""
    segment_bytes: int
    """Limit for the segments that the pass writes."""
    segment_index_bytes: int
    index_interval_bytes: int
    batch_bytes_max: int
    """``max.message.bytes``. A larger batch that is in the log already is cleaned all the same."""
    map_bytes: int = 128 << 20
    """Memory of the offset map. When it is full, the pass ends at the last offset in the map."""
    map_load_factor: float = 0.9
    bytes_per_second_max: float = float("inf")
    """Bytes read and written together (``log.cleaner.io.max.bytes.per.second``)."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The transactions whose abort marker is at or above the log start, in the order of the markers."""
    producers: Mapping[int, LastProducerBatch] = {}
    """Producer id → its last batch, for each producer that is known at ``end_offset`` or later."""


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a cleaner pass."""

    cleaned_end_offset: int
    """First dirty offset of the next pass."""
    bytes_read: int
    """Bytes of batches that were read, to fill the map and to filter."""
    bytes_before: int
    """Size of the segments that were cleaned."""
    bytes_after: int
    """Size of the segments that took their place."""
    records_read: int
    records_kept: int
    keys: int
    """Keys in the offset map."""
    segments_before: int
    segments_after: int
    invalid_records: int = 0
    """Records without a key. A compacted topic can't hold them, so the pass drops them, as Kafka does."""
    seconds: float = 0.0
    """Time of work by the worker's monotonic clock, without the waits of throttling."""


class CompactionAbandonedError(Exception):
    """The log was closed, deleted, truncated or moved during the pass. The pass changed nothing: ask again later."""
