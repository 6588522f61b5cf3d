"""Real nodes on a small file system that is full for a while: three under an idempotent producer, and one alone (ADR
0020)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from blumfeld.cli.app import run_app
from blumfeld.testing.process import BrokerProcess, free_port
from campaigns.clients.load.load import TOPIC, Load
from tests.cli.cluster.test_rolling import PARTITIONS, RECORDS_PER_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0 or shutil.which("mount") is None, reason="mounts a tmpfs"
    ),
]
FULL = 2
"""The node on the small file system."""
SIZE_MB = 60
FULL_S = 14.0
AWAY_S, BACK_S = 5.0, 20.0
"""Longest time until others lead, and until each ISR is whole again. A busy machine needs a part of it."""
GAP_S = 8.0
"""Longest time without an acknowledgement. It was 14 s and more when a full leader led on."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """The directory of the node, on a file system of its own."""
    place = tmp_path / f"node-{FULL}"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", str(place)], check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    if (tmp_path / "cluster.json").exists():
        run_app(["cluster", "stop", "--dir", str(tmp_path)])
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Take all that is left."""
    with path.open("ab", buffering=0) as file:
        for unit in (1 << 20, 4096):
            try:
                while file.write(b"\0" * unit) == unit:
                    pass
            except OSError:
                continue


def test_a_full_disk_costs_no_leader_and_no_restart(
    tmp_path: Path, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    confluent: Any = pytest.importorskip("confluent_kafka.admin")

    def partitions() -> dict[int, Any]:
        by_number: dict[int, Any] = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        return by_number

    def within(seconds: float, condition: Callable[[dict[int, Any]], bool]) -> float:
        began = time.monotonic()
        while not condition(by_number := partitions()):
            assert time.monotonic() < began + seconds, {n: (p.leader, p.isrs) for n, p in by_number.items()}
            time.sleep(0.1)
        return time.monotonic() - began

    settings = ['config."default.replication.factor"=3', 'config."min.insync.replicas"=2']
    flags = [part for setting in settings for part in ("--set", setting)]
    address = f"127.0.0.1:{free_port(adjacent=30)}"
    status = run_app(["cluster", "up", "3", "--dir", str(tmp_path), "--listen", address, *flags])
    said = capsys.readouterr()
    assert status == 0, said.out + said.err
    servers = said.out.rsplit("bootstrap.servers=")[1].strip()
    admin = confluent.AdminClient({"bootstrap.servers": servers, "log_level": 0})
    load = Load(servers, PARTITIONS, RECORDS_PER_S)
    load.make_topic(3, {})
    load.start()
    within(BACK_S, lambda by_number: all(len(partition.isrs) == 3 for partition in by_number.values()))
    assert FULL in {partition.leader for partition in partitions().values()}
    began, filler = time.monotonic(), small / "filler"
    fill(filler)
    within(
        AWAY_S,
        lambda by_number: all(
            FULL not in (partition.leader, *partition.isrs) for partition in by_number.values()
        ),
    )
    while time.monotonic() < began + FULL_S:
        fill(filler)
        assert all(partition.leader not in (-1, FULL) for partition in partitions().values())
        time.sleep(0.5)
    freed = time.monotonic()
    filler.unlink()
    within(BACK_S, lambda by_number: all(len(partition.isrs) == 3 for partition in by_number.values()))
    assert load.await_acks(freed, BACK_S)
    load.finish()
    assert (dict(load.given_up), load.account().lost, load.wrong) == ({}, 0, [])
    times = sorted(chain.from_iterable(load.ack_times))
    assert max(later - earlier for earlier, later in pairwise(times)) < GAP_S


def test_a_node_stops_on_a_full_disk_and_starts_once_there_is_room(tmp_path: Path, small: Path) -> None:
    """docs/operations.md says so. Until it stops it serves reads."""
    confluent: Any = pytest.importorskip("confluent_kafka")
    clients: Any = pytest.importorskip("confluent_kafka.admin")

    def read() -> int:
        settings = {"bootstrap.servers": broker.address, "group.id": "g", "log_level": 0}
        consumer = confluent.Consumer(settings)
        consumer.assign([confluent.TopicPartition("t", 0, 0)])
        count = 0
        while (message := consumer.poll(3)) is not None:
            count += message.error() is None
        consumer.close()
        return count

    folder = tmp_path / "process"
    folder.mkdir()
    broker = BrokerProcess(folder, settings=[f'node.data_dirs=["{small / "data"}"]'])
    broker.start()
    try:
        admin = clients.AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        admin.create_topics([clients.NewTopic("t", 1, 1)])["t"].result(30)
        errors: list[object] = []
        settings = {"bootstrap.servers": broker.address, "message.timeout.ms": 2_000, "log_level": 0}
        producer = confluent.Producer(settings)
        for _ in range(10):
            producer.produce("t", b"kept", callback=lambda error, _: errors.append(error))
        producer.flush(30)
        assert errors == [None] * 10
        fill(small / "filler")
        producer.produce("t", bytes(100_000), callback=lambda error, _: errors.append(error))
        producer.flush(30)
        assert errors[-1] is not None
        assert read() == 10
        assert broker.stop() == 0
        assert broker.says("no room for the last checkpoint")
        fill(small / "filler")
        with pytest.raises(RuntimeError, match="No space left on device"):
            broker.start()
        (small / "filler").unlink()
        broker.start()
        assert read() == 10
        assert broker.stop() == 0
    finally:
        broker.kill()
