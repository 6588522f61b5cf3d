"""Logs that no topic claims: which they are, and what a broker makes of them (KIP-858)."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from blumfeld.broker.replicas.hosting.strays import strays
from blumfeld.spi.storage import TopicPartition as At
from blumfeld.testing import EmbeddedBroker

ID = bytes([1] * 16)
OTHER_ID = bytes([2] * 16)


def image(**replicas: list[int]) -> Any:
    topics = {
        name: SimpleNamespace(topic_id=ID, partitions={0: SimpleNamespace(replicas=nodes)})
        for name, nodes in replicas.items()
    }
    return cast(Any, SimpleNamespace(topics=topics))


@pytest.mark.parametrize(
    ("at", "topic_id", "stray"),
    [
        pytest.param(At("ours", 0), ID, False, id="ours"),
        pytest.param(At("ours", 0), bytes(16), False, id="ours, but a crash came before its id was written"),
        pytest.param(At("ours", 0), OTHER_ID, True, id="deleted, and made anew since"),
        pytest.param(At("ours", 1), ID, True, id="a partition that the topic doesn't have"),
        pytest.param(At("gone", 0), ID, True, id="deleted"),
        pytest.param(At("gone", 0), bytes(16), True, id="nobody knows whose"),
        pytest.param(At("theirs", 0), ID, True, id="its replicas are on other nodes"),
        pytest.param(At("__cluster_metadata", 0), bytes(16), False, id="the metadata themselves"),
    ],
)
def test_a_stray_is_what_no_topic_claims(at: At, topic_id: bytes, *, stray: bool) -> None:
    found = [(at, topic_id)]
    assert strays(found, image(ours=[1, 2], theirs=[2]), 1) == ([at] if stray else [])


def produce(broker: EmbeddedBroker, topic: str, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def values(broker: EmbeddedBroker, topic: str) -> list[bytes | None]:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def test_a_log_of_a_topic_that_was_deleted_meanwhile_is_set_aside_and_kept(tmp_path: Path) -> None:
    """Its directory was offline when the topic was deleted, and made anew; it comes back."""
    data, away = tmp_path / "data", tmp_path / "away"
    with EmbeddedBroker(storage="storage_local", data_dir=str(data)) as broker:
        produce(broker, "kept", "kept")
        produce(broker, "gone", "old")
        produce(broker, "anew", "old")
    for name in ("gone-0", "anew-0"):
        shutil.copytree(data / name, away / name)
    with EmbeddedBroker(storage="storage_local", data_dir=str(data)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.delete_topics(["gone", "anew"], operation_timeout=20).values():
            future.result(timeout=20)
        admin.create_topics([NewTopic("anew", 1, 1)])["anew"].result(timeout=20)
    shutil.rmtree(data / "anew-0")
    for name in ("gone-0", "anew-0"):
        shutil.copytree(away / name, data / name)
    with EmbeddedBroker(storage="storage_local", data_dir=str(data)) as broker:
        assert values(broker, "kept") == [b"kept"]
        assert values(broker, "anew") == []
        produce(broker, "anew", "new")
        assert values(broker, "anew") == [b"new"]
        assert (
            "gone"
            not in AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=20).topics
        )
    for name in ("gone-0", "anew-0"):
        (stray,) = data.glob(f"{name}.*-stray")
        log = "00000000000000000000.log"
        assert (stray / log).read_bytes() == (away / name / log).read_bytes()
    with EmbeddedBroker(storage="storage_local", data_dir=str(data)) as broker:
        assert values(broker, "anew") == [b"new"]
    assert len(list(data.glob("*-stray"))) == 2
