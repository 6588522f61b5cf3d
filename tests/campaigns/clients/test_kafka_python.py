"""How the matrix uses kafka-python, with a consumer that only keeps its calls."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from campaigns.clients.kafka_python import KafkaPython

RECORD = SimpleNamespace(partition=0, offset=0, key=b"k", value=b"v", headers=[], timestamp=1)


class KeptCalls:
    """A consumer that has one record."""

    def __init__(self, *topics: str, **settings: Any) -> None:
        self.calls: list[str] = []
        LAST.append(self)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)

    def poll(self, timeout_ms: float) -> dict[str, list[Any]]:
        self.calls.append("poll")
        return {"t-0": [RECORD]}


LAST: list[KeptCalls] = []


def test_a_consumer_knows_its_topic_before_it_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the client may rejoin at once, and forget its assignment when the time of a poll is over meanwhile."""
    LAST.clear()
    monkeypatch.setitem(sys.modules, "kafka", SimpleNamespace(KafkaConsumer=KeptCalls))
    assert len(KafkaPython("127.0.0.1:1").consume("t", "g", 1)) == 1
    assert LAST[0].calls == ["partitions_for_topic", "poll", "commit", "close"]
