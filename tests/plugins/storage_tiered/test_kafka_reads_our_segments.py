"""A broker of Apache Kafka 4.3.1 reads segments under our names, by our records in its ``__remote_log_metadata``; our
catalog reads what it wrote there. Slow: Java.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from msgspec.structs import replace

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.records import decode_change, encode_change, metadata_partition
from blumfeld_storage_tiered.catalog.segment import Change, RemoteSegment, SegmentState
from blumfeld_storage_tiered.objects.names import REQUIRED, object_key
from tests.interop.clients import WAIT_S, make_topic, produce, wait_for
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.storage_tiered.catalog.history import update

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COUNT = 5
"""Partitions of the metadata topic."""
RECORDS = 64
EARLIEST_LOCAL = -4
CONFIG = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}


def values_of(address: str, topic: str, partition: int = 0) -> list[bytes]:
    """All values of a partition, from its start on."""
    reader = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    reader.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    while (message := reader.poll(WAIT_S)) is not None and message.error() is None:
        value = message.value()
        assert isinstance(value, bytes)
        values.append(value)
    assert message is not None, "there is no end"
    reader.close()
    return values


def catalog_of(address: str, topic: str) -> RemoteLogCatalog:
    """Our catalog of what Kafka's broker wrote about partition 0 of a topic."""
    changes = [
        decode_change(value)
        for index in range(COUNT)
        for value in values_of(address, REMOTE_LOG_METADATA_TOPIC, index)
    ]
    mine = [change for change in changes if change.partition.topic == topic]
    catalog = RemoteLogCatalog(mine[0].partition)
    for change in mine:
        catalog.apply(change)
    return catalog


def write(address: str, changes: list[Change]) -> None:
    """Write records to Kafka's metadata topic."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "max.in.flight": 1})
    for change in changes:
        index = metadata_partition(change.partition, COUNT)
        producer.produce(REMOTE_LOG_METADATA_TOPIC, encode_change(change), partition=index)
    assert producer.flush(WAIT_S) == 0


def local_start(address: str, topic: str) -> int:
    """The first offset of partition 0 that lies on the broker's own disk."""
    host, _, port = address.rpartition(":")
    partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST_LOCAL)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    with BlockingConnection(host, int(port), "test", WAIT_S) as connection:
        answer = connection.ask(request, ListOffsetsResponse, 8)
    return answer.topics[0].partitions[0].offset


def taken_over(segment: RemoteSegment, store: Path) -> list[Change]:
    """Give the files of a segment of Kafka's our names, and return the records that make it another segment."""
    ours = replace(segment, segment_id=os.urandom(16), state=SegmentState.COPY_STARTED)
    for kind in REQUIRED:
        (store / object_key(segment, kind.value)).rename(store / object_key(ours, kind.value))
    finished = update(ours, SegmentState.COPY_FINISHED, ours.event_timestamp_ms)
    states = (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED)
    gone = [replace(update(segment, state), partition=segment.partition) for state in states]
    return [ours, replace(finished, partition=ours.partition), *gone]


def test_kafka_serves_segments_by_our_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PEER_TIERED", "1")
    setting = f"rlmm.config.remote.log.metadata.topic.num.partitions={COUNT}"
    with kafka_on(peer_script(), tmp_path / "kafka", setting) as address:
        make_topic(address, "ticks", [[1]], CONFIG)
        values = [f"{number}:".ljust(65_536, "x") for number in range(RECORDS)]
        produce(address, "ticks", values)
        wait_for(lambda: local_start(address, "ticks") > 0, lambda: "Kafka drops nothing local")
        catalog = catalog_of(address, "ticks")
        segments = [segment for segment in catalog if segment.state is SegmentState.COPY_FINISHED]
        assert len(segments) >= 2
        epochs = segments[0].leader_epochs
        assert catalog.served_end_offset(0, epochs) >= local_start(address, "ticks")
        store = tmp_path / "kafka" / "remote" / "kafka-tiered-storage"
        write(address, [change for segment in segments for change in taken_over(segment, store)])
        wait_for(
            lambda: [value.decode() for value in values_of(address, "ticks")] == values,
            lambda: "Kafka doesn't read by our records",
        )
        assert not {segment.segment_id for segment in segments} & {
            segment.segment_id for segment in catalog_of(address, "ticks")
        }
