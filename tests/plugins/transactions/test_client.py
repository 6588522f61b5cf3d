"""librdkafka's transactional producer against a broker in this process."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blumfeld.testing import EmbeddedBroker

WAIT_S = 120
"""Longest wait for anything. Other processes may hold both cores for half a minute."""


def producer(address: str, transactional_id: str = "tx", timeout_ms: int = 60_000) -> Any:
    made = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
            "linger.ms": 0,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def consumer(address: str, isolation: str, group: str = "reader") -> Any:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def read(address: str, isolation: str, partitions: int) -> list[str]:
    """Every value that a consumer of this isolation level sees, sorted."""
    reader = consumer(address, isolation)
    reader.assign([TopicPartition("t", index, 0) for index in range(partitions)])
    values: list[str] = []
    ends = 0
    while ends < partitions:
        message = reader.poll(WAIT_S)
        assert message is not None, f"{isolation}: {values}"
        if message.error():
            ends += 1
        else:
            values.append(message.value().decode())
    reader.close()
    return sorted(values)


def test_consume_transform_produce() -> None:
    """Committed values and offsets are seen, aborted ones aren't, and a second producer fences the first."""
    with EmbeddedBroker() as broker:
        address = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        for made in admin.create_topics([NewTopic("t", 2, 1)]).values():
            made.result(WAIT_S)
        first = producer(address)
        member = consumer(address, "read_committed", "g")
        member.subscribe(["t"])
        while not member.assignment():
            member.poll(0.05)
        for number, commits in enumerate((True, False, True)):
            first.begin_transaction()
            for index in range(2):
                first.produce("t", f"{number}-{index}", partition=index)
            offsets = [TopicPartition("t", 0, 10 + number)]
            first.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), WAIT_S)
            if commits:
                first.commit_transaction(WAIT_S)
            else:
                first.flush(WAIT_S)
                first.abort_transaction(WAIT_S)
        first.begin_transaction()
        first.produce("t", "open", partition=0)
        first.flush(WAIT_S)
        committed = ["0-0", "0-1", "2-0", "2-1"]
        assert read(address, "read_committed", 2) == committed
        assert read(address, "read_uncommitted", 2) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1", "open"]
        assert member.committed([TopicPartition("t", 0)], WAIT_S)[0].offset == 12
        member.close()
        second = producer(address)
        with pytest.raises(KafkaException, match="fenced"):
            first.commit_transaction(WAIT_S)
        second.begin_transaction()
        second.produce("t", "after", partition=0)
        second.commit_transaction(WAIT_S)
        assert read(address, "read_committed", 2) == [*committed, "after"]


def test_without_the_plug_in_a_transactional_id_is_refused() -> None:
    left_out = {"transactions": {"plugin": "none"}}
    with EmbeddedBroker(manifest=left_out) as broker, pytest.raises(KafkaException, match="authorization"):
        producer(broker.bootstrap_servers)
