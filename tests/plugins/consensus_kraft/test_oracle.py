"""consensus_kraft against Apache Kafka 4.3.1: each reads what the other wrote. Slow: starts Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.metadata.image.checkpoint import CheckpointId, encode_checkpoint
from blumfeld.wire.messages.metadata_records import TopicRecord
from blumfeld.wire.messages.raft_records import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)
from blumfeld_consensus_kraft.voter import epoch_start
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.kafka_peer import kafka_on, peer_script, tool
from tests.plugins.consensus_kraft.kraft_node import KraftNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
TOOL_SECONDS_MAX = 60
START_SECONDS_MAX = 90


@pytest.fixture
def peer() -> str:
    return peer_script()


def ours(directory: Path, seed: int = 0, **config: int) -> KraftNode:
    """A node of ours on ``directory/data``."""
    runtime = FakeRuntime(seed, files=RealFiles())
    keys = {name.replace("_", "."): value for name, value in config.items()}
    return KraftNode(runtime=runtime, data_dir=f"{directory}/data", config=keys).start()


def topics(peer: str, address: str) -> dict[str, str]:
    """Names of topics and what Kafka's tool says of each."""
    text = tool(peer, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--describe")
    lines = [line for line in text.splitlines() if line.startswith("Topic: ")]
    return {line.split("\t")[0].removeprefix("Topic: ").strip(): line for line in lines}


def test_kafkas_dump_reads_our_log_and_our_snapshot(peer: str, tmp_path: Path) -> None:
    node = ours(tmp_path, metadata_log_max_record_bytes_between_snapshots=1_000)
    node.join()
    node.create("alpha", "beta", partitions=3)
    node.runtime.advance(10)
    node.create("gamma")
    node.runtime.advance(10)
    node.stop()
    logs = tmp_path / "data" / "__cluster_metadata-0"
    files = [logs / "00000000000000000000.log", *sorted(logs.glob("*.checkpoint"))]
    files.append(tmp_path / "data" / "bootstrap.checkpoint")
    assert len(files) >= 3
    named = ",".join(str(f) for f in files)
    dump = tool(
        peer, "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", named
    )
    assert "isvalid: false" not in dump
    assert "Could not" not in dump
    assert dump.count('"type":"TOPIC_RECORD"') >= 5, "three in the log, two or more in snapshots"
    assert 'LeaderChange: {"version":0,"leaderId":1' in dump
    assert "SnapshotFooter" in dump


def test_kafkas_dump_reads_our_voters(peer: str, tmp_path: Path) -> None:
    """``kraft.version`` 1: in a snapshot, and in the batch with which a first leader opens its epoch."""
    voters = VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=number,
                voter_directory_id=bytes([number]) * 16,
                endpoints=[Endpoint(name="CONTROLLER", host="localhost", port=9093 + number)],
                kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
            )
            for number in (1, 2, 3)
        ]
    )
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    snapshot = directory / CheckpointId(17, 4).name
    topic = TopicRecord(name="alpha", topic_id=b"a" * 16)
    snapshot.write_bytes(encode_checkpoint([topic], epoch=4, timestamp_ms=9, kraft_version=1, voters=voters))
    log = directory / "00000000000000000000.log"
    log.write_bytes(epoch_start(5, 2, (1, 2, 3), (2, 3), timestamp_ms=9, kraft_version=1, voters=voters))
    for file in (snapshot, log):
        dump = tool(
            peer,
            "org.apache.kafka.tools.DumpLogSegments",
            "--cluster-metadata-decoder",
            "--files",
            str(file),
        )
        assert "isvalid: false" not in dump
        assert "Could not" not in dump
        assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in dump
        assert dump.count('"voterId":') >= 3
        assert '"voterDirectoryId":"AgICAgICAgICAgICAgICAg"' in dump
        assert '"host":"localhost","port":9095' in dump


def test_kafka_starts_on_our_directory_and_we_go_on_after_it(peer: str, tmp_path: Path) -> None:
    """From a snapshot of ours, then our log, then its own records, and back."""
    node = ours(tmp_path, metadata_log_max_record_bytes_between_snapshots=1_500)
    node.join()
    node.create("alpha", "beta", partitions=3)
    node.runtime.advance(10)
    node.create("gamma")
    topic_id = node.image.topics["beta"].topic_id
    node.stop()
    with kafka_on(peer, tmp_path) as address:
        assert {"alpha", "beta", "gamma"} <= set(topics(peer, address))
        tool(
            peer,
            *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--create"),
            *("--topic", "delta", "--partitions", "2", "--config", "retention.ms=1234567"),
        )
    again = ours(tmp_path, seed=1)
    assert list(again.image.topics) == ["alpha", "beta", "gamma", "delta"]
    assert again.image.topics["beta"].topic_id == topic_id
    assert again.image.config(2, "delta") == {"retention.ms": "1234567"}
    again.join()
    assert {p.leader for t in again.image.topics.values() for p in t.partitions.values()} == {1}
    assert again.create("epsilon") == [0]
    again.stop()


def test_we_load_a_directory_that_kafka_formatted(peer: str, tmp_path: Path) -> None:
    """With its features, which this build may not have: eligible leader replicas are kept as it kept them."""
    with kafka_on(peer, tmp_path) as address:
        tool(
            peer,
            *("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--create"),
            *("--topic", "alpha", "--partitions", "3"),
        )
        assert "alpha" in topics(peer, address)
    node = ours(tmp_path)
    assert node.image.features["eligible.leader.replicas.version"] == 1
    assert len(node.image.topics["alpha"].partitions) == 3
    node.join()
    assert {p.leader for p in node.image.topics["alpha"].partitions.values()} == {1}
    assert all(p.isr == (1,) for p in node.image.topics["alpha"].partitions.values())
    node.stop()
    with kafka_on(peer, tmp_path) as address:
        assert "alpha" in topics(peer, address)
