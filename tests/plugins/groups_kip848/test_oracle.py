"""The scripts of KIP-848 groups against Apache Kafka 4.3.1: the same requests, the same answers. Slow: starts Java."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from blumfeld.spi.cluster import GROUP_RESOURCE
from blumfeld.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from blumfeld.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld.wire.schema import Message
from tests.plugins.groups_both.test_migration_oracle import Brokers, LiveGroups, settings_of
from tests.plugins.groups_classic.classic_trace import GROUP
from tests.plugins.groups_kip848 import consumer_trace
from tests.plugins.groups_kip848.consumer_trace import ConsumerScript
from tests.trace_files import text_of, trace_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LAST = ("kip848_topics",)
"""It changes the topics of the others."""
NOT_ASKED = {
    "kip848_regex": "Kafka resolves a group's expressions once in 10 s at most, we a new one at once",
    "kip848_regex_in_flight": "the same, and it has what Kafka can't be told",
    "kip848_states": "Kafka computes a target that had to wait when the next heartbeat comes, we when it is due",
}
ANSWERED_S_MAX = 10
APPLIED_S = 0.4
"""What the controller has answered has reached the groups by then."""


class Answered(LiveGroups):
    """Nothing of these groups waits for anything: it is answered before the next request goes out."""

    def send(self, request: Message, version: int | None = None, *, client_id: str = "test") -> Any:
        answered = super().send(request, version, client_id=client_id)
        self.poll(answered, ANSWERED_S_MAX)
        return answered


class LiveConsumers(ConsumerScript):
    """A script against a live broker."""

    def __init__(self, live: LiveGroups) -> None:
        super().__init__()
        self._groups: Any = live
        self.group_id = live.group_id
        self._gone: dict[str, bytes] = {}

    def topic_ids(self) -> dict[str, bytes]:
        topics = self._groups.ask(MetadataRequest(topics=None), 12).topics
        self._gone.update({t.name: bytes(t.topic_id) for t in topics if not t.is_internal})
        return self._gone

    def do_config(self, names: list[str], options: dict[str, str]) -> None:
        """The broker was started with it."""

    def do_wait(self, names: list[str], options: dict[str, str]) -> None:
        """It takes as long as it says."""
        self._groups.poll(seconds=int(names[0]) / 1000)

    def do_set(self, names: list[str], options: dict[str, str]) -> None:
        """The group's own configuration."""
        configs = [AlterableConfig(name=key, config_operation=0, value=v) for key, v in options.items()]
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.group_id, configs=configs
        )
        (answer,) = self._groups.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert not answer.error_code, answer
        time.sleep(APPLIED_S)

    def do_topic(self, names: list[str], options: dict[str, str]) -> None:
        """Create it, let it grow, or delete it."""
        name, count = names[0], int(names[1])
        known = name in {t.name for t in self._groups.ask(MetadataRequest(topics=None), 12).topics}
        if not count:
            request: Any = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
            version = 6
        elif known:
            grown = [CreatePartitionsTopic(name=name, count=count, assignments=None)]
            request, version = CreatePartitionsRequest(topics=grown, timeout_ms=10_000), 3
        else:
            created = [CreatableTopic(name=name, num_partitions=count, replication_factor=1)]
            request, version = CreateTopicsRequest(topics=created, timeout_ms=10_000), 5
        self._groups.ask(request, version)
        time.sleep(APPLIED_S)
        self.topic_ids()


def told(script: ConsumerScript, text: str) -> list[tuple[str, list[str]]]:
    """(command, answers in alphabetical order) up to a reload. Why an expression is none, each engine says itself."""
    steps = []
    for line in text.partition("> reload")[0].splitlines():
        if line.startswith("> "):
            answers = [said for said in script.run(line[2:]) if not said.startswith("log ")]
            plain = [re.sub(r"(is not a valid regular expression).*", r"\1", said) for said in answers]
            steps.append((line, sorted(said.replace(script.group_id, GROUP) for said in plain)))
    return steps


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path_factory.mktemp("kafka"), stack)


def scripts() -> list[str]:
    """Those that Kafka can be asked."""
    names = trace_names("kip848")
    return [name for name in names if name not in (*LAST, *NOT_ASKED)] + list(LAST)


@pytest.mark.parametrize("name", scripts())
def test_kafka_answers_a_script_as_we_do(name: str, brokers: Brokers) -> None:
    """Every answer to every client."""
    text = text_of(name)
    ours = told(ConsumerScript(), text)
    more = tuple(f"{key}={value}" for key, value in consumer_trace.CONFIG.items())
    live = Answered(brokers.address((*settings_of(text), *more)), f"{name}-{time.monotonic_ns()}")
    try:
        live.wait_for_coordinator()
        theirs = told(LiveConsumers(live), text)
    finally:
        live.close()
    assert theirs == ours
