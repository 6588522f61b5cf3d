"""Kafka's JSON form where the golden files say nothing: what is refused, and by which words."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.wire.json_form import from_json, to_json
from blumfeld.wire.messages.fetch import FetchRequest
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.messages.raft_records import KRaftVersionRecord
from blumfeld.wire.primitives import DecodeError, EncodeError, uuid_bytes, uuid_text

HEARTBEAT = {"groupId": "g", "generationId": 1, "memberId": "m"}


def test_a_tagged_default_is_left_out_and_may_be_left_out() -> None:
    written = to_json(FetchRequest(), 12)
    assert "clusterId" not in written
    assert from_json(FetchRequest, 12, written) == FetchRequest()


def test_odd_names_are_kafkas() -> None:
    assert to_json(KRaftVersionRecord(kraft_version=1), 0) == {"version": 0, "kRaftVersion": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"generationId": "1"}, "generationId must be int32"),
        ({"generationId": True}, "generationId must be int32"),
        ({"generationId": 2**31}, "generationId must be int32"),
        ({"groupId": 1}, "groupId must be text"),
        ({"groupId": None}, "groupId may not be null"),
        ({"groupInstanceId": None}, "has no groupInstanceId in version 0"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(change: dict[str, Any], words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        from_json(HeartbeatRequest, 0, HEARTBEAT | change)


def test_a_missing_field_is_refused() -> None:
    with pytest.raises(DecodeError, match="generationId is missing"):
        from_json(HeartbeatRequest, 0, {"groupId": "g"})
    with pytest.raises(DecodeError, match="must be an object"):
        from_json(HeartbeatRequest, 0, [])


def test_bytes_must_be_base64_and_uuids_22_characters() -> None:
    good = to_json(ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData()])]), 13)
    for path, value in (("topicId", "short"), ("topicId", "!" * 22)):
        good["topicData"][0][path] = value
        with pytest.raises(DecodeError, match="topicId"):
            from_json(ProduceRequest, 13, good)
    good["topicData"][0]["topicId"] = "A" * 22
    good["topicData"][0]["partitionData"][0]["records"] = "?"
    with pytest.raises(DecodeError, match="records"):
        from_json(ProduceRequest, 13, good)


def test_a_value_that_the_version_does_not_know_is_refused() -> None:
    with pytest.raises(EncodeError, match="group_instance_id"):
        to_json(HeartbeatRequest(group_instance_id="i"), 2)


def test_uuids_as_text() -> None:
    assert uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_bytes("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\1"
    with pytest.raises(ValueError, match="22 characters"):
        uuid_bytes("A")
