"""Records, snapshots and transactions: our bytes against those that Apache Kafka 4.3.1 wrote."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint, first_records
from blumfeld.metadata.image.checkpoint import (
    CheckpointId,
    batch_records,
    decode_checkpoint,
    encode_checkpoint,
    metadata_batch,
)
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.record_frame import decode_record, encode_record
from blumfeld.metadata.image.records import feature_records, image_of, image_records
from blumfeld.metadata.image.step import BrokenMetadata, ImageStep, TransactionGate
from blumfeld.spi.cluster import TOPIC_RESOURCE
from blumfeld.wire.batches.record_batch import RecordBatch, split_batches
from blumfeld.wire.batches.records import records
from blumfeld.wire.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    EndTransactionRecord,
    EntityData,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    TopicRecord,
)
from blumfeld.wire.messages.raft_records import VotersRecord, VotersRecordVoter
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

DATA = Path(__file__).parent / "data"


def kafkas(name: str) -> bytes:
    """Bytes that Kafka wrote: a node's first start, topics made, altered and deleted, a restart."""
    return b64decode((DATA / f"kafka_4_3_1_{name}.base64").read_text())


def kafkas_batches() -> list[RecordBatch]:
    """The data batches of its log."""
    return [b for b in split_batches(memoryview(kafkas("log"))) if not b.is_control]


def test_every_record_that_kafka_wrote_is_written_by_us_in_the_same_bytes() -> None:
    count = 0
    for batch in kafkas_batches():
        for record in records(batch):
            assert encode_record(decode_record(record.value or b"")) == record.value
            count += 1
    assert count > 25


def test_a_batch_of_ours_is_kafkas_byte_for_byte() -> None:
    for batch in kafkas_batches():
        times = {record.timestamp for record in records(batch)}
        assert len(times) == 1
        ours = metadata_batch(
            batch_records(batch),
            base_offset=batch.base_offset,
            epoch=batch.partition_leader_epoch,
            timestamp_ms=times.pop(),
        )
        assert ours == bytes(batch.data)


def test_the_first_controllers_records_are_kafkas() -> None:
    levels = {
        "transaction.version": 2,
        "group.version": 1,
        "metadata.version": 30,
        "streams.version": 1,
        "share.version": 1,
        "eligible.leader.replicas.version": 1,
    }
    assert first_records(feature_records(levels), 1) == batch_records(kafkas_batches()[0])


def test_kafkas_bootstrap_is_read_and_ours_has_its_form() -> None:
    content = decode_checkpoint(kafkas("bootstrap"), "bootstrap.checkpoint")
    levels = {r.name: r.feature_level for r in content.records if isinstance(r, FeatureLevelRecord)}
    assert levels["metadata.version"] == 30
    ours = decode_checkpoint(bootstrap_checkpoint(levels, 5), "ours")
    assert ours == content
    kafkas_frames = [(b.base_offset, b.is_control) for b in split_batches(memoryview(kafkas("bootstrap")))]
    our_frames = [
        (b.base_offset, b.is_control) for b in split_batches(memoryview(bootstrap_checkpoint(levels, 5)))
    ]
    assert our_frames == kafkas_frames


def kafkas_image() -> MetadataImage:
    """What its log makes."""
    image = MetadataImage("c")
    step, gate = ImageStep(image), TransactionGate()
    for batch in kafkas_batches():
        for record in batch_records(batch):
            for ready in gate.pass_on(record):
                step.replay(ready)
    step.finish(160, 2)
    return image


def test_kafkas_log_makes_an_image() -> None:
    image = kafkas_image()
    assert image.features["metadata.version"] == 30
    assert image.config(4, "") == {"min.insync.replicas": "1", "log.retention.ms": "77777777"}
    assert not image.topics
    assert image.brokers[1].fenced
    assert image.brokers[1].endpoints[0].security_protocol == "PLAINTEXT"
    assert image.controllers[1].end_points[0].name == "CONTROLLER"


def test_a_snapshot_gives_the_image_back() -> None:
    image = kafkas_image()
    image.configs[TOPIC_RESOURCE, "t"] = {"retention.ms": "5", "cleanup.policy": "compact"}
    data = encode_checkpoint(image_records(image), epoch=2, timestamp_ms=9, last_contained_ms=7)
    content = decode_checkpoint(data, "x")
    assert content.last_contained_ms == 7
    assert image_of("c", content.records) == image


