"""The state of a cluster as values, made of the answers of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from blumfeld.cli.cluster.state import NodeState
from blumfeld.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from blumfeld.wire.messages.describe_quorum import ReplicaState, ResponsePartitionData
from blumfeld.wire.messages.metadata import MetadataResponse

NAMED_MAX = 20
"""Partitions that are named; further ones are counted."""


class VoterView(msgspec.Struct, kw_only=True):
    """A voter or an observer of the metadata quorum, as its leader sees it."""

    id: int
    is_voter: bool
    log_end_offset: int
    lag: int
    """Records that the leader has and this one hasn't fetched."""
    caught_up_ms_ago: int | None
    """Time since it had all that the leader has; ``None`` where the leader doesn't say."""


class QuorumView(msgspec.Struct, kw_only=True):
    """The metadata quorum."""

    leader: int
    """The active controller; -1: there is none."""
    epoch: int
    high_watermark: int
    replicas: list[VoterView]


class Place(msgspec.Struct, frozen=True):
    """A voter's own view of the quorum. It has one while there is no leader, too."""

    epoch: int
    leader: int
    """The node id of the leader that it knows; -1 if it knows none."""


class NodeView(msgspec.Struct, kw_only=True):
    """One node: its process, and what the cluster says about it as a broker."""

    id: int
    roles: tuple[str, ...]
    address: str
    process: str
    answers: bool
    """Whether it answered a request."""
    place: Place | None = None
    """``None`` if it is no voter, or didn't say."""
    leads: int = 0
    """Partitions that it leads."""
    replicas: int = 0
    """Partitions that it has a replica of."""
    not_in_sync: int = 0
    """Number of its replicas that are not in the ISR."""
    lag: int | None = None
    """Records up to the high watermarks that its replicas lack, all together; ``None`` if it didn't say."""


class PartitionView(msgspec.Struct, kw_only=True):
    """A partition that lacks a leader or a replica in sync."""

    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]


class ClusterView(msgspec.Struct, kw_only=True):
    """All of it. ``quorum`` is ``None`` if no node could describe it, and counts are ``None`` if none has metadata."""

    cluster_id: str | None
    quorum: QuorumView | None
    nodes: list[NodeView]
    topics: int | None = None
    partitions: int | None = None
    without_leader: int | None = None
    under_replicated: int | None = None
    named: list[PartitionView] = []
    """The first partitions without a leader or with too few replicas in sync, by name."""
    cuts: list[tuple[int, int]] = []


def quorum_view(quorum_partition: ResponsePartitionData, now_ms: int) -> QuorumView:
    """Return the quorum's state. ``now_ms`` is the wall clock, as the leader's times are."""
    ends = [
        voter.log_end_offset
        for voter in quorum_partition.current_voters
        if voter.replica_id == quorum_partition.leader_id
    ]
    end = max([*ends, quorum_partition.high_watermark])

    def views(replicas: Iterable[ReplicaState], is_voter: bool) -> Iterable[VoterView]:
        for replica in sorted(replicas, key=lambda each: each.replica_id):
            caught_up_ms = replica.last_caught_up_timestamp
            leads = replica.replica_id == quorum_partition.leader_id
            yield VoterView(
                id=replica.replica_id,
                is_voter=is_voter,
                log_end_offset=replica.log_end_offset,
                lag=0 if leads else max(0, end - replica.log_end_offset),
                caught_up_ms_ago=0 if leads else max(0, now_ms - caught_up_ms) if caught_up_ms > 0 else None,
            )

    return QuorumView(
        leader=quorum_partition.leader_id,
        epoch=quorum_partition.leader_epoch,
        high_watermark=quorum_partition.high_watermark,
        replicas=[*views(quorum_partition.current_voters, True), *views(quorum_partition.observers, False)],
    )


def cluster_view(
    nodes: Sequence[NodeState],
    processes: Mapping[int, str],
    answering: Iterable[int],
    quorum: QuorumView | None,
    metadata: MetadataResponse | None,
    lags: Mapping[int, int],
    cuts: Sequence[tuple[int, int]] = (),
    places: Mapping[int, Place] | None = None,
) -> ClusterView:
    """Join the answers.

    :param processes: node id → RUNNING, PAUSED, DEAD or UNKNOWN
    :param metadata: the newest, about all topics
    :param lags: node id → records that its replicas lack
    :param places: node id → what this voter knows of the quorum
    """
    answered = set(answering)
    views = {
        node.id: NodeView(
            id=node.id,
            roles=node.roles,
            address=f"{node.host}:{node.port}" if node.host else "unknown",
            process=processes[node.id],
            answers=node.id in answered,
            place=(places or {}).get(node.id),
            lag=lags.get(node.id),
        )
        for node in nodes
    }
    view = ClusterView(
        cluster_id=metadata.cluster_id if metadata is not None else None,
        quorum=quorum,
        nodes=list(views.values()),
        cuts=list(cuts),
    )
    if metadata is not None:
        _count(view, views, metadata)
    return view


def _count(view: ClusterView, views: Mapping[int, NodeView], metadata: MetadataResponse) -> None:
    view.topics = len(metadata.topics)
    view.partitions = view.without_leader = view.under_replicated = 0
    for topic in sorted(metadata.topics, key=lambda entry: entry.name or ""):
        for partition in sorted(topic.partitions, key=lambda entry: entry.partition_index):
            view.partitions += 1
            has_leader = partition.leader_id >= 0
            lacks = len(partition.isr_nodes) < len(partition.replica_nodes)
            view.without_leader += not has_leader
            view.under_replicated += lacks
            if partition.leader_id in views:
                views[partition.leader_id].leads += 1
            for replica in partition.replica_nodes:
                if replica in views:
                    views[replica].replicas += 1
                    views[replica].not_in_sync += replica not in partition.isr_nodes
            if (lacks or not has_leader) and len(view.named) < NAMED_MAX:
                view.named.append(
                    PartitionView(
                        topic=topic.name or "",
                        partition=partition.partition_index,
                        leader=partition.leader_id if has_leader else None,
                        replicas=list(partition.replica_nodes),
                        isr=list(partition.isr_nodes),
                    )
                )


def lag_of(answer: DescribeLogDirsResponse) -> int:
    """Return the records that a broker's replicas lack, all together. Copies between directories don't count."""
    return sum(
        partition.offset_lag
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
        if not partition.is_future_key
    )
