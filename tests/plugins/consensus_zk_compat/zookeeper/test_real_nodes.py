"""Three nodes as processes, a real ZooKeeper and a real client: nothing that was acknowledged is lost. Slow."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from blumfeld_kit.cluster import cluster_of_this_build
from tests.plugins.consensus_zk_compat.zookeeper.real_servers import started_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAIT_S = 60.0


def read(address: str, group: str, count: int) -> list[bytes]:
    """What a consumer group reads, until it has so many values or the time is over."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    values: list[bytes] = []
    end = time.monotonic() + WAIT_S
    while len(values) < count and time.monotonic() < end:
        values += [
            message.value() or b"" for message in consumer.consume(500, 1.0) if message.error() is None
        ]
    consumer.close()
    return values


def test_the_controllers_process_is_killed_while_a_client_produces(tmp_path: Path) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    server = started_server(tmp_path / "zookeeper")
    connect = f'consensus.options.connect="127.0.0.1:{server.port}/blumfeld"'
    settings = (
        'consensus.plugin="consensus_zk_compat"',
        connect,
        "consensus.options.session_timeout_ms=4000",
    )
    cluster = cluster_of_this_build(3, tmp_path, settings)
    acked: list[bytes] = []
    failed: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error:
            failed.append(error)
        else:
            acked.append(message.value())

    try:
        cluster.start()
        address = cluster.addresses
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        admin.create_topics([NewTopic("orders", 6, 3)])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True})
        for number in range(2_000):
            if number == 1_000:
                assert producer.flush(WAIT_S) == 0
                assert len(read(address, "before", 1_000)) == 1_000  # offsets have three replicas from now on
                cluster.node(admin.list_topics(timeout=WAIT_S).controller_id).kill()
            producer.produce("orders", b"%d" % number, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0
        assert (failed, len(acked)) == ([], 2_000)
        assert sorted(map(int, read(address, "readers", 2_000))) == list(range(2_000))
    finally:
        cluster.stop()
        server.kill()
