"""What the controller of Apache Kafka 3.9.2 has sent to a broker, in data/pushed.jsonl."""

from __future__ import annotations

import json
from pathlib import Path

from blumfeld.wire import codec
from blumfeld.wire.api import message_class
from blumfeld.wire.json_form import from_json
from blumfeld.wire.messages.stop_replica import StopReplicaRequest

PUSHED = Path(__file__).resolve().parent / "data" / "pushed.jsonl"


def test_the_requests_of_kafkas_controller_are_read_and_written_as_it_writes_them() -> None:
    seen = set()
    for line in map(json.loads, PUSHED.read_text().splitlines()):
        cls, data = message_class(line["message"]), bytes.fromhex(line["hex"])
        request = codec.decode(cls, memoryview(data), line["version"])
        assert request == from_json(cls, line["version"], line["json"])
        assert codec.encode(request, line["version"]) == data
        seen.add((line["message"], line["version"]))
    assert seen == {("UpdateMetadataRequest", 8), ("LeaderAndIsrRequest", 7), ("StopReplicaRequest", 4)}


def test_a_topics_deletion_is_pushed_with_the_epoch_that_means_so() -> None:
    """Stopped first, then deleted: the leader epoch is -2 in both."""
    stops = [
        codec.decode(StopReplicaRequest, memoryview(bytes.fromhex(line["hex"])), line["version"])
        for line in map(json.loads, PUSHED.read_text().splitlines())
        if line["message"] == "StopReplicaRequest"
    ]
    states = [state for stop in stops for topic in stop.topic_states for state in topic.partition_states]
    assert [(state.leader_epoch, state.delete_partition) for state in states] == [(-2, False), (-2, True)]
