"""The embedded broker is a real one, starts at once, says in the caller what is wrong, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from blumfeld.kernel.node import Node, StartError
from blumfeld.plugging.errors import ManifestError
from blumfeld.testing import DefectError, EmbeddedBroker

START_MS_MAX = 250
"""Generous, for a machine that does other things too; alone it is a tenth of that."""


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    """With librdkafka, all acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(10) == 0
    assert errors == [None] * len(values)


def consume(servers: str, topic: str, count: int, group: str = "g") -> list[bytes | None]:
    """In a group with librdkafka, from the beginning."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


@pytest.mark.parametrize("storage", ["storage_memory", "storage_local"])
def test_a_blocking_client_produces_and_consumes_in_a_group(storage: str) -> None:
    with EmbeddedBroker(storage=storage) as broker:
        produce(broker.bootstrap_servers, "news", [b"one", b"two"])
        assert consume(broker.bootstrap_servers, "news", 2) == [b"one", b"two"]


def test_it_serves_a_test_that_runs_in_an_event_loop() -> None:
    """The broker has a loop of its own, so neither waits for the other."""

    async def both(servers: str) -> bytes | None:
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        await producer.start()
        await producer.send_and_wait("news", b"one")
        await producer.stop()
        consumer = AIOKafkaConsumer("news", bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        record = await asyncio.wait_for(consumer.getone(), 60)
        await consumer.stop()
        value: bytes | None = record.value
        return value

    async def test() -> bytes | None:
        with EmbeddedBroker() as broker:
            return await both(broker.bootstrap_servers)

    assert asyncio.run(test()) == b"one"


def test_it_starts_in_a_moment() -> None:
    """The first start imports what it needs; a test suite pays that once."""
    took_ms: list[float] = []
    while len(took_ms) < 11 or (min(took_ms) >= START_MS_MAX and len(took_ms) < 60):
        began = time.perf_counter()
        broker = EmbeddedBroker()
        broker.start()
        took_ms.append((time.perf_counter() - began) * 1000)
        broker.stop()
    assert min(took_ms) < START_MS_MAX, took_ms


def test_several_run_at_once_and_share_nothing() -> None:
    """As the tests of one process in threads, or pytest-xdist's workers."""
    values_by_topic: dict[str, list[bytes | None]] = {}

    def one(name: str) -> None:
        with EmbeddedBroker() as broker:
            produce(broker.bootstrap_servers, "news", [name.encode()])
            values_by_topic[name] = consume(broker.bootstrap_servers, "news", 1)

    threads = [threading.Thread(target=one, args=(f"t{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values_by_topic == {f"t{n}": [f"t{n}".encode()] for n in range(3)}


def test_configuration_is_kafkas() -> None:
    with EmbeddedBroker(config={"num.partitions": 3}) as broker:
        produce(broker.bootstrap_servers, "news", [b"one"])
        topics = broker.call(lambda: dict(broker.node.composition.metadata.image.topics))
    assert len(topics["news"].partitions) == 3


def test_its_directory_goes_also_when_the_test_fails() -> None:
    with pytest.raises(ZeroDivisionError), EmbeddedBroker(storage="storage_local") as broker:  # noqa: PT012
        directory = broker.data_dir
        assert os.path.exists(f"{directory}/meta.properties")
        raise ZeroDivisionError
    assert not os.path.exists(directory)
    assert not [thread for thread in threading.enumerate() if thread.name == "blumfeld-embedded"]


def test_it_restarts_on_a_directory_of_the_callers(tmp_path: Path) -> None:
    for value in (b"one", b"two"):
        with EmbeddedBroker(storage="storage_local", data_dir=str(tmp_path)) as broker:
            produce(broker.bootstrap_servers, "news", [value])
            values = consume(broker.bootstrap_servers, "news", 1)
    assert values == [b"two"]  # the group went on where it was
    with EmbeddedBroker(storage="storage_local", data_dir=str(tmp_path)) as broker:
        assert consume(broker.bootstrap_servers, "news", 2, group="other") == [b"one", b"two"]


def test_an_unknown_key_is_refused_before_anything_opens() -> None:
    with pytest.raises(ManifestError, match=r"num\.partition"):
        EmbeddedBroker(config={"num.partition": 3})


def test_what_fails_in_the_thread_is_raised_in_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    broker = EmbeddedBroker(storage="storage_local", data_dir=str(tmp_path / "file"))
    with pytest.raises(StartError, match="storage"):
        broker.start()
    assert not [thread for thread in threading.enumerate() if thread.name == "blumfeld-embedded"]


def test_a_defect_inside_is_raised_at_the_end() -> None:
    """A broker that died of a bug must not look like one whose test has passed."""

    def plant(broker: EmbeddedBroker) -> Callable[[], None]:
        async def escapes() -> None:
            raise KeyError("planted")

        def spawn() -> None:
            broker.node.composition.runtime.spawn(escapes(), "planted")

        return spawn

    with pytest.raises(DefectError, match="planted"), EmbeddedBroker() as broker:  # noqa: PT012
        broker.call(plant(broker))
        time.sleep(0.05)


def test_a_start_that_takes_too_long_ends_with_a_sentence() -> None:
    """A voter whose quorum has no majority waits for good. Nothing of it is left."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    threads = threading.active_count()
    broker = EmbeddedBroker(
        storage="storage_local",
        config={"controller.quorum.voters": f"1@127.0.0.1:{port},2@127.0.0.1:1,3@127.0.0.1:2"},
        manifest={
            "node": {"cluster_id": "embedded"},
            "network": {
                "listeners": [
                    {"name": "PLAINTEXT", "bind": "127.0.0.1:0"},
                    {"name": "CONTROLLER", "kind": "controller", "bind": f"127.0.0.1:{port}"},
                ]
            },
        },
        start_timeout_s=0.5,
    )
    with pytest.raises(
        TimeoutError, match=r"did not start within 0\.5 s: it was starting its part consensus\."
    ):
        broker.start()
    assert threading.active_count() == threads
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_defect_while_it_starts_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_: object) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.Event().wait()

    monkeypatch.setattr(Node, "start", never)
    with pytest.raises(DefectError) as caught:
        EmbeddedBroker().start()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_it_is_used_inside_of_its_block_only() -> None:
    with pytest.raises(RuntimeError, match="with block"):
        _ = EmbeddedBroker().bootstrap_servers


def test_the_fixture_is_a_broker(blumfeld: EmbeddedBroker) -> None:
    produce(blumfeld.bootstrap_servers, "news", [b"one"])


@pytest.mark.blumfeld(config={"num.partitions": 2}, storage="storage_local")
def test_the_marker_says_what_it_is_made_of(blumfeld: EmbeddedBroker) -> None:
    assert os.path.exists(f"{blumfeld.data_dir}/__cluster_metadata-0")
    assert blumfeld.node.plan.config.int("num.partitions") == 2


def test_the_plugin_that_every_pytest_run_loads_imports_no_broker() -> None:
    """It costs projects that never use it next to nothing."""
    code = (
        "import sys, blumfeld.testing.pytest_plugin\n"
        "small = ('blumfeld.testing', 'blumfeld.moved')\n"
        "print([m for m in sys.modules if m.startswith('blumfeld.') and not m.startswith(small)])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
