"""The place where a replica's log and its leader's part, and the way together again (KIP-595, KIP-630). Pure."""

from __future__ import annotations

from blumfeld.log.leader_epochs import truncation_offset
from blumfeld.spi.leader_epochs import EpochEnd
from blumfeld_consensus_kraft.raft.log_view import LogView
from blumfeld_consensus_kraft.raft.messages import FetchAnswer, FetchRequest, SnapshotId
from blumfeld_consensus_kraft.raft.settings import BrokenQuorumError


def needed_snapshot(log: LogView, request: FetchRequest) -> SnapshotId | None:
    """Returns the snapshot that the replica must take, because the leader's log can't bring it up to date."""
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    if latest is None or earliest is None:
        return None
    offset, last_epoch = request.offset, request.last_epoch
    is_empty = offset == 0 and last_epoch == 0
    is_behind = offset < log.start_offset
    starts_otherwise = offset == log.start_offset == earliest.end_offset and last_epoch != earliest.epoch
    is_older = last_epoch < earliest.epoch
    return latest if is_empty or is_behind or starts_otherwise or is_older else None


def divergence(log: LogView, request: FetchRequest) -> EpochEnd | None:
    """Returns the leader's largest epoch not above the replica's last one, and its end; ``None`` if the leader's log
    contains the replica's.
    """
    end = log.end_of_epoch(request.last_epoch)
    return end if end.epoch != request.last_epoch or end.end_offset < request.offset else None


def with_way_back(log: LogView, request: FetchRequest, answer: FetchAnswer) -> FetchAnswer:
    """Returns the leader's answer, with a snapshot or the divergence where the replica's log can't just go on."""
    snapshot = needed_snapshot(log, request)
    if snapshot is not None:
        return answer._replace(snapshot=snapshot)
    return answer._replace(diverging=divergence(log, request))


def truncation_point(log: LogView, diverging: EpochEnd, high_watermark: int, leader: tuple[int, int]) -> int:
    """Returns the offset to which a replica cuts its log: it shares no record behind it with its leader.

    :param leader: (epoch, node id)
    :raises BrokenQuorumError: committed records would go
    """
    end = truncation_offset(diverging, log.end_of_epoch(diverging.epoch), log.end_offset)
    if end < high_watermark:
        raise BrokenQuorumError(
            f"the leader of epoch {leader[0]}, node {leader[1]}, has no record behind offset {end} in common "
            f"with this replica, but everything below {high_watermark} is committed"
        )
    return end