def test_a_long_snapshot_has_several_batches_with_offsets_in_a_row() -> None:
    many: list[Message] = [TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16)) for n in range(1, 3000)]
    data = encode_checkpoint(many, epoch=3, timestamp_ms=9)
    batches = list(split_batches(memoryview(data)))
    assert [b.base_offset for b in batches] == [0, 1, 1025, 2049, 3000]
    assert decode_checkpoint(data, "x").records == many


def test_voters_stand_in_a_snapshot_of_kraft_version_1() -> None:
    voters = VotersRecord(voters=[VotersRecordVoter(voter_id=4, voter_directory_id=bytes(16))])
    data = encode_checkpoint([], epoch=3, timestamp_ms=9, kraft_version=1, voters=voters)
    content = decode_checkpoint(data, "x")
    assert (content.kraft_version, content.voters) == (1, voters)


def test_a_snapshot_that_is_not_whole_is_refused() -> None:
    data = kafkas("bootstrap")
    for broken in (b"", data[:-10], data[:-75], data[83:], data[:100] + b"\xff" + data[101:]):
        with pytest.raises(ValueError, match=r"^some\.checkpoint: "):
            decode_checkpoint(broken, "some.checkpoint")


def test_names_of_snapshots() -> None:
    assert CheckpointId(17, 3).name == "00000000000000000017-0000000003.checkpoint"
    assert CheckpointId.of("00000000000000000017-0000000003.checkpoint") == CheckpointId(17, 3)
    for name in (
        "bootstrap.checkpoint",
        "00000000000000000017-0000000003.checkpoint.deleted",
        "17-3.checkpoint",
    ):
        assert CheckpointId.of(name) is None


def test_bytes_that_are_no_record() -> None:
    for data in (b"", b"\x00\x14\x00\x00", b"\x01\x63\x00\x00", b"\x01\x14\x05\x00", b"\x01\x14\x00\x00\x00"):
        with pytest.raises(DecodeError):
            decode_record(data)


def test_a_transaction_counts_when_it_is_whole() -> None:
    gate = TransactionGate()
    first_record, second_record = NoOpRecord(), FeatureLevelRecord(name="x", feature_level=1)
    assert gate.pass_on(first_record) == [first_record]
    assert gate.pass_on(BeginTransactionRecord()) == []
    assert gate.pass_on(second_record) == []
    assert gate.is_open
    assert gate.pass_on(EndTransactionRecord()) == [second_record]
    assert gate.pass_on(BeginTransactionRecord()) == []
    assert gate.pass_on(second_record) == []
    assert gate.pass_on(AbortTransactionRecord()) == []
    assert not gate.is_open


def test_records_of_parts_that_are_not_here_are_kept() -> None:
    acl = AccessControlEntryRecord(id=b"a" * 16, principal="User:k")
    gone = AccessControlEntryRecord(id=b"b" * 16, principal="User:l")
    quota = ClientQuotaRecord(
        entity=[EntityData(entity_type="user", entity_name=None)], key="producer_byte_rate", value=5.0
    )
    taken: list[Message] = [acl, gone, quota, RemoveAccessControlEntryRecord(id=gone.id)]
    assert list(image_records(image_of("c", taken))) == [acl, quota]
    off = ClientQuotaRecord(entity=quota.entity, key=quota.key, remove=True)
    assert list(image_records(image_of("c", [*taken, off]))) == [acl]


def test_records_that_contradict_each_other_are_noticed() -> None:
    topic = TopicRecord(name="t", topic_id=b"t" * 16)
    for broken in ([topic, topic], [PartitionRecord(topic_id=b"u" * 16, partition_id=0)]):
        with pytest.raises(BrokenMetadata):
            image_of("c", broken)


def test_a_step_says_what_it_changed_and_leaves_old_values_alone() -> None:
    image = image_of("c", [TopicRecord(name="t", topic_id=b"t" * 16)])
    step = ImageStep(image)
    step.replay(PartitionRecord(topic_id=b"t" * 16, partition_id=0, replicas=[1], isr=[1], leader=1))
    first = step.finish(1, 1)
    assert [(topic.name, p.partition) for topic, p in first.partitions_changed] == [("t", 0)]
    before = image.topics["t"]
    step = ImageStep(image)
    step.replay(PartitionRecord(topic_id=b"t" * 16, partition_id=1, replicas=[1], isr=[1], leader=1))
    step.replay(TopicRecord(name="u", topic_id=b"u" * 16))
    second = step.finish(3, 1)
    assert [topic.name for topic in second.topics_created] == ["u"]
    assert list(before.partitions) == [0]
    assert list(image.topics["t"].partitions) == [0, 1]
    assert image.offset == image.features_epoch == 3
    assert image.first_delta().first
