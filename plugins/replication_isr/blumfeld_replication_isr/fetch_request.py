"""A follower's Fetch: the settings, and the message for the next request of a fetcher's rules."""

from __future__ import annotations

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from blumfeld_replication_isr.fetcher_rules import SessionRequest


class FetchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a follower's fetches."""

    partition_bytes_max: int
    response_bytes_max: int
    bytes_min: int
    wait_ms: int
    backoff_ms: int
    timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """The node's settings."""
        return cls(
            partition_bytes_max=config.int("replica.fetch.max.bytes"),
            response_bytes_max=config.int("replica.fetch.response.max.bytes"),
            bytes_min=config.int("replica.fetch.min.bytes"),
            wait_ms=config.int("replica.fetch.wait.max.ms"),
            backoff_ms=config.int("replica.fetch.backoff.ms"),
            timeout_ms=config.int("replica.socket.timeout.ms"),
        )


def fetch_request(
    settings: FetchSettings, node_id: int, broker_epoch: int, request: SessionRequest, wait_ms: int
) -> FetchRequest:
    """Returns the message. It has no form below v15: a replica with an epoch came with that version (KIP-903).

    :param node_id: this node, which is the replica that fetches
    :param wait_ms: time that the leader may wait for records
    """
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, index), position in request.positions:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=settings.partition_bytes_max,
            )
        )
    forgotten: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in request.forgotten:
        forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=broker_epoch),
        max_wait_ms=wait_ms,
        min_bytes=settings.bytes_min,
        max_bytes=settings.response_bytes_max,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )
