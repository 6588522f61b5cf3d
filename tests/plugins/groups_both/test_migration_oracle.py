"""The scripts of migration against Apache Kafka 4.3.1: the same requests, the same answers. Slow: starts Java."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from blumfeld.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.schema import Message
from tests.kafka_peer import kafka_on, peer_script
from tests.plugins.groups_both.migration_trace import CONFIG, MigrationScript
from tests.plugins.groups_classic.classic_trace import Script
from tests.plugins.groups_classic.test_oracle import Live, said_by
from tests.trace_files import each_trace, text_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SLOW_S_MAX = 10
NOT_AS_KAFKA = {
    # Kafka makes the group stable, where one member may have what another reads still.
    "migration_static_unsettled": "> describe",
    # Kafka names no member id when it refuses one, and then, where a subscription can't be read, that is its own error.
    "migration_classic_errors": "> join d",
    # Kafka gives away at once what a cooperative member reads still.
    "migration_upgrade_withheld": "> hb m",
    # Kafka calls such a group stable, and nobody reads what nobody has until something else changes.
    "migration_static_grown": "> hb c",
    "migration_static_in_rebalance": "> hb c",
}
"""Where a script ends for Kafka, since we want it otherwise."""


class LiveGroups(Live):
    """A live group whose members speak either protocol."""

    ids: dict[str, bytes]

    def send(self, request: Message, version: int | None = None, *, client_id: str = "test") -> Any:
        if isinstance(request, ConsumerGroupDescribeRequest):
            request.group_ids = [self.group_id]
        return super().send(request, version, client_id=client_id)


class LiveMigration(MigrationScript):
    """A script against a live broker."""

    def __init__(self, live: LiveGroups, wanted: Iterable[int]) -> None:
        """``wanted``: how many answers each command is waited for, however slow the machine is."""
        super().__init__()
        self._groups: Any = live
        self.group_id = live.group_id
        self._wanted = iter(wanted)
        topics = live.ask(MetadataRequest(topics=None), 12).topics
        self.ids = {topic.name: bytes(topic.topic_id) for topic in topics if not topic.is_internal}

    def topic_ids(self) -> dict[str, bytes]:
        return self.ids

    def do_config(self, names: list[str], options: dict[str, str]) -> None:
        """The broker was started with it."""

    def run(self, line: str) -> list[str]:
        """With what others are answered because of it."""
        said, wanted = super().run(line), next(self._wanted)
        end = time.monotonic() + SLOW_S_MAX
        while True:
            self._groups.poll(seconds=0.1)
            said, self._said = said + self._said, []
            if len(said) >= wanted or time.monotonic() > end:
                return said


def settings_of(text: str) -> tuple[str, ...]:
    """What a broker is to be started with for a script."""
    config = dict(CONFIG)
    for line in text.splitlines():
        if line.startswith("> config "):
            key, _, value = line.split()[2].partition("=")
            config[key] = value
    return tuple(f"{key}={value}" for key, value in config.items())


def told(script: Script, text: str, name: str) -> list[tuple[str, list[str]]]:
    """(command, answers in alphabetical order) up to the first command that Kafka can't be told."""
    text = text.partition("> topic")[0].partition(NOT_AS_KAFKA.get(name, "> topic"))[0]
    text = "\n".join(line for line in text.splitlines() if not line.startswith("> config"))
    return [(line, plain(said)) for line, said in said_by(script, text)]


def plain(said: list[str]) -> list[str]:
    """Who leads is a matter of hashes there. What members have in a rebalance, Kafka says of a group that was
    downgraded as they were to have it; we say what they hold.
    """
    if any(line.startswith(("classic Preparing", "classic Completing")) for line in said):
        said = [re.sub(r" v3:.*| nothing", "", line) for line in said]
    return [re.sub(r"leader=\S+", "leader=", line) for line in said]


class Brokers:
    """One Kafka for each configuration."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._running: dict[tuple[str, ...], str] = {}

    def address(self, settings: tuple[str, ...]) -> str:
        if settings not in self._running:
            directory = self._directory / f"kafka-{len(self._running)}"
            directory.mkdir(exist_ok=True)
            address = self._stack.enter_context(kafka_on(peer_script(), directory, *settings))
            live = Live(address, "warm-up")
            topics = [
                CreatableTopic(name=name, num_partitions=count, replication_factor=1)
                for name, count in (("t", 4), ("u", 1))
            ]
            live.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
            live.ask(FindCoordinatorRequest(key="warm-up"), 3)
            live.wait_for_coordinator()
            live.close()
            self._running[settings] = address
        return self._running[settings]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path_factory.mktemp("kafka"), stack)


@each_trace("migration")
def test_kafka_answers_a_script_as_we_do(name: str, brokers: Brokers) -> None:
    """Every answer to every client, whoever's request brought it about."""
    text = text_of(name)
    config = MigrationScript()
    for line in text.splitlines():
        if line.startswith("> config"):
            config.run(line[2:])
    ours = told(config, text, name)
    live = LiveGroups(brokers.address(settings_of(text)), f"{name}-{time.monotonic_ns()}")
    try:
        live.wait_for_coordinator()
        theirs = told(LiveMigration(live, (len(said) for _, said in ours)), text, name)
    finally:
        live.close()
    assert theirs == ours
