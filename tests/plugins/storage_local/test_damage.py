"""What an operator fears, done to a real broker's directory: a clear word, and no more lost than the damage."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from typer.testing import CliRunner

from blumfeld.cli.app import app
from blumfeld.testing.process import BrokerProcess
from tests.everyday import first

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
        found: list[int] = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            key = message.key()
            assert isinstance(key, bytes)
            found.append(int(key[4:]))
        return found
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


def test_a_segment_that_is_gone_after_a_kill_takes_nothing_else_with_it(broker: BrokerProcess) -> None:
    killed(broker)
    _, missing, third = segments(broker)[:3]
    missing.unlink()
    (broker.folder / "data/recovery-point-offset-checkpoint").write_text("0\n0\n")
    broker.start()
    assert keys(broker) == list(range(int(missing.stem)))
    assert broker.says("are missing")
    assert (third.parent / f"{third.name}.cut").exists()


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
    found = CliRunner().invoke(app, ["log", str(broker.folder / "data"), "--verify"])
    assert found.exit_code == 1
    assert victim.name in found.output


@pytest.mark.parametrize(
    "killing", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["clean", "killed"]
)
@pytest.mark.parametrize("suffix", first(1, ["index", "timeindex"]))
@pytest.mark.parametrize(
    "harm", ["garbage", *(pytest.param(harm, marks=pytest.mark.slow) for harm in ("deleted", "empty", "cut"))]
)
def test_an_index_costs_nothing_but_the_time_to_make_it_anew(
    broker: BrokerProcess, killing: bool, suffix: str, harm: str
) -> None:
    broker.start()
    assert produce(broker, 0, COUNT) == []
    if killing:
        broker.kill()
    else:
        assert broker.stop() == 0
    for log in segments(broker):
        victim = log.with_suffix(f".{suffix}")
        if harm == "deleted":
            victim.unlink(missing_ok=True)
        elif victim.exists():
            before = victim.read_bytes()
            victim.write_bytes({"garbage": os.urandom(len(before)), "cut": before[:-5], "empty": b""}[harm])
    broker.start()
    assert keys(broker) == list(range(COUNT))
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    wanted = [TopicPartition(TOPIC, 0, START_MS + number) for number in (0, 57, 155, 299)]
    assert [consumer.offsets_for_times([one], 10)[0].offset for one in wanted] == [0, 57, 155, 299]
    consumer.close()
    assert produce(broker, COUNT, COUNT + 10) == []


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


def fill(folder: Path) -> Path:
    """Take all that is left; the file that has it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return ballast


@pytest.mark.slow
def test_a_full_disk_refuses_batches_and_goes_on_when_there_is_room(small_disk: Path, tmp_path: Path) -> None:
    """A real one, with the cluster's metadata on another."""
    dirs = f'node.data_dirs=["{tmp_path}/meta", "{small_disk}/data"]'
    broker = BrokerProcess(tmp_path, settings=[*SETTINGS, dirs])
    broker.start()
    try:
        assert produce(broker, 0, 50) == []
        assert list(small_disk.glob(f"data/{TOPIC}-0"))
        ballast = fill(small_disk)
        refused = produce(broker, 50, 250)
        assert refused
        taken = keys(broker)
        assert taken[:50] == list(range(50))
        assert len(taken) >= 250 - len(refused)
        ballast.unlink()
        assert produce(broker, 250, 260) == []
        assert keys(broker) == [*taken, *range(250, 260)]
        assert broker.says("No space left")
    finally:
        broker.kill()


@pytest.mark.slow
def test_a_full_disk_with_the_metadata_on_it_ends_the_node_with_a_word(
    small_disk: Path, tmp_path: Path
) -> None:
    """A controller that can't write decides nothing. What was taken is served again once there is room."""
    broker = BrokerProcess(tmp_path, settings=[*SETTINGS, f'node.data_dirs=["{small_disk}/data"]'])
    broker.start()
    try:
        assert produce(broker, 0, 50) == []
        ballast = fill(small_disk)
        assert produce(broker, 50, 100)
        assert broker.says("No space left")
        ballast.unlink()
        broker.kill()
        broker.start()
        assert keys(broker)[:50] == list(range(50))
        assert produce(broker, 250, 260) == []
    finally:
        broker.kill()


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
