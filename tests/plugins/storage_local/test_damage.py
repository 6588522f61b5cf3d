"""What an operator fears, done to a real broker's directory: a clear word, and no more lost than the damage."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from typer.testing import CliRunner

from blumfeld.cli.app import app
from blumfeld.testing.process import BrokerProcess

TOPIC = "trades"
SETTINGS = ('config."log.roll.ms"=95', 'config."log.index.interval.bytes"=1000', 'config."num.partitions"=1')
START_MS = int(time.time()) * 1000
COUNT = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, settings=SETTINGS)
    yield broker
    broker.kill()


def produce(broker: BrokerProcess, first: int, end: int) -> list[str]:
    """Ten records to a batch; what was refused."""
    refused: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "batch.num.messages": 10,
            "message.timeout.ms": 4000,
            "linger.ms": 50,
        }
    )
    for number in range(first, end):
        producer.produce(
            TOPIC,
            b"value-%04d" % number * 40,
            b"key-%03d" % number,
            timestamp=START_MS + number,
            on_delivery=lambda error, _: refused.append(str(error)) if error else None,
        )
        if number % 10 == 9:
            producer.flush(10)
    producer.flush(10)
    return refused


def keys(broker: BrokerProcess) -> list[int]:
    """What is served, with CRCs checked by the client."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "g",
            "check.crcs": True,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        numbers: list[int] = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            key = message.key()
            assert isinstance(key, bytes)
            numbers.append(int(key[4:]))
        return numbers
    finally:
        consumer.close()


def segments(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.folder / f"data/{TOPIC}-0").glob("*.log"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 8
    path.write_bytes(data)


def killed(broker: BrokerProcess) -> None:
    """Written, and killed before anything was checkpointed."""
    broker.start()
    assert produce(broker, 0, COUNT) == []
    broker.kill()


def test_a_bit_flip_after_a_kill_ends_the_log_and_what_is_sound_behind_it_is_set_aside(
    broker: BrokerProcess,
) -> None:
    killed(broker)
    (broker.folder / "data/recovery-point-offset-checkpoint").write_text("0\n0\n")
    victim = segments(broker)[0]
    flip(victim, victim.stat().st_size // 2)
    broker.start()
    served = keys(broker)
    assert served == list(range(len(served)))
    assert len(segments(broker)) == 1
    assert broker.says("log cut after a crash")
    assert broker.says("set aside")
    kept: list[int] = []
    for aside in sorted(victim.parent.glob("*.cut*")):
        shown = CliRunner().invoke(app, ["log", str(aside), "--records", "--limit", "1000", "--json"]).output
        kept += [json.loads(line)["offset"] for line in shown.splitlines() if line[:1] == "{"]
    lost = sorted(set(range(COUNT)) - {*served, *kept})
    assert lost == list(range(len(served), len(served) + len(lost)))
    assert 0 < len(lost) <= 10, "one batch"
    assert produce(broker, COUNT, COUNT + 10) == []
    assert len(keys(broker)) == len(served) + 10


def test_a_bit_flip_in_a_clean_log_is_the_clients_to_see_and_the_commands_to_name(
    broker: BrokerProcess,
) -> None:
    """As with Kafka: the broker does not read what it sends. The log stays as it is."""
    broker.start()
    assert produce(broker, 0, COUNT) == []
    assert broker.stop() == 0
    victim = segments(broker)[0]
    flip(victim, 2000)
    broker.start()
    with pytest.raises((KafkaException, AssertionError)):
        assert len(keys(broker)) == COUNT
    assert broker.stop() == 0
    result = CliRunner().invoke(app, ["log", str(broker.folder / "data"), "--verify"])
    assert result.exit_code == 1
    assert victim.name in result.output


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB of its own; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("may not mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_remounted_read_only_goes_offline_with_a_word(
    small_disk: Path, tmp_path: Path
) -> None:
    """What was written is served again after a restart."""
    broker = BrokerProcess(tmp_path, settings=[*SETTINGS, f'node.data_dirs=["{small_disk}/data"]'])
    broker.start()
    try:
        assert produce(broker, 0, 50) == []
        remounted = subprocess.run(
            ["mount", "-o", "remount,ro", str(small_disk)], capture_output=True, check=False
        )
        if remounted.returncode:
            pytest.skip("the kernel won't remount while files are open for writing")
        assert len(produce(broker, 50, 60)) == 10
        assert broker.says("Read-only file system")
        broker.kill()
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        broker.start()
        assert keys(broker) == list(range(50))
    finally:
        broker.kill()
