"""Rules of eligible leader replicas (ELR, KIP-966) for features and configurations. Pure.

A replica is eligible because the high watermark stood still since it left the ISR: the ISR was below
``min.insync.replicas``. So that value must be one for the whole cluster, and a change of it takes the promise away.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.decision import ControllerState
from blumfeld.metadata.image.bootstrap import MIN_ISR
from blumfeld.metadata.image.cluster_image import ELR_FEATURE
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import ClearElrRecord, ConfigRecord, FeatureLevelRecord
from blumfeld.wire.schema import Message


def with_elr_safety(state: ControllerState, records: Sequence[Message]) -> list[Message]:
    """Returns these records of a feature update, and what turning ELR on brings: the cluster's
    ``min.insync.replicas`` is written down unless it is there, and those of single brokers are removed.
    """
    turned_on = any(
        isinstance(record, FeatureLevelRecord) and record.name == ELR_FEATURE and record.feature_level >= 1
        for record in records
    )
    if not turned_on or state.image.elr_enabled:
        return list(records)
    image, safety = state.image, list(records)
    if MIN_ISR not in image.config(BROKER_RESOURCE, ""):
        safety.append(_min_isr("", str(state.config.int(MIN_ISR))))
    safety += [
        _min_isr(name, None)
        for name in image.configured(BROKER_RESOURCE)
        if name and MIN_ISR in image.config(BROKER_RESOURCE, name)
    ]
    return safety


def _min_isr(broker: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_ISR, value=value)


def check_min_isr(state: ControllerState, kind: int, name: str, key: str, value: str | None) -> None:
    """Refuse what would give brokers different values of ``min.insync.replicas``.

    :param value: ``None`` to remove it
    :raises BrokerError: INVALID_CONFIG
    """
    if key != MIN_ISR or kind != BROKER_RESOURCE or not state.image.elr_enabled:
        return
    if name:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if value is None:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


def with_elr_cleared(state: ControllerState, records: Sequence[Message]) -> list[Message]:
    """Returns these records of changed configurations, and those that clear the ELR where ``min.insync.replicas``
    changes: in one topic, or in the cluster.
    """
    if not state.image.elr_enabled:
        return list(records)
    cleared: list[Message] = []
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR:
            topic = record.resource_name if record.resource_type == TOPIC_RESOURCE else ""
            cleared.append(ClearElrRecord(topic_name=topic))
    return [*records, *cleared]
