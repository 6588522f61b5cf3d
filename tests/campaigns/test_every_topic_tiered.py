"""The plug-in with which suites of clients run on tiered topics only."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blumfeld.config.values import TopicConfig
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_tiered.catalog.counts import Counts
from campaigns import ROOT
from campaigns.every_topic_tiered.nodes import tiered_settings, told
from campaigns.every_topic_tiered.plugin import METADATA_TOPIC, RESULT_FILE, EveryTopicTiered, Tiered


class Log:
    """A log whose local part began later."""

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.log_start_offset, self.local_log_start_offset = 0, 7


class Inner:
    """A storage whose logs are what they were opened with."""

    async def open_log(
        self, partition: TopicPartition, topic_id: bytes, config: TopicConfig, *_: Any, **__: Any
    ) -> Any:
        return Log(config) if config.remote_storage_enable else config

    def delete_log(self, partition: TopicPartition) -> None: ...


def opened(storage: EveryTopicTiered, topic: str, **config: str) -> Any:
    given = TopicConfig({key.replace("_", "."): value for key, value in config.items()})
    log: Any = asyncio.run(storage.open_log(TopicPartition(topic, 0), bytes(16), given, None))  # type: ignore[arg-type]
    assert not given.remote_storage_enable, "the broker's own configuration was changed"
    return log


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def storage(counts: Counts) -> EveryTopicTiered:
    return EveryTopicTiered(Inner(), counts, 1024)


def test_a_topic_is_tiered_at_small_segments_without_being_asked(storage: EveryTopicTiered) -> None:
    config = opened(storage, "ticks", segment_bytes="2097152").config
    assert config.remote_storage_enable
    assert config.segment_bytes == 1024


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", METADATA_TOPIC])
def test_the_broker_s_own_topics_stay_as_they_are(storage: EveryTopicTiered, topic: str) -> None:
    assert not opened(storage, topic).remote_storage_enable


def test_a_compacted_topic_stays_as_it_is(storage: EveryTopicTiered) -> None:
    assert not opened(storage, "ticks", cleanup_policy="compact").remote_storage_enable


def test_the_work_for_deleted_topics_is_told_too(
    storage: EveryTopicTiered, counts: Counts, tmp_path: Path
) -> None:
    opened(storage, "ticks")
    counts.of("ticks").copies, counts.of("ticks").fetched_bytes = 3, 500
    counts.forget("ticks")
    storage.delete_log(TopicPartition("ticks", 0))
    result = storage.result()
    assert result == Tiered(copied_segments=3, remote_bytes=500, partitions=1, partly_remote=1)
    (tmp_path / RESULT_FILE).write_bytes(msgspec.json.encode(result))
    assert "1 of 1 replicas" in told(tmp_path)


def test_nodes_find_it_as_they_find_a_stranger_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    settings = [word for setting in tiered_settings(tmp_path, 1024) for word in ("--set", setting)]
    command = [sys.executable, "-m", "blumfeld.cli.main", "plan", *settings]
    plan = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert plan.returncode == 0, plan.stderr
    assert "every-topic-tiered 0.1.0" in plan.stdout.replace("_", "-"), plan.stdout
