"""Kafka's own topics. This is the only module of core and plug-ins that spells their names."""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
"""Groups and the offsets that they commit."""
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_GROUPS_TOPIC = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"
"""The segments in remote storage (KIP-405). As in Kafka it is a topic like any other, so it isn't among
:data:`INTERNAL_TOPICS`: permissions alone say which clients may write to it."""
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of the KRaft quorum. It is in no image of the cluster, so it isn't among :data:`INTERNAL_TOPICS`."""
CLUSTER_METADATA_TOPIC_ID = bytes(15) + b"\x01"
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC)


def is_internal(topic: str) -> bool:
    """Whether a coordinator keeps its state in this topic: only the admin client may write to it."""
    return topic in INTERNAL_TOPICS
