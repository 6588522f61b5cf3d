"""The beginning of a cluster: the files that formatting writes, and the first records. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.checkpoint import BOOTSTRAP_EPOCH, encode_checkpoint
from blumfeld.metadata.image.cluster_image import ELR_FEATURE
from blumfeld.metadata.image.records import feature_records
from blumfeld.spi.cluster import BROKER_RESOURCE
from blumfeld.wire.messages.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
)
from blumfeld.wire.schema import Message

MIN_ISR = "min.insync.replicas"


def bootstrap_checkpoint(levels: dict[str, int], timestamp_ms: int, others: Sequence[Message] = ()) -> bytes:
    """Returns the bytes of ``bootstrap.checkpoint``: the feature levels that the first controller finalizes, and
    other records that the metadata begins with."""
    records = [*feature_records(levels), *others]
    return encode_checkpoint(records, epoch=BOOTSTRAP_EPOCH, timestamp_ms=timestamp_ms)


def first_records(bootstrap: list[Message], min_insync_replicas: int) -> list[Message]:
    """Returns the first batch of a new cluster's log: the bootstrap records as one transaction.

    With eligible leader replicas on, the cluster-wide ``min.insync.replicas`` must stand in the log
    (KIP-966).
    """
    levels = {r.name: r.feature_level for r in bootstrap if r.meta.key == 12}  # type: ignore[attr-defined]
    records: list[Message] = [BeginTransactionRecord(name="Bootstrap records"), *bootstrap]
    if levels.get(ELR_FEATURE, 0) >= 1:
        records.append(
            ConfigRecord(
                resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=str(min_insync_replicas)
            )
        )
    return [*records, EndTransactionRecord()]
