"""quorum-state: both versions as Kafka writes them, and damage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blumfeld.log.checkpoints import MalformedFile, uuid_of
from blumfeld.log.quorum_state import EPOCH_MAX, QuorumState, decode_quorum_state, encode_quorum_state

BY_KAFKA_V0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
V1 = b'{"leaderId":-1,"leaderEpoch":4,"votedId":2,"votedDirectoryId":"7_rXO9fkDawVbr_9UO62LQ","data_version":1}'


def test_version_0_is_kafkas_text() -> None:
    state = QuorumState(leader_id=1, leader_epoch=1, current_voters=(1,), data_version=0)
    assert encode_quorum_state(state) == BY_KAFKA_V0
    assert decode_quorum_state(BY_KAFKA_V0) == state


def test_version_1_has_the_directory_voted_for() -> None:
    state = QuorumState(leader_epoch=4, voted_id=2, voted_directory_id=uuid_of("7_rXO9fkDawVbr_9UO62LQ"))
    assert encode_quorum_state(state) == V1
    assert decode_quorum_state(V1) == state


def test_no_other_version_is_written() -> None:
    with pytest.raises(ValueError, match="unknown version 2"):
        encode_quorum_state(QuorumState(data_version=2))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[]", "a JSON object"),
        (b"{}", "data_version should be a number, not None"),
        (b'{"data_version":2}', "data_version 2"),
        (V1.replace(b"4", b'"4"'), "leaderEpoch should be a number"),
        (V1.replace(b"7_rX", b"7+rX"), "votedDirectoryId"),
        (BY_KAFKA_V0.replace(b'[{"voterId":1}]', b"[1]"), "currentVoters"),
        (BY_KAFKA_V0.replace(b'{"voterId":1}', b"{}"), "voterId"),
    ],
)
def test_damage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(MalformedFile, match=f"quorum-state: .*{message}"):
        decode_quorum_state(data)


IMPOSSIBLE = [
    ({"leader_epoch": EPOCH_MAX + 1}, "leaderEpoch 2147483647"),
    ({"leader_epoch": 2**31}, "leaderEpoch 2147483648"),
    ({"leader_epoch": -2}, "leaderEpoch -2"),
    ({"leader_id": 2**31}, "leaderId 2147483648"),
    ({"voted_id": -2}, "votedId -2"),
    ({"current_voters": (1, -1), "data_version": 0}, "currentVoters -1"),
]


@pytest.mark.parametrize(("fields", "message"), IMPOSSIBLE)
def test_numbers_that_no_quorum_comes_to_are_not_written(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"{message} is impossible: .* are allowed"):
        encode_quorum_state(QuorumState(**fields))


@pytest.mark.parametrize(("fields", "message"), IMPOSSIBLE)
def test_numbers_that_no_quorum_comes_to_are_refused_with_a_way_on(
    fields: dict[str, Any], message: str
) -> None:
    """A build of before wrote 2147483648 into the file."""
    usual = QuorumState(data_version=fields.get("data_version", 1), current_voters=(1, 2, 3))
    written = json.loads(encode_quorum_state(usual))
    names = {"leader_epoch": "leaderEpoch", "leader_id": "leaderId", "voted_id": "votedId"}
    for name, value in fields.items():
        if name in names:
            written[names[name]] = value
        elif name == "current_voters":
            written["currentVoters"] = [{"voterId": voter} for voter in value]
    with pytest.raises(MalformedFile, match=f"quorum-state: {message} .* stop every voter of the quorum"):
        decode_quorum_state(json.dumps(written).encode())


def test_the_last_epoch_is_a_possible_one() -> None:
    state = QuorumState(leader_epoch=EPOCH_MAX)
    assert decode_quorum_state(encode_quorum_state(state)) == state
