"""What this voter must not forget, and what it says of itself: ``quorum-state``, LeaderChange, who the voters are.

The quorum is this node alone. Several voters need elections (``controller.quorum.voters`` with more than one is
refused); the files and records are those of Kafka already.
"""

from __future__ import annotations

from collections.abc import Iterable

from blumfeld.log.quorum_state import FILE_NAME, QuorumState, decode_quorum_state, encode_quorum_state
from blumfeld.spi.storage import AuxFiles
from blumfeld.wire.batches.control_records import ControlType, build_kraft_control_batch
from blumfeld.wire.codec import encode
from blumfeld.wire.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
)


def check_alone(node_id: int, configured: tuple[str, ...], voters: VotersRecord | None) -> None:
    """The quorum has no member but this node.

    :param configured: ``controller.quorum.voters``, as ``id@host:port``
    :raises ValueError: it has
    """
    ids = {int(one.partition("@")[0]) for one in configured if one.partition("@")[0].isdigit()}
    if voters is not None:
        ids |= {voter.voter_id for voter in voters.voters}
    if ids - {node_id}:
        named = ", ".join(str(one) for one in sorted(ids))
        raise ValueError(
            f"the metadata quorum has the voters {named}: this build runs a quorum of one, node {node_id} alone"
        )


class Voter:
    """One voter's durable state."""

    def __init__(self, node_id: int, directory_id: bytes, aux: AuxFiles) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self._aux = aux
        data = aux.read(FILE_NAME)
        self.state = QuorumState(data_version=0) if data is None else decode_quorum_state(data)

    def lead(self, last_epoch: int, kraft_version: int) -> int:
        """Begin a new epoch with this node as leader, durably; the epoch.

        :param last_epoch: of the log; a lost ``quorum-state`` must not bring an old epoch back
        :raises OSError: it can't be written
        """
        epoch = max(self.state.leader_epoch, last_epoch, 0) + 1
        self.state = QuorumState(
            leader_id=self.node_id,
            leader_epoch=epoch,
            current_voters=(self.node_id,) if kraft_version == 0 else (),
            data_version=0 if kraft_version == 0 else 1,
        )
        self._aux.write(FILE_NAME, encode_quorum_state(self.state))
        return epoch

    def leader_change(self, timestamp_ms: int) -> bytearray:
        """The control batch that opens an epoch of this voter alone."""
        return epoch_start(
            self.state.leader_epoch, self.node_id, (self.node_id,), (self.node_id,), timestamp_ms=timestamp_ms
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
        voters=[LeaderChangeMessageVoter(voter_id=one) for one in voter_ids],
        granting_voters=[LeaderChangeMessageVoter(voter_id=one) for one in granting_ids],
    )
    controls = [(ControlType.LEADER_CHANGE, encode(message, 0))]
    if kraft_version > 0:
        level = encode(KRaftVersionRecord(kraft_version=kraft_version), 0)
        controls.append((ControlType.KRAFT_VERSION, level))
        if voters is not None:
            controls.append((ControlType.KRAFT_VOTERS, encode(voters, 0)))
    return build_kraft_control_batch(controls, timestamp_ms=timestamp_ms, base_offset=0, leader_epoch=epoch)
