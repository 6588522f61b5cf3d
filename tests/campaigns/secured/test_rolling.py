"""The steps from PLAINTEXT to SASL_SSL: each is a manifest that a node takes, and follows from the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from blumfeld.cli.manifest import load_manifest
from blumfeld.kernel.composing.plan import make_plan
from campaigns.clients.load import producers
from campaigns.clients.load.producers import Librdkafka
from campaigns.secured import rolling
from campaigns.secured.rolling import (
    ACLS_ADDED,
    ACLS_DECIDE,
    BESIDE,
    BROKERS_MOVED,
    CLOSED,
    CONTROLLERS_MOVED,
    PLAIN,
    SecureStory,
)
from campaigns.waits import await_true

STAGES = (PLAIN, BESIDE, BROKERS_MOVED, CONTROLLERS_MOVED, CLOSED, ACLS_ADDED, ACLS_DECIDE)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SecureStory:
    monkeypatch.setattr(rolling, "make_users", lambda _: None)
    return SecureStory(tmp_path, 1.0, ())


def test_each_step_is_a_manifest_that_a_node_takes(story: SecureStory) -> None:
    node = story.nodes[1]
    for story.stage in STAGES:
        story.write(node)
        source = str(node.manifest)
        plan = make_plan(load_manifest(source, (), str(node.folder / "data")), source)
        shown = {listener.name: listener.security_protocol for listener in plan.listeners}
        assert shown == {face.name: face.protocol for face in story.stage.faces}
        first = plan.config.list("controller.listener.names")[0]
        assert f"2@{node.at(first)}" in plan.config.list("controller.quorum.voters")


def test_nodes_of_neighbouring_steps_reach_each_other() -> None:
    """While one node has the next step, the others have the present one."""
    for before, after in pairwise(STAGES):
        for dials, listens in ((before, after), (after, before)):
            assert {dials.between, dials.controllers} <= {face.name for face in listens.faces}


class Sent:
    """Stands for librdkafka: each record is acknowledged at once."""

    made: Sequence[Any] = []

    def __init__(self, config: dict[str, Any]) -> None:
        self.servers, self.values = config["bootstrap.servers"], list[bytes]()
        Sent.made = [*Sent.made, self]

    def produce(self, topic: str, value: bytes, *_: object, on_delivery: Any, **__: object) -> None:
        self.values.append(value)

    def poll(self, _: float) -> None: ...

    def flush(self, _: float) -> int:
        return 0


@pytest.fixture
def librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "Producer", Sent)
    Sent.made = []


@pytest.mark.usefixtures("librdkafka")
def test_a_producer_that_moves_goes_on_where_it_was() -> None:
    producer = Librdkafka("old", "t", 1, 5_000.0)
    producer.start(None)  # type: ignore[arg-type]
    assert await_true(lambda: sum(producer.sent) > 0, 5.0, 0.001)
    producer.move("new")
    assert await_true(lambda: len(Sent.made) == 2 and Sent.made[1].values != [], 5.0, 0.001)
    producer.finish(1.0)
    old, new = Sent.made
    assert (old.servers, new.servers) == ("old", "new")
    numbers = [int(value.split()[0]) for value in (*old.values, *new.values)]
    assert numbers == list(range(producer.sent[0]))
