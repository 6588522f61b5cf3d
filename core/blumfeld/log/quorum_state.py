"""``quorum-state``: the vote and epoch that a voter of the metadata quorum must remember, as JSON (KIP-595).

Pure. The file must be on the device before a granted vote is answered (KIP-595). Versions 0 and 1 belong to
``kraft.version`` 0 and 1 (KIP-853). Numbers that no quorum comes to are neither written nor read: a voter that went on
with them would bring the whole quorum to the end of its epochs.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from blumfeld.log.checkpoints import MalformedFile, uuid_of
from blumfeld.wire.primitives import uuid_text

FILE_NAME = "quorum-state"
NOBODY = -1
NO_ID = bytes(16)
ID_MAX = 2**31 - 1
EPOCH_MAX = 2**31 - 2
"""The last epoch that a quorum may reach. The protocol can name one more, so a voter can always name the next one."""
WAY_ON = (
    f"stop every voter of the quorum, remove {FILE_NAME} from each of them, and start them together. Their epochs go "
    "on behind the last one of their logs"
)
"""One voter alone must not forget its vote. When all of them begin anew, no vote of before counts beside a new one."""


class QuorumState(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file. Fields that a version does not have keep their defaults."""

    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voted_directory_id: bytes = NO_ID
    """Version 1 only."""
    cluster_id: str = ""
    """Version 0 only; Kafka leaves it empty."""
    applied_offset: int = 0
    """Version 0 only; Kafka leaves it 0."""
    current_voters: tuple[int, ...] = ()
    """Version 0 only."""
    data_version: int = 1


def encode_quorum_state(state: QuorumState) -> bytes:
    """The JSON of ``state.data_version``, without spaces, as Kafka writes it.

    :raises ValueError: no such version, or a number that :func:`decode_quorum_state` would refuse
    """
    _check(state)
    fields: dict[str, Any]
    if state.data_version == 0:
        fields = {
            "clusterId": state.cluster_id,
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": state.applied_offset,
            "currentVoters": [{"voterId": voter} for voter in state.current_voters],
        }
    elif state.data_version == 1:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_text(state.voted_directory_id),
        }
    else:
        raise ValueError(f"unknown version {state.data_version} of {FILE_NAME}")
    fields["data_version"] = state.data_version
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes, source: str = FILE_NAME) -> QuorumState:
    """Decode either version.

    :raises MalformedFile: no JSON object, another version, or a field is missing, malformed or impossible
    """
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise MalformedFile(source, f"no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise MalformedFile(source, "a JSON object should stand there")
    version = _integer(fields, "data_version", source)
    if version not in (0, 1):
        raise MalformedFile(source, f"data_version {version}, where 0 and 1 are known")
    state = QuorumState(
        leader_id=_integer(fields, "leaderId", source),
        leader_epoch=_integer(fields, "leaderEpoch", source),
        voted_id=_integer(fields, "votedId", source),
        voted_directory_id=_directory(fields, source) if version == 1 else NO_ID,
        current_voters=_voters(fields, source) if version == 0 else (),
        cluster_id=str(fields.get("clusterId", "")) if version == 0 else "",
        applied_offset=_integer(fields, "appliedOffset", source) if version == 0 else 0,
        data_version=version,
    )
    try:
        _check(state)
    except ValueError as error:
        raise MalformedFile(source, f"{error}. To go on, {WAY_ON}") from None
    return state


def _check(state: QuorumState) -> None:
    """Refuse numbers that no quorum comes to."""
    voters = [("currentVoters", voter, 0, ID_MAX) for voter in state.current_voters]
    for name, value, low, high in (
        ("leaderEpoch", state.leader_epoch, -1, EPOCH_MAX),
        ("leaderId", state.leader_id, NOBODY, ID_MAX),
        ("votedId", state.voted_id, NOBODY, ID_MAX),
        *voters,
    ):
        if not low <= value <= high:
            raise ValueError(f"{name} {value} is impossible: {low} to {high} are allowed")


def _integer(fields: dict[str, Any], name: str, source: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedFile(source, f"{name} should be a number, not {value!r}")
    return value


def _directory(fields: dict[str, Any], source: str) -> bytes:
    try:
        return uuid_of(str(fields.get("votedDirectoryId", "")))
    except ValueError as error:
        raise MalformedFile(source, f"votedDirectoryId: {error}") from None


def _voters(fields: dict[str, Any], source: str) -> tuple[int, ...]:
    voters = fields.get("currentVoters")
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise MalformedFile(source, "currentVoters should be a list of objects")
    return tuple(_integer(voter, "voterId", source) for voter in voters)
