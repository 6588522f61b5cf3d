"""Compaction of one log as its owner asks for it: what may be cleaned, with what, and what came of it.

Who decides *when* is the broker (the dirty ratio, Kafka's lags); how records are chosen is pure and in
:mod:`blumfeld.log`; the storage reads, writes and swaps (Kafka's ``Cleaner``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class AbortedTransaction(msgspec.Struct, frozen=True):
    """One transaction with data that was aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""
    last_stable_offset: int
    """Of the log when the marker came: no transaction below it was open any more."""


class LastProducerBatch(msgspec.Struct, frozen=True):
    """What must stay of a producer so that a start without a snapshot still knows its sequence and epoch."""

    last_data_offset: int
    """Of its newest batch with records; -1 if only its markers are left."""
    producer_epoch: int


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One round of cleaning. Plain values: it may be sent to another process."""

    first_dirty_offset: int
    """Below it every key stands once already: the head of the log begins there."""
    end_offset: int
    """Nothing at or above it is read or changed: the base of a segment, at most the active one's."""
    now_ms: int
    delete_retention_ms: int
    """How long a tombstone, or a marker that is not needed, stays from the round on that first saw it (KIP-534)."""
    segment_bytes: int
    """No segment that comes of it is larger."""
    segment_index_bytes: int
    index_interval_bytes: int
    batch_bytes_max: int
    """``max.message.bytes``: a larger batch that is there is taken all the same."""
    map_bytes: int = 128 << 20
    """Memory of the offset map; when it is full the round ends at the last offset that is mapped."""
    map_load_factor: float = 0.9
    bytes_per_second_max: float = float("inf")
    """Bytes read and written together (``log.cleaner.io.max.bytes.per.second``)."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """All whose marker is at or above the log start, in the order of their markers."""
    producers: Mapping[int, LastProducerBatch] = {}
    """By producer id, those that are known at ``end_offset`` or later."""


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a round did."""

    cleaned_end_offset: int
    """The next round's first dirty offset."""
    bytes_read: int
    """Of batches, over both passes."""
    bytes_before: int
    """Of the segments that were cleaned."""
    bytes_after: int
    """Of those that took their place."""
    records_read: int
    records_kept: int
    keys: int
    """In the offset map."""
    segments_before: int
    segments_after: int
    invalid_records: int = 0
    """Without a key, which a compacted topic can't hold; dropped, as Kafka does."""
    seconds: float = 0.0
    """Spent on it, by the monotonic clock of who worked; what throttling waited is not counted."""


class CompactionAbandonedError(Exception):
    """The log was closed, deleted, cut or moved meanwhile: nothing of the round has changed it. Ask again later."""
