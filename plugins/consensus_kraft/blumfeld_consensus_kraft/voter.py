"""The control batch that a new leader writes first: LeaderChange, and the voters where the log has none yet."""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.wire.batches.control_records import ControlType, build_kraft_control_batch
from blumfeld.wire.codec import encode
from blumfeld.wire.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
)


def epoch_start(
    epoch: int,
    leader_id: int,
    voter_ids: Iterable[int],
    granting_ids: Iterable[int],
    *,
    timestamp_ms: int,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytearray:
    """Returns the control batch with which a leader opens its epoch. Its offset is patched in when it is placed.

    LeaderChange is written in version 0 also where ``kraft.version`` is 1: Kafka's own DumpLogSegments reads no other.

    :param granting_ids: voters whose vote it got, itself among them
    :param kraft_version: from 1 on it is written too, with ``voters``: by a leader whose log doesn't have them yet
        (KIP-853)
    """
    message = LeaderChangeMessage(
        leader_id=leader_id,
        voters=[LeaderChangeMessageVoter(voter_id=node_id) for node_id in voter_ids],
        granting_voters=[LeaderChangeMessageVoter(voter_id=node_id) for node_id in granting_ids],
    )
    controls = [(ControlType.LEADER_CHANGE, encode(message, 0))]
    if kraft_version > 0:
        level = encode(KRaftVersionRecord(kraft_version=kraft_version), 0)
        controls.append((ControlType.KRAFT_VERSION, level))
        if voters is not None:
            controls.append((ControlType.KRAFT_VOTERS, encode(voters, 0)))
    return build_kraft_control_batch(controls, timestamp_ms=timestamp_ms, base_offset=0, leader_epoch=epoch)
